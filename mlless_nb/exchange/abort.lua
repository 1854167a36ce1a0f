-- Call the run off and wake every worker.  Does nothing when the job is gone: a key made now would outlive it.
-- KEYS  1 job  2 prefix     ARGV  1 status and reason  2 number of workers  3 ttl_ms
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSETNX', KEYS[1], 'abort', ARGV[1])
for slot = 0, tonumber(ARGV[2]) - 1 do
  redis.call('RPUSH', KEYS[2] .. 'wake:' .. slot, 'abort')
  redis.call('PEXPIRE', KEYS[2] .. 'wake:' .. slot, ARGV[3])
end
return 1
