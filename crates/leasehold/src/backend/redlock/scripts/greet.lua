-- A server that was restarted may have come back with an old copy of its memory, which is worse than none: then it forgets.
-- Done by every client whenever it connects, before it asks for anything. Answers with the epoch and the longest lease, if any.
--   KEYS: memory   ARGV: the server's run id, 1 if it loses nothing by a restart
local memory, run = redis.call('ZMSCORE', KEYS[1], 'epoch', 'longest', 'run:' .. ARGV[1]), 'run:' .. ARGV[1]
if not memory[1] then return {} end
if not memory[3] then
  if ARGV[2] ~= '1' then
    redis.call('DEL', KEYS[1])
    return {}
  end
  for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    if string.sub(member, 1, 4) == 'run:' then redis.call('ZREM', KEYS[1], member) end
  end
  redis.call('ZADD', KEYS[1], 0, run)
end
return { memory[1], memory[2] }
