-- Arrive at a round: fence, renew the lease, grant money, count the arrival, wake the others when it is the last.
-- KEYS  1 job  2 arrivals of the round  3 step log  4 lease  5 claim  6 supervisor's lease  7 prefix
-- ARGV  1 generation  2 nonce  3 round  4 step  5 slot  6 lease_ms  7 ttl_ms  8 report ('' = not logged)
--       9 wanted  10 least wanted  11 known plan version  12 publishers  13... waiters
-- Returns {code, arrived, granted, supervisor alive, plan or ''}; code 1 ok, -1 another generation, -2 another invocation
local job, arrivals, log, lease, claim, supervisor, prefix = unpack(KEYS)
local round, step, slot, ttl = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[7]
local state = redis.call('HMGET', job, 'generation', 'cap', 'reserved', 'latest', 'version', 'plan')
if state[1] ~= ARGV[1] then return {-1, 0, 0, 0, ''} end
if redis.call('GET', claim) ~= ARGV[2] then return {-2, 0, 0, 0, ''} end
redis.call('SET', lease, ARGV[2], 'PX', ARGV[6])
redis.call('PEXPIRE', job, ttl)
redis.call('PEXPIRE', claim, ttl)

local latest = tonumber(state[4])
if step > latest then
  latest = step
  redis.call('HSET', job, 'latest', step)
end

-- A grant is remembered by round, so that a repeated call is given the same money once.
local granted, wanted, least = 0, tonumber(ARGV[9]), tonumber(ARGV[10])
if wanted > 0 then
  local before = redis.call('HGET', job, 'grant:' .. slot)
  if before and string.find(before, '^' .. round .. ' ') then
    granted = tonumber(string.match(before, ' (%d+)$'))
  else
    local cap, reserved = tonumber(state[2]), tonumber(state[3])
    if cap < 0 or reserved + wanted <= cap then granted = wanted
    elseif least > 0 and reserved + least <= cap then granted = least end
    redis.call('HSET', job, 'grant:' .. slot, round .. ' ' .. string.format('%d', granted))
    if granted > 0 then redis.call('HINCRBY', job, 'reserved', string.format('%d', granted)) end
  end
  if granted == 0 then
    local plan = cjson.decode(state[6])
    if plan.stop_after == nil then
      plan.version = plan.version + 1
      plan.stop_after = latest + 1
      plan.stop_status = 'capped'
      plan.stop_reason = 'the budget does not pay for another step'
      state[5], state[6] = tostring(plan.version), cjson.encode(plan)
      redis.call('HSET', job, 'version', plan.version, 'plan', state[6])
    end
  end
end

local is_new = redis.call('HSETNX', arrivals, slot, ARGV[8])
if is_new == 1 then redis.call('PEXPIRE', arrivals, ttl) end
local arrived = redis.call('HLEN', arrivals)
if is_new == 1 and arrived == tonumber(ARGV[12]) then
  if ARGV[8] ~= '' then
    local now = redis.call('TIME')
    redis.call('XADD', log, 'MAXLEN', '~', 10000, '*', 'step', step, 'at', now[1] .. '.' .. string.format('%06d', now[2]),
      unpack(redis.call('HGETALL', arrivals)))
    redis.call('PEXPIRE', log, ttl)
    redis.call('UNLINK', prefix .. 'arrivals:' .. string.format('%d', step - 3))
  end
  -- The last to arrive is woken too: it may have sent its wait along already.
  for i = 13, #ARGV do
    redis.call('RPUSH', prefix .. 'wake:' .. ARGV[i], round)
    redis.call('PEXPIRE', prefix .. 'wake:' .. ARGV[i], ttl)
  end
end
local plan = ''
if tonumber(state[5]) > tonumber(ARGV[11]) then plan = state[6] end
return {1, arrived, granted, redis.call('EXISTS', supervisor), plan}
