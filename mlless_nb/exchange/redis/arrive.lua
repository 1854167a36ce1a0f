-- Arrive at a round: check the fence, renew the lease, grant money, count the arrival; the last one wakes the waiters.
-- KEYS  1 job  2 arrivals of the round  3 step log  4 lease  5 claim  6 supervisor's lease  7 wake-up stream  8 prefix
-- ARGV  1 generation  2 nonce  3 round  4 step  5 slot  6 lease_ms (0: do not renew)  7 ttl_ms  8 report ('': none)
--       9 wanted  10 least wanted  11 known plan version  12 arrivals that complete it  13 others wait (1)
--       14 renew the TTLs (1)  15 steps that arrivals are kept (default 2)  16 it is a quorum: not all frames count (1)
-- Returns the number 2 * arrived + (1: the supervisor is alive) if that is all: it is cheaper than a table.
-- Else {code, that number, granted, plan or '', slots that count or ''}.  Codes: 1 ok, -1 another generation,
-- -2 another invocation, -3 aborted, with status and reason instead of the plan.  One redis.call takes a fifth of the
-- script's time, so what only the last arrival or few steps need is read only then.
local call = redis.call
-- Most values (slots and reports) in one entry of the step log; Lua cannot unpack 8,000.  A step with more workers
-- takes several entries, and all but the last have the field 'more'.
local MOST = 4000
-- As `SHARES` in money/request.py: beyond the least amount, one grant is at most 1/SHARES of what is left.
local SHARES = 16
local job, arrivals, log, lease, claim, supervisor, wake, prefix = unpack(KEYS)
local round, step, slot, ttl = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[7]
local state = call('HMGET', job, 'generation', 'latest', 'version', 'abort')
if state[1] ~= ARGV[1] then return {-1, 0, 0, ''} end
local holders = call('MGET', claim, supervisor)
if holders[1] ~= ARGV[2] then return {-2, 0, 0, ''} end
if state[4] then return {-3, 0, 0, state[4]} end
if ARGV[6] ~= '0' then call('SET', lease, ARGV[2], 'PX', ARGV[6]) end

local latest, version, plan = tonumber(state[2]), tonumber(state[3]), ''
if step > latest then
  latest = step
  call('HSET', job, 'latest', step)
end

-- A grant is stored with its round, so that a repeated call gets the same money only once.
local granted, wanted, least = 0, tonumber(ARGV[9]), tonumber(ARGV[10])
if wanted > 0 then
  local money = call('HMGET', job, 'cap', 'reserved', 'grant:' .. slot)
  if money[3] and string.find(money[3], '^' .. round .. ' ') then
    granted = tonumber(string.match(money[3], ' (%d+)$'))
  else
    local cap, reserved = tonumber(money[1]), tonumber(money[2])
    local room = cap - reserved
    if cap < 0 then granted = wanted
    elseif room >= least then granted = least + math.min(wanted - least, math.floor((room - least) / SHARES)) end
    call('HSET', job, 'grant:' .. slot, round .. ' ' .. string.format('%d', granted))
    if granted > 0 then call('HINCRBY', job, 'reserved', string.format('%d', granted)) end
  end
  if granted == 0 then
    local known = cjson.decode(call('HGET', job, 'plan'))
    if known.stop_after == nil then
      version = version + 1
      known.version = version
      known.stop_after = latest + 1
      known.stop_status = 'capped'
      known.stop_reason = 'the budget does not pay for another step'
      call('HSET', job, 'version', version, 'plan', cjson.encode(known))
    end
  end
end

-- If a round is complete before all have arrived, the field 'slots' of the arrivals lists the slots whose frames count.
local due = tonumber(ARGV[12])
local is_new, arrived = call('HSETNX', arrivals, slot, ARGV[8]), call('HLEN', arrivals)
if is_new == 1 then
  if arrived == 1 then call('PEXPIRE', arrivals, ttl) end
  if arrived == due then
    local slots = ARGV[16] and table.concat(call('HKEYS', arrivals), ',') or ''
    if ARGV[8] ~= '' then
      local now, reports, first = call('TIME'), call('HGETALL', arrivals), 1
      local at = now[1] .. '.' .. string.format('%06d', now[2])
      while #reports - first >= MOST do
        call('XADD', log, 'MAXLEN', '~', 10000, '*', 'step', step, 'at', at, 'more', 1,
          unpack(reports, first, first + MOST - 1))
        first = first + MOST
      end
      call('XADD', log, 'MAXLEN', '~', 10000, '*', 'step', step, 'at', at, unpack(reports, first))
      local past = prefix .. 'arrivals:' .. string.format('%d', step - (ARGV[15] or 2))
      call('UNLINK', past, past .. 'm', past .. 'r', past .. 'b', past .. 'c')  -- the other kinds exist only at the end
    end
    if ARGV[16] then call('HSET', arrivals, 'slots', slots) end
    if ARGV[13] == '1' then
      call('XADD', wake, 'MAXLEN', '~', 100, '*', 'round', round)
    end
  end
end
-- Last, when the streams exist.  Every worker's first arrival renews the TTLs, so the one that creates them does, too.
if ARGV[14] == '1' then
  for _, key in ipairs({job, claim, log, wake}) do call('PEXPIRE', key, ttl) end
end
local told = 2 * arrived + (holders[2] and 1 or 0)
local slots = ''
if ARGV[16] and arrived >= due then slots = call('HGET', arrivals, 'slots') end
if version > tonumber(ARGV[11]) then plan = call('HGET', job, 'plan')
elseif granted == 0 and slots == '' then return told end
return {1, told, granted, plan, slots}
