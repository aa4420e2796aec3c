-- Gives a lock up, whosever and of whatever kind it is, and tells those who wait for it.
--   KEYS: lock, sharers, notes, left
--   ARGV: id, ms for which the owner is refused from now on (or 0), 1 if it was held, the channel of whoever asks, the
--         channel on which releases of this key are told
local s, id, now_ms = keys_at(1, KEYS), ARGV[1], clock_ms()
if ARGV[2] ~= '0' then redis.call('SET', KEYS[4], '', 'PX', ARGV[2]) end
local mark, in_the_way = settled(s, now_ms)
if in_the_way or not mark then return 0 end
local owner, channel = owner_of(mark)
if owner == id then
  redis.call('DEL', s.lock)
elseif mark == SHARED then
  local record = redis.call('HGET', s.notes, id)
  if redis.call('ZREM', s.sharers, id) == 0 then return 0 end
  channel = string.match(record or '', '^%S+')
  redis.call('HDEL', s.notes, id, 'y' .. id)
  if redis.call('EXISTS', s.sharers) == 0 then redis.call('DEL', s.lock, s.notes) end
elseif not owner and id_of_foreign(mark) == id then
  redis.call('DEL', s.lock)
else
  return 0
end
-- Whoever has lost it is told, unless it is the one who asks.
if channel and channel ~= ARGV[4] then redis.call('PUBLISH', channel, 'x ' .. id) end
if ARGV[3] == '1' then redis.call('PUBLISH', ARGV[5], id) end
return 1
