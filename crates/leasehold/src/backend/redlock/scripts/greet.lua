-- A server that was restarted may have come back with an old copy of its memory, which is worse than none: then it forgets.
-- Done by every client whenever it connects, before it asks for anything.
--   KEYS: memory   ARGV: the server's run id, 1 if it loses nothing by a restart
local memory = redis.call('HMGET', KEYS[1], 'epoch', 'run')
if not memory[1] or memory[2] == ARGV[1] then return 0 end
if ARGV[2] == '1' then
  redis.call('HSET', KEYS[1], 'run', ARGV[1])
  return 0
end
redis.call('HDEL', KEYS[1], 'epoch', 'run', 'blank')
return 1
