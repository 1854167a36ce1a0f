-- For a worker that was late: note the step that it has reached, and return the complete rounds from there on.
-- KEYS  1 job  2 steps that workers have reached  3 claim  4 supervisor's lease  5 prefix of the keys of rounds
-- ARGV  1 fence  2 nonce  3 step  4 slot  5 ttl_ms  6 known plan version  7 most rounds
-- Returns {code, 1 if the supervisor is alive, plan or '', and for each round the slots that count and the next quorum}.
-- Codes: as of arrive.lua.
local call, step = redis.call, tonumber(ARGV[3])
local state = call('HMGET', KEYS[1], 'fence', 'abort', 'closed', 'version')
if state[1] ~= ARGV[1] then return {-1, 0, state[1] or ''} end
if call('GET', KEYS[3]) ~= ARGV[2] then return {-2, 0, ''} end
if state[2] then return {-3, 0, state[2]} end
call('HSET', KEYS[2], ARGV[4], step)
call('PEXPIRE', KEYS[2], ARGV[5])
local plan = tonumber(state[4]) > tonumber(ARGV[6]) and call('HGET', KEYS[1], 'plan') or ''
local reply, closed = {1, call('EXISTS', KEYS[4]), plan}, tonumber(state[3] or 0)
for at = step, math.min(closed, step + tonumber(ARGV[7]) - 1) do
  local round = call('HMGET', KEYS[5] .. 'arrivals:' .. string.format('%d', at), 'slots', 'next')
  if not round[1] then return {-4, 0, ''} end
  reply[#reply + 1] = round[1]
  reply[#reply + 1] = round[2]
end
return reply
