-- Replaces the note of an entry that holds.   ARGV: id, note
local s, id = keys_at(1), ARGV[1]
if not settled(s, id) then return 0 end
settle(s)
local entry = entry_at(s, id)
local holds = entry and not redis.call('ZSCORE', s.queue, id)
if holds then
  entry.note = ARGV[2]
  observe(s)
  if entry == s.holder then
    write_mark(s, id, entry.channel, entry.ticket, entry.note, math.max(redis.call('PTTL', s.lock), 1))
    tell_observers(s)
  else
    redis.call('HSET', s.entries, id, written(entry.claim, entry.weight, entry.ticket, entry.channel, entry.note))
  end
end
save(s)
return holds and 1 or 0
