-- Reserve money if the cap allows it, return some, or set the cap.  Returns the amount reserved, or 1 when done, 0 when
-- refused, -1 when the job is deleted.
-- KEYS  1 job  2 the answer to this request (reserve, start)  3... claims (start)
-- ARGV  1 the operation, and then
--       reserve  2 milliseconds that the answer is kept  3 nano-dollars  4 the least amount  5 shares
--       start    2 milliseconds that the answer is kept  3... nano-dollars, one amount for each claim
--       refund   2 nano-dollars  3 slot and part
--       cap      2 nano-dollars
-- Every request is safe to repeat: a refund counts once for a slot and part, and the answer to a request is kept under
-- its id, so that a repeated request reserves nothing and gets the same answer.
local what, state = ARGV[1], redis.call('HMGET', KEYS[1], 'cap', 'reserved')
if not state[1] then return -1 end
local cap, reserved = tonumber(state[1]), tonumber(state[2])
if what == 'cap' then
  local amount = tonumber(ARGV[2])
  if amount >= 0 and amount < reserved then return 0 end
  redis.call('HSET', KEYS[1], 'cap', ARGV[2])
  return 1
end
if what == 'refund' then
  if redis.call('HSETNX', KEYS[1], 'refunded:' .. ARGV[3], ARGV[2]) == 1 then
    redis.call('HINCRBY', KEYS[1], 'reserved', string.format('%d', -tonumber(ARGV[2])))
  end
  return 1
end

local answered = redis.call('GET', KEYS[2])
if answered then return tonumber(answered) end
local taken, answer = 0, 0
if what == 'start' then
  -- For functions that have not claimed their slots; the others reserve money themselves.
  local waiting = {}
  for i = 3, #KEYS do
    if redis.call('EXISTS', KEYS[i]) == 0 then
      waiting[#waiting + 1] = i
      taken = taken + tonumber(ARGV[i])
    end
  end
  if cap < 0 or reserved + taken <= cap then
    for _, i in ipairs(waiting) do redis.call('HINCRBY', KEYS[1], 'start:' .. KEYS[i], ARGV[i]) end
    answer = 1
  else
    taken = 0
  end
else
  -- Beyond the least amount, at most 1/shares of what is left.
  local wanted, least, room = tonumber(ARGV[3]), tonumber(ARGV[4]), cap - reserved
  if cap < 0 then
    taken = wanted
  elseif room >= least then
    taken = least + math.min(wanted - least, math.floor((room - least) / tonumber(ARGV[5])))
  end
  answer = taken
end
if taken ~= 0 then redis.call('HINCRBY', KEYS[1], 'reserved', string.format('%d', taken)) end
redis.call('SET', KEYS[2], string.format('%d', answer), 'PX', ARGV[2])
return answer
