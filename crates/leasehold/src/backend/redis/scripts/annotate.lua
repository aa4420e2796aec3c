-- Replaces the note of an entry that holds.   ARGV: id, note
local s, id = keys_at(1), ARGV[1]
if not settled(s) then return 0 end
settle(s)
local record = record_of(s, id)
if not record or redis.call('ZSCORE', s.queue, id) then
  save(s)
  return 0
end
local entry = entry_of(record)
record = written(entry.claim, entry.weight, entry.ticket, entry.channel, ARGV[2])
s.observed = '1'
if s.holder == id then
  s.record = record
  if s.before == id then tell_observers(s) end
else
  redis.call('HSET', s.entries, id, record)
end
save(s)
return 1
