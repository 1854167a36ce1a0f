-- Take money out of the budget if the cap allows it, give some back, or set the cap.  Returns what was taken, or 1 when
-- done, 0 when refused, -1 when the job is gone.
-- KEYS  1 job  2... claims (start)
-- ARGV  1 'reserve', 'start', 'refund' or 'cap'  2 nano-dollars (start: 2... one for each claim)
--       3 the least of it (reserve), slot (refund; once only)  4 shares (reserve)
local state = redis.call('HMGET', KEYS[1], 'cap', 'reserved')
if not state[1] then return -1 end
local cap, reserved, amount = tonumber(state[1]), tonumber(state[2]), tonumber(ARGV[2])
if ARGV[1] == 'cap' then
  if amount >= 0 and amount < reserved then return 0 end
  redis.call('HSET', KEYS[1], 'cap', ARGV[2])
  return 1
end
if ARGV[1] == 'refund' then
  if redis.call('HSETNX', KEYS[1], 'refunded:' .. ARGV[3], ARGV[2]) == 1 then
    redis.call('HINCRBY', KEYS[1], 'reserved', string.format('%d', -amount))
  end
  return 1
end
if ARGV[1] == 'start' then
  -- For functions that have not claimed their slots: who has buys for itself.
  local waiting, total = {}, 0
  for i = 2, #KEYS do
    if redis.call('EXISTS', KEYS[i]) == 0 then
      waiting[#waiting + 1] = i
      total = total + tonumber(ARGV[i])
    end
  end
  if cap >= 0 and reserved + total > cap then return 0 end
  for _, i in ipairs(waiting) do redis.call('HINCRBY', KEYS[1], 'start:' .. KEYS[i], ARGV[i]) end
  redis.call('HINCRBY', KEYS[1], 'reserved', string.format('%d', total))
  return 1
end
-- Beyond the least of it no more than a share of what is left.
local least = tonumber(ARGV[3])
if cap >= 0 then
  local room = cap - reserved
  if room < least then return 0 end
  amount = least + math.min(amount - least, math.floor((room - least) / tonumber(ARGV[4])))
end
redis.call('HINCRBY', KEYS[1], 'reserved', string.format('%d', amount))
return amount
