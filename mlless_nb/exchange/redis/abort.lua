-- Abort the run and wake every worker.  Does nothing if the job is deleted: a key made now would never be deleted.
-- KEYS  1 job  2 wake-up stream     ARGV  1 status and reason  2 ttl_ms
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSETNX', KEYS[1], 'abort', ARGV[1])
redis.call('XADD', KEYS[2], 'MAXLEN', '~', 100, '*', 'round', 'abort')
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 1
