-- Raises the fence to a token, if the fence is lower, the epoch is the one of the grant, and the lock is still this owner's.
--   KEYS: lock, memory   ARGV: id, token, epoch, the fence's field
local memory = redis.call('HMGET', KEYS[2], 'epoch', 'floor', ARGV[4])
if memory[1] ~= ARGV[3] then return 0 end
local mark = redis.pcall('GET', KEYS[1])
if type(mark) ~= 'string' then return 0 end
local owner, record = string.match(mark, '^(%x+ redlock:%S+) %d+ (.*)$')
if not owner or string.match(owner, '^%x+') ~= ARGV[1] then return 0 end
if tonumber(ARGV[2]) <= math.max(tonumber(memory[2]), tonumber(memory[3] or 0)) then return 0 end
redis.call('HSET', KEYS[2], ARGV[4], ARGV[2])
redis.call('SET', KEYS[1], owner .. ' ' .. ARGV[2] .. ' ' .. record, 'KEEPTTL')
return 1
