-- Asks an owner to let go, and keeps the wish for as long as its lease.   KEYS: lock, sharers, notes   ARGV: id
local s, id, now_ms = keys_at(1, KEYS), ARGV[1], clock_ms()
local mark, in_the_way = settled(s, now_ms)
if in_the_way or not mark then return 0 end
local owner, channel = owner_of(mark)
if owner ~= id then
  if mark ~= SHARED or not redis.call('ZSCORE', s.sharers, id) then return 0 end
  channel = string.match(redis.call('HGET', s.notes, id) or '', '^%S+')
end
redis.call('HSET', s.notes, 'y' .. id, 1)
prolong(s.notes, redis.call('PTTL', s.lock))
if channel then redis.call('PUBLISH', channel, 'y ' .. id) end
return 1
