-- Gives messages of a queue to a receiver: what was put off and is due, what another has left beyond its lease, what is new.
-- KEYS: queue, later, uncounted, active
-- ARGV: group, consumer, most messages, their bytes, lease (ms), look for leases that have run out (0, 1),
--       keep to one receiver (0, 1), remove when unused for (ms; 0: never), then what this consumer was given without
--       hearing of it: whether that is not all (0, 1), ids
local queue, later, uncounted, active = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local group, consumer = ARGV[1], ARGV[2]
local most, bytes_max, lease = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local looks, alone, unused = ARGV[6] == '1', ARGV[7] == '1', tonumber(ARGV[8])
-- Who holds what was put off. It never asks for anything.
local PARKED = 'later'
-- A receiver that has nothing and has not asked for so long is gone.
local GONE = 3600000
-- Messages that are read at a time, so that their bytes can be counted in between: one at first, and twice as many each time, since nobody
-- knows how large they are before they are read.
local STEP = 32
-- So often at most: what is not due yet is put off by the way, and gives nothing.
local STEPS = 64

if redis.call('EXISTS', queue) == 0 then return redis.error_reply('NOGROUP the queue was removed') end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Another may have been the one who receives: what it has left comes before what is new, however many calls that takes.
local taking_over = consumer .. ' takes over'
local takes_over = false
if alone then
  local holder = redis.call('GET', active)
  if holder and holder ~= consumer and holder ~= taking_over then
    return {{}, {}, -1, '', math.max(redis.call('PTTL', active), 1), 0}
  end
  if holder == consumer then
    redis.call('PEXPIRE', active, lease)
  else
    -- Deleted first: a script that has written goes on where memory is full, or nothing would ever make room.
    redis.call('DEL', active)
    redis.call('SET', active, taking_over, 'PX', lease)
    takes_over, looks = true, true
  end
end

local again, fresh, bytes = {}, {}, 0

-- The body is the last field of what hapax sends.
local function count(entry)
  local fields = entry[2]
  bytes = bytes + #fields[#fields]
end

local function claim(id)
  local pending = redis.call('XPENDING', queue, group, id, id, 1)[1]
  local entry = pending and redis.call('XCLAIM', queue, group, consumer, 0, id)[1]
  if entry then
    count(entry)
    again[#again + 1] = {entry, pending[4] + 1, tonumber(redis.call('HGET', uncounted, id) or 0)}
  end
end

local function has_room()
  return #again < most and bytes < bytes_max
end

local is_left = ARGV[9] == '1'
for at = 10, #ARGV do
  local id = ARGV[at]
  local pending = redis.call('XPENDING', queue, group, id, id, 1)[1]
  if pending and pending[2] == consumer then
    if not has_room() then is_left = true break end
    local before = #again
    claim(id)
    if #again > before then
      -- No handler has seen it. After the claim: a script that has written goes on where memory is full.
      redis.call('HINCRBY', uncounted, id, 1)
      again[#again][3] = again[#again][3] + 1
    end
  end
end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', later, '-inf', now, 'LIMIT', 0, most)) do
  if not has_room() then break end
  redis.call('ZREM', later, id)
  claim(id)
end

if looks then
  for _, known in ipairs(redis.call('XINFO', 'CONSUMERS', queue, group)) do
    local name, has, idle = known[2], known[4], known[6]
    if name ~= PARKED and has > 0 then
      for _, pending in ipairs(redis.call('XPENDING', queue, group, 'IDLE', lease, '-', '+', most, name)) do
        if not has_room() then is_left = true break end
        claim(pending[1])
      end
    elseif name ~= PARKED and name ~= consumer and idle > GONE then
      redis.call('XGROUP', 'DELCONSUMER', queue, group, name)
    end
  end
end

if takes_over and has_room() then redis.call('SET', active, consumer, 'PX', lease) end

-- What is left has to come before what is new, where there is an order.
local left, steps, step = (alone and is_left) and 0 or most - #again, 0, 1
while left > 0 and bytes < bytes_max and steps < STEPS do
  steps = steps + 1
  local wanted = math.min(left, step)
  step = math.min(step * 2, STEP)
  local read = redis.call('XREADGROUP', 'GROUP', group, consumer, 'COUNT', wanted, 'STREAMS', queue, '>')
  if not read then break end
  local entries = read[1][2]
  for _, entry in ipairs(entries) do
    local id, fields = entry[1], entry[2]
    local due = fields[1] == 'x-hapax-due' and tonumber(fields[2]) or 0
    if due > now then
      redis.call('ZADD', later, due, id)
      -- It was given to nobody, so it is not counted.
      redis.call('XCLAIM', queue, group, PARKED, 0, id, 'RETRYCOUNT', 0, 'JUSTID')
    else
      fresh[#fresh + 1] = entry
      left = left - 1
      count(entry)
    end
  end
  if #entries < wanted then break end
end

if unused > 0 then
  for _, key in ipairs({queue, later, uncounted}) do redis.call('PEXPIRE', key, unused) end
end

local first = redis.call('ZRANGE', later, 0, 0, 'WITHSCORES')
local due = first[2] and math.max(first[2] - now, 0) or -1
local last = ''
if #again + #fresh == 0 and steps < STEPS then
  local stream = redis.call('XINFO', 'STREAM', queue)
  for at = 1, #stream, 2 do
    if stream[at] == 'last-generated-id' then last = stream[at + 1] end
  end
end
return {again, fresh, due, last, 0, (is_left or steps == STEPS) and 1 or 0}
