-- Call the run off and wake every worker.  Does nothing when the job is gone: a key made now would outlive it.
-- KEYS  1 job  2 wake-up calls     ARGV  1 status and reason  2 ttl_ms
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSETNX', KEYS[1], 'abort', ARGV[1])
redis.call('XADD', KEYS[2], 'MAXLEN', '~', 100, '*', 'round', 'abort')
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
