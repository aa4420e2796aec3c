-- Raises the fence to a token, if the fence is lower, the epoch is the one of the grant, and the lock is still this owner's.
--   KEYS: lock, memory   ARGV: id, token, epoch, the fence's name
if redis.call('ZSCORE', KEYS[2], 'epoch') ~= ARGV[3] then return 0 end
local mark, fence = redis.pcall('GET', KEYS[1]), ARGV[4] .. ':' .. ARGV[3]
if type(mark) ~= 'string' then return 0 end
local owner, record = string.match(mark, '^(%x+ redlock:%S+) %d+ (.*)$')
if not owner or string.match(owner, '^%x+') ~= ARGV[1] then return 0 end
if tonumber(ARGV[2]) <= tonumber(redis.call('ZSCORE', KEYS[2], fence)) then return 0 end
redis.call('ZADD', KEYS[2], ARGV[2], fence)
redis.call('SET', KEYS[1], owner .. ' ' .. ARGV[2] .. ' ' .. record, 'KEEPTTL')
return 1
