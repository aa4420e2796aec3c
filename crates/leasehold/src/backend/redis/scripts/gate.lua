-- The resource's side of fencing, for data that lives on this server.
--   KEYS: where the highest token seen is kept, then the keys that the write needs
--   ARGV: the token; how long to remember it in ms after this, or 0 for ever
-- Answers 1 and remembers the token, or 0 if a higher one has been seen. Call it in the script that writes.
local highest = tonumber(redis.call('GET', KEYS[1]) or 0)
if tonumber(ARGV[1]) < highest then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
if tonumber(ARGV[2]) > 0 then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 1
