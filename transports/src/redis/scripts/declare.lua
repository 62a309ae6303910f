-- Makes sure of the queue of an endpoint, and of its subscriptions. What is wrong with it, or nothing.
-- KEYS: queue, topics
-- ARGV: endpoint, group, the group of a queue that was declared in the other way, may declare (0, 1),
--       remove when unused for (ms; 0: never)
local queue, endpoint, group, other = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local kind = redis.call('TYPE', queue).ok
if kind ~= 'stream' and kind ~= 'none' then return 'kind' end
local is_there = false
if kind == 'stream' then
  for _, known in ipairs(redis.call('XINFO', 'GROUPS', queue)) do
    if known[2] == other then return 'other' end
    is_there = is_there or known[2] == group
  end
end
if not is_there then
  if ARGV[4] == '0' then return 'missing' end
  -- From the beginning: what another has sent before is for it, too.
  redis.call('XGROUP', 'CREATE', queue, group, '0', 'MKSTREAM')
end
if tonumber(ARGV[5]) > 0 then redis.call('PEXPIRE', queue, ARGV[5]) end
for at = 2, #KEYS do
  if ARGV[4] == '1' then
    redis.call('SADD', KEYS[at], endpoint)
  elseif redis.call('SISMEMBER', KEYS[at], endpoint) == 0 then
    return 'unsubscribed'
  end
end
return ''
