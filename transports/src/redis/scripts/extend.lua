-- Begins leases anew that are still held.
-- KEYS: queue, active
-- ARGV: group, consumer, lease (ms), keep to one receiver (0, 1), then id and deliveries of each
local queue, active = KEYS[1], KEYS[2]
local group, consumer, lease = ARGV[1], ARGV[2], tonumber(ARGV[3])
for at = 5, #ARGV, 2 do
  local found = redis.pcall('XPENDING', queue, group, ARGV[at], ARGV[at], 1)
  local pending = not found.err and found[1]
  if pending and pending[2] == consumer and pending[4] == tonumber(ARGV[at + 1]) and pending[3] < lease then
    redis.call('XCLAIM', queue, group, consumer, 0, ARGV[at], 'JUSTID')
  end
end
local holder = ARGV[4] == '1' and redis.call('GET', active)
if holder == consumer or holder == consumer .. ' takes over' then redis.call('PEXPIRE', active, lease) end
return 1
