-- Gives a lock up that was held alone, and tells those who wait for it.
--   KEYS: lock   ARGV: id, the channel on which releases of this key are told
local mark = redis.pcall('GET', KEYS[1])
if type(mark) ~= 'string' or string.sub(mark, 1, 32) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', ARGV[2], ARGV[1])
return 1
