-- Keeps the wish that an entry let go, and tells whoever has it.   ARGV: id
local s, id = keys_at(1), ARGV[1]
if not settled(s) then return 0 end
settle(s)
local record = record_of(s, id)
if record then
  s.wished = '1'
  redis.call('HSET', s.entries, 'y' .. id, 1)
  redis.call('PEXPIRE', s.entries, math.max(FLOOR_MS, redis.call('PTTL', s.line)))
  redis.call('PUBLISH', entry_of(record).channel, 'y ' .. id)
end
save(s)
return record and 1 or 0
