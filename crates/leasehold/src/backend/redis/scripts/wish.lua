-- Keeps the wish that an entry let go, and tells whoever has it.   ARGV: id
local s, id = keys_at(1), ARGV[1]
if not settled(s) then return 0 end
settle(s)
local record = redis.call('HGET', s.line, id)
if not record or not (s.holder == id or redis.call('ZSCORE', s.leases, id)) then return 0 end
redis.call('HSET', s.line, 'y' .. id, 1)
redis.call('PUBLISH', entry_of(record).channel, 'y ' .. id)
return 1
