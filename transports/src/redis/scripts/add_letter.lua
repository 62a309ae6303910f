-- Keeps a dead letter, once.
-- KEYS: letters, letter ids
-- ARGV: which one, remove when unused for (ms; 0: never), its fields
local letters, ids = KEYS[1], KEYS[2]
if redis.call('HEXISTS', ids, ARGV[1]) == 0 then
  redis.call('HSET', ids, ARGV[1], redis.call('XADD', letters, '*', unpack(ARGV, 3)))
end
if tonumber(ARGV[2]) > 0 then
  redis.call('PEXPIRE', letters, ARGV[2])
  redis.call('PEXPIRE', ids, ARGV[2])
end
return 1
