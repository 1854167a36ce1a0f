-- Take money out of the budget if the cap allows it, give some back, or set the cap.  Returns 1 when done, 0 when refused, -1 when the job is gone.
-- KEYS  1 job     ARGV  1 'reserve', 'refund' or 'cap'  2 nano-dollars  3 slot (refund; once only)
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
if cap >= 0 and reserved + amount > cap then return 0 end
redis.call('HINCRBY', KEYS[1], 'reserved', ARGV[2])
return 1
