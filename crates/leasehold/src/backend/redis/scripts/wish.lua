-- Keeps the wish that an entry let go, and tells whoever has it.   ARGV: id
local s, id = keys_at(1), ARGV[1]
if not settled(s, id) then return 0 end
settle(s)
local entry = entry_at(s, id)
if entry then
  s.wished = true
  redis.call('HSET', s.entries, 'y' .. id, 1)
  redis.call('PUBLISH', entry.channel, 'y ' .. id)
end
save(s)
return entry and 1 or 0
