-- Lets this server take part, if it remembers nothing and has not forgotten once more since it got that mark.
--   KEYS: memory   ARGV: mark, floor, longest, epoch, the server's run id
if redis.call('HEXISTS', KEYS[1], 'epoch') == 1 then return 0 end
if redis.call('HGET', KEYS[1], 'blank') ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], 'blank')
redis.call('HSET', KEYS[1], 'floor', ARGV[2], 'longest', ARGV[3], 'epoch', ARGV[4], 'run', ARGV[5])
return 1
