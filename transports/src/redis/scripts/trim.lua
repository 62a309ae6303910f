-- Removes what was acknowledged and left: by consumers that are not hapax, whose XACK removes nothing from a stream. Nothing
-- that is with somebody, put off or not given yet.
-- KEYS: queue
-- ARGV: group
local queue, group = KEYS[1], ARGV[1]
local groups = redis.call('XINFO', 'GROUPS', queue)
-- Another group has its own view of what is done.
if #groups ~= 1 or groups[1][2] ~= group then return 0 end

local function parts(id)
  local milliseconds, number = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(milliseconds), tonumber(number)
end

local given
for at = 1, #groups[1], 2 do
  if groups[1][at] == 'last-delivered-id' then given = groups[1][at + 1] end
end
local milliseconds, number = parts(given)
-- Beyond it numbers are not exact here.
if number >= 2 ^ 53 - 1 then return 0 end
number = number + 1
local oldest = redis.call('XPENDING', queue, group)[2]
if oldest then
  local its_milliseconds, its_number = parts(oldest)
  if its_milliseconds < milliseconds or (its_milliseconds == milliseconds and its_number < number) then
    milliseconds, number = its_milliseconds, its_number
  end
end
return redis.call('XTRIM', queue, 'MINID', string.format('%.0f-%.0f', milliseconds, number))
