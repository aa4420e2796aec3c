-- Takes entries out of their lines, whether they hold or wait, and hands over to whoever is next.
--   ARGV: what our channels begin with; then for each line: id
local GONE, WAITED, HELD = 0, 1, 2

local function leave(s, client, id)
  if not settled(s) then return GONE end
  local record, was = record_of(s, id), GONE
  if s.mark and s.mark == mark_of(id) then
    unmark(s)
    was = HELD
  elseif redis.call('ZREM', s.leases, id) == 1 then
    was = WAITED
    if redis.call('ZREM', s.queue, id) == 0 then
      was = HELD
      s.used = s.used - (record and entry_of(record).weight or 0)
    end
  elseif s.foreign and id_of_foreign(s.mark) == id then
    unmark(s)
    was = HELD
  end
  if was ~= GONE then
    forget(s, id)
    -- Whoever put the entry there is told, unless it is the one who asks.
    local owner = record and entry_of(record).channel
    if owner and string.sub(owner, 1, #client) ~= client then redis.call('PUBLISH', owner, 'x ' .. id) end
  end
  settle(s)
  save(s)
  return was
end

local answers = replies or {}
for nth = 1, #KEYS / 5 do answers[nth] = answers[nth] or leave(keys_at(nth), ARGV[1], ARGV[nth + 1]) end
return answers
