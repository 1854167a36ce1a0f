-- Announce a scale-in, the end of the run, a checkpoint or a hand-over for a step that no worker has reached, or the quorum of the
-- rounds to come.
-- Or hand a slot over that the caller holds.
-- Returns the plan.
-- KEYS  1 job  2 claim and 3 lease of a slot that is handed over
-- ARGV  1 generation  2 'leave', 'stop', 'checkpoint', 'hand_over', 'handed_over' or 'quorum'
--       3... slots, for 'leave' after the id of a user's command, or status and reason, or the quorum, or nonce, slot and step
local job = KEYS[1]
local state = redis.call('HMGET', job, 'generation', 'latest', 'plan')
if state[1] ~= ARGV[1] then return '' end
if ARGV[2] == 'quorum' then
  redis.call('HSET', job, 'quorum', ARGV[3])
  return state[3]
end
local latest, plan = tonumber(state[2]), cjson.decode(state[3])
if ARGV[2] == 'leave' then
  local leaves, asked, slots, changed = plan.leaves or {}, plan.asked or {}, {}, false
  if asked[ARGV[3]] then return state[3] end
  for i = 4, #ARGV do
    slots[#slots + 1] = tonumber(ARGV[i])
    if not leaves[ARGV[i]] then
      leaves[ARGV[i]] = latest + 2
      changed = true
    end
  end
  if ARGV[3] ~= '' then
    asked[ARGV[3]] = slots
    plan.asked, changed = asked, true
  end
  if not changed then return state[3] end
  plan.leaves = leaves
elseif ARGV[2] == 'checkpoint' then
  -- One for the newest step stays, too: some workers know of it, and the others must learn of it. One that lies further
  -- ahead than the next is from before a restart.
  if plan.checkpoint and plan.checkpoint >= latest and plan.checkpoint <= latest + 1 then return state[3] end
  plan.checkpoint = latest + 1
elseif ARGV[2] == 'hand_over' then
  local hand_overs, changed, step = plan.hand_overs or {}, false, latest + 1
  for i = 3, #ARGV do
    if (hand_overs[ARGV[i]] or -1) < latest then
      hand_overs[ARGV[i]] = step
      changed = true
    end
  end
  if not changed then return state[3] end
  plan.checkpoint, plan.hand_overs = step, hand_overs
elseif ARGV[2] == 'handed_over' then
  if redis.call('GET', KEYS[2]) ~= ARGV[3] then return state[3] end
  local handed_over = plan.handed_over or {}
  handed_over[ARGV[4]] = tonumber(ARGV[5])
  plan.handed_over = handed_over
  redis.call('HDEL', job, 'refunded:' .. ARGV[4], 'start:' .. KEYS[2])
  redis.call('UNLINK', KEYS[2], KEYS[3])
else
  if plan.stop_after ~= nil then return state[3] end
  plan.stop_after, plan.stop_status, plan.stop_reason = latest + 1, ARGV[3], ARGV[4]
end
plan.version = plan.version + 1
local text = cjson.encode(plan)
redis.call('HSET', job, 'version', plan.version, 'plan', text)
return text
