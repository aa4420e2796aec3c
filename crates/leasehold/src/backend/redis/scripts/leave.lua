-- Takes entries out of their lines, whether they hold or wait, and hands over to whoever is next.
--   ARGV: what our channels begin with; then for each line: id
local GONE, WAITED, HELD = 0, 1, 2

local function leave(s, client, id)
  if not settled(s) then return GONE end
  local entry, was = entry_at(s, id), GONE
  if entry and entry == s.holder then
    unmark(s)
    was = HELD
  elseif redis.call('ZREM', s.leases, id) == 1 then
    was = WAITED
    if redis.call('ZREM', s.queue, id) == 0 then
      was = HELD
      s.used = s.used - (entry and entry.weight or 0)
    end
  elseif s.foreign and id_of_foreign(s.mark) == id then
    unmark(s)
    was = HELD
  end
  if was ~= GONE then
    if id ~= s.before then forget(s, id) end
    -- Whoever put the entry there is told, unless it is the one who asks.
    if entry and string.sub(entry.channel, 1, #client) ~= client then redis.call('PUBLISH', entry.channel, 'x ' .. id) end
  end
  settle(s)
  save(s)
  return was
end

local answers = replies or {}
for nth = 1, #KEYS / 5 do answers[nth] = answers[nth] or leave(keys_at(nth), ARGV[1], ARGV[nth + 1]) end
return answers
