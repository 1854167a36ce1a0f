-- Let all workers go on from a checkpoint: fence the rounds so far, free the slots of replaced functions, wake everybody.
-- Returns {code, fence}.  Codes: 1 done, 0 there was another restart before, -1 the job's data is gone, -3 the run was
-- aborted, with status and reason instead of the fence.
-- KEYS  1 job  2 wake-up stream  3... claims and leases of the replaced functions
-- ARGV  1 generation  2 number of the newest restart that is known  3 step of the checkpoint
--       4 number of the restart after which it was stored  5 ttl_ms  6 workers  7... replaced slots
local call, job = redis.call, KEYS[1]
local state = call('HMGET', job, 'generation', 'fence', 'abort')
if state[1] ~= ARGV[1] then return {-1, ''} end
if state[3] then return {-3, state[3]} end
local number = tonumber(string.match(state[2], ' (%d+) %d+ %d+$'))
if number ~= tonumber(ARGV[2]) then return {0, state[2]} end
-- The functions of hand-overs to come are among the workers that go on, or are replaced.
local plan = cjson.decode(call('HGET', job, 'plan'))
if plan.hand_overs ~= nil or plan.handed_over ~= nil then
  plan.hand_overs, plan.handed_over, plan.version = nil, nil, plan.version + 1
  call('HSET', job, 'version', plan.version, 'plan', cjson.encode(plan))
end
local fence = ARGV[1] .. ' ' .. string.format('%d', number + 1) .. ' ' .. ARGV[3] .. ' ' .. ARGV[4]
call('HSET', job, 'fence', fence, 'latest', ARGV[3], 'closed', ARGV[3])
-- Grants are kept by round, and the rounds come again.
for slot = 0, tonumber(ARGV[6]) - 1 do call('HDEL', job, 'grant:' .. slot) end
for i = 7, #ARGV do call('HDEL', job, 'refunded:' .. ARGV[i]) end
for i = 3, #KEYS do
  call('HDEL', job, 'start:' .. KEYS[i])
  call('UNLINK', KEYS[i])
end
-- Rounds of the same names were complete before.
call('UNLINK', KEYS[2])
call('XADD', KEYS[2], 'MAXLEN', '~', 100, '*', 'round', 'abort')
call('PEXPIRE', KEYS[2], ARGV[5])
return {1, fence}
