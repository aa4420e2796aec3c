-- Takes an entry out of its line, whether it holds or waits, and hands over to whoever is next.
--   ARGV: id and what our channels begin with, as a mark begins
local GONE, WAITED, HELD = 0, 1, 2

local function leave(s, client, id)
  if not settled(s, id) then return GONE end
  local entry, was = entry_at(s, id), GONE
  if entry and entry == s.holder then
    unmark(s)
    was = HELD
  elseif s.lined and redis.call('ZREM', s.leases, id) == 1 then
    was = WAITED
    if redis.call('ZREM', s.queue, id) == 0 then
      was = HELD
      s.used, s.changed = s.used - (entry and entry.weight or 0), true
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

local id, client = string.match(ARGV[1], '^(%x+) (%S+)$')
return leave(keys_at(1), client, id)
