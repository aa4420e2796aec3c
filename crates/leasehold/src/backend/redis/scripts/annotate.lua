-- Replaces the note of an entry that holds.   ARGV: id, note
local s, id = keys_at(1), ARGV[1]
if not settled(s) then return 0 end
settle(s)
local record = redis.call('HGET', s.line, id)
local holds = s.holder == id or (redis.call('ZSCORE', s.leases, id) and not redis.call('ZSCORE', s.queue, id))
if not (record and holds) then return 0 end
local entry = entry_of(record)
redis.call('HSET', s.line, id, written(entry.claim, entry.weight, entry.ticket, entry.channel, ARGV[2]), 'o', 1)
s.observed = true
tell_observers(s)
return 1
