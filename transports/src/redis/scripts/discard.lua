-- Removes dead letters. How many were there.
-- KEYS: letters, letter ids
-- ARGV: which ones
local letters, ids = KEYS[1], KEYS[2]
local discarded = 0
for _, which in ipairs(ARGV) do
  local id = redis.call('HGET', ids, which)
  if id then
    redis.call('HDEL', ids, which)
    discarded = discarded + redis.call('XDEL', letters, id)
  end
end
return discarded
