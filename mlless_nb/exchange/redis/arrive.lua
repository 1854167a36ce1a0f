-- Arrive at a round: check the fence, renew the lease, grant money, count the arrival; the last one wakes the waiters.
-- KEYS  1 job  2 arrivals of the round  3 step log  4 lease  5 claim  6 supervisor's lease  7 wake-up stream
--       8 prefix of the keys of rounds
-- ARGV  1 fence  2 nonce  3 round  4 step  5 slot  6 lease_ms (0: do not renew)  7 ttl_ms  8 report ('': none)
--       9 wanted  10 least wanted  11 known plan version  12 arrivals that complete it  13 others wait (1)
--       14 renew the TTLs (1)  15 steps that arrivals are kept (default 2)
--       16 if not all frames count, but only the first of a quorum: the most steps that a worker may be behind
--       17... then: the publishers
-- Returns the number 2 * arrived + (1: the supervisor is alive) if that is all: it is cheaper than a table.
-- Else {code, that number, granted, plan or ''}, and with a quorum also the slots that count ('': not complete), the
-- next quorum and the newest step that all have read; there, the number of arrivals is that of a complete round or 0.
-- Codes: 1 ok, -1 another fence, which is returned instead of the plan, -2 another invocation, -3 aborted, with status and reason instead of the plan,
-- -4 the round is no longer kept.  One redis.call takes a fifth of the script's time, so what only the last arrival or
-- few steps need is read only then.
local call = redis.call
-- Most values (slots and reports) in one entry of the step log; Lua cannot unpack 8,000.  A step with more workers
-- takes several entries, and all but the last have the field 'more'.
local MOST = 4000
-- As `SHARES` in money/request.py: beyond the least amount, one grant is at most 1/SHARES of what is left.
local SHARES = 16
local job, arrivals, log, lease, claim, supervisor, wake, prefix = unpack(KEYS)
local round, step, slot, ttl = ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[7]
local state = call('HMGET', job, 'fence', 'latest', 'version', 'abort')
if state[1] ~= ARGV[1] then return {-1, 0, 0, state[1] or ''} end
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

-- The completed step becomes an entry of the step log; `fields` are those beside the step, its time and the reports.
local function complete(at, fields, reports)
  local first = 1
  while #reports - first >= MOST do
    call('XADD', log, 'MAXLEN', '~', 10000, '*', 'step', step, 'at', at, 'more', 1,
      unpack(reports, first, first + MOST - 1))
    first = first + MOST
  end
  for i = first, #reports do fields[#fields + 1] = reports[i] end
  call('XADD', log, 'MAXLEN', '~', 10000, '*', 'step', step, 'at', at, unpack(fields))
  local past = prefix .. 'arrivals:' .. string.format('%d', step - (ARGV[15] or 2))
  call('UNLINK', past, past .. 'm', past .. 'r', past .. 'b', past .. 'c')  -- the other kinds exist only at the end
end

local function time()
  local now = call('TIME')
  return now[1] .. '.' .. string.format('%06d', now[2])
end

local due = tonumber(ARGV[12])
local is_new = call('HSETNX', arrivals, slot, ARGV[8])
local arrived, slots, following, oldest = 0, '', '', 1
if ARGV[16] then
  -- Beside the reports, the arrivals have the fields 'order', the slots with their times, and, once the round is
  -- complete, 'slots' and 'next'.  The key 'reached' has, by slot, the step that a worker has reached: it has read the
  -- frames of all earlier steps.
  local at, reached = time(), prefix .. 'reached'
  call('HSET', reached, slot, step)
  oldest = step
  for first = 17, #ARGV, MOST do
    for _, other in ipairs(call('HMGET', reached, unpack(ARGV, first, math.min(first + MOST - 1, #ARGV)))) do
      oldest = math.min(oldest, tonumber(other or 1))
    end
  end
  local known = call('HMGET', arrivals, 'slots', 'next', 'order')
  local order = known[3] or ''
  slots, following = known[1], known[2]
  if not slots and tonumber(call('HGET', job, 'closed') or 0) >= step then
    call('UNLINK', arrivals)
    return {-4, 0, 0, ''}
  end
  if is_new == 1 then
    if order == '' then
      call('PEXPIRE', arrivals, ttl)
      call('PEXPIRE', reached, ttl)
    end
    order = order .. slot .. '@' .. at .. ' '
    call('HSET', arrivals, 'order', order)
    if slots then
      local _, rank = string.gsub(order, '@', '')
      call('XADD', log, 'MAXLEN', '~', 10000, '*', 'late', step, 'rank', rank, 'at', at)
    end
  end
  if not slots then
    local first, times = {}, {}
    for who, when in string.gmatch(order, '(%d+)@(%S+)') do
      times[#times + 1] = when
      if #first < due then first[#first + 1] = who end
    end
    if #first == due and oldest >= step - tonumber(ARGV[16]) then
      slots, following = table.concat(first, ','), call('HGET', job, 'quorum') or 0
      call('HSET', arrivals, 'slots', slots, 'next', following)
      call('HSET', job, 'closed', step)
      local reports, found = {}, call('HMGET', arrivals, unpack(first))
      for i, who in ipairs(first) do
        reports[2 * i - 1], reports[2 * i] = who, found[i]
      end
      complete(at, {'workers', #ARGV - 16, 'times', table.concat(times, ' ')}, reports)
      if ARGV[13] == '1' then call('XADD', wake, 'MAXLEN', '~', 100, '*', 'round', round) end
    end
  end
  if slots then arrived = due else slots, following = '', '' end
else
  arrived = call('HLEN', arrivals)
  if is_new == 1 then
    if arrived == 1 then call('PEXPIRE', arrivals, ttl) end
    if arrived == due then
      if ARGV[8] ~= '' then complete(time(), {}, call('HGETALL', arrivals)) end
      if ARGV[13] == '1' then call('XADD', wake, 'MAXLEN', '~', 100, '*', 'round', round) end
    end
  end
end
-- Last, when the streams exist.  Every worker's first arrival renews the TTLs, so the one that creates them does, too.
if ARGV[14] == '1' then
  for _, key in ipairs({job, claim, log, wake}) do call('PEXPIRE', key, ttl) end
end
local told = 2 * arrived + (holders[2] and 1 or 0)
if version > tonumber(ARGV[11]) then plan = call('HGET', job, 'plan')
elseif granted == 0 and not ARGV[16] then return told end
if ARGV[16] then return {1, told, granted, plan, slots, following, oldest - 1} end
return {1, told, granted, plan}
