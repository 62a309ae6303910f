-- Acknowledges messages whose leases are still held: by this receiver, since this delivery, and not run out. Whether each was.
-- KEYS: queue, uncounted
-- ARGV: group, consumer, lease (ms), then id and deliveries of each
local queue, uncounted = KEYS[1], KEYS[2]
local group, consumer, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
local answers, held, seen = {}, {}, {}
for at = 4, #ARGV, 2 do
  local id, deliveries = ARGV[at], tonumber(ARGV[at + 1])
  local found = redis.pcall('XPENDING', queue, group, id, id, 1)
  local pending = not found.err and found[1]
  local is_held = pending and pending[2] == consumer and pending[4] == deliveries and pending[3] < lease
  if is_held and not seen[id] then
    seen[id] = true
    held[#held + 1] = id
    answers[#answers + 1] = 1
    if deliveries > 1 then redis.call('HDEL', uncounted, id) end
  else
    answers[#answers + 1] = 0
  end
end
if #held > 0 then
  redis.call('XACK', queue, group, unpack(held))
  redis.call('XDEL', queue, unpack(held))
end
return answers
