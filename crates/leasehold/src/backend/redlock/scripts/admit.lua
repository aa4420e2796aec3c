-- Lets this server take part, if it remembers nothing and has not forgotten once more since it got that mark.
--   KEYS: memory   ARGV: mark, floor, longest, epoch, the server's run id, how many fences it has
local memory = redis.call('ZMSCORE', KEYS[1], 'epoch', 'blank:' .. ARGV[1])
if memory[1] or not memory[2] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZADD', KEYS[1], ARGV[4], 'epoch', ARGV[3], 'longest', 0, 'run:' .. ARGV[5])
for nth = 0, ARGV[6] - 1 do redis.call('ZADD', KEYS[1], ARGV[2], 'f' .. nth .. ':' .. ARGV[4]) end
return 1
