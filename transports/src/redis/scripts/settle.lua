-- Ends a lease, if it is still held: by this receiver, since this delivery, and not run out.
-- KEYS: queue, later, uncounted, letters, letter ids
-- ARGV: group, consumer, lease (ms), id, deliveries, then
--       `retry`, delay (ms), uncounted (0, 1), or `letter`, which one, remove when unused for (ms), its fields
local queue, later, uncounted, letters, ids = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local group, consumer, id, deliveries, what = ARGV[1], ARGV[2], ARGV[4], tonumber(ARGV[5]), ARGV[6]

local found = redis.pcall('XPENDING', queue, group, id, id, 1)
local pending = not found.err and found[1]
if not pending or pending[2] ~= consumer or pending[4] ~= deliveries or pending[3] >= tonumber(ARGV[3]) then
  return 0
end

if what == 'retry' then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  redis.call('ZADD', later, now + tonumber(ARGV[7]), id)
  if ARGV[8] == '1' then redis.call('HINCRBY', uncounted, id, 1) end
  redis.call('XCLAIM', queue, group, 'later', 0, id, 'JUSTID')
  return 1
end
if redis.call('HEXISTS', ids, ARGV[7]) == 0 then
  redis.call('HSET', ids, ARGV[7], redis.call('XADD', letters, '*', unpack(ARGV, 9)))
  if tonumber(ARGV[8]) > 0 then
    redis.call('PEXPIRE', letters, ARGV[8])
    redis.call('PEXPIRE', ids, ARGV[8])
  end
end
redis.call('XACK', queue, group, id)
redis.call('XDEL', queue, id)
if deliveries > 1 then redis.call('HDEL', uncounted, id) end
return 1
