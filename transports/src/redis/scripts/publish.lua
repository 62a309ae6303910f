-- Sends a message to every endpoint that subscribes to a topic.
-- KEYS: topic
-- ARGV: what the names of queues begin with, the message's fields
local sent = 0
for _, endpoint in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  if redis.call('XADD', ARGV[1] .. endpoint, 'NOMKSTREAM', '*', unpack(ARGV, 2)) then
    sent = sent + 1
  else
    -- Its queue was removed. It subscribes again when it declares it again.
    redis.call('SREM', KEYS[1], endpoint)
  end
end
return sent
