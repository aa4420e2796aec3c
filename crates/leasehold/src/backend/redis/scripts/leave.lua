-- Takes entries out of their lines, whether they hold or wait, and hands over to whoever is next.
--   ARGV: our channel; then for each line: id
local GONE, WAITED, HELD = 0, 1, 2

-- Whoever put the entry there is told, unless it is the one who asks.
local function tell_owner(record, id, channel)
  local owner = record and entry_of(record).channel
  if owner and owner ~= channel then redis.call('PUBLISH', owner, 'x ' .. id) end
end

local function leave(s, channel, id)
  local field = redis.call('HMGET', s.line, id, 'n', 'o', 't')
  tell_owner(field[1], id, channel)
  -- The common case in four commands: it holds and nobody waits.
  if (field[2] or '0') == '0' and read_mark(s.lock) == mark_of(id) then
    erase_mark(s.lock)
    redis.call('HDEL', s.line, id, 'h', 'y' .. id)
    s.observed, s.last = field[3], field[4]
    tell_observers(s)
    return HELD
  end
  if not settled(s) then return GONE end
  local was = GONE
  if s.mark and s.mark == mark_of(id) then
    redis.call('HDEL', s.line, 'h')
    unmark(s)
    was = HELD
  elseif redis.call('ZREM', s.leases, id) == 1 then
    was = WAITED
    if redis.call('ZREM', s.queue, id) == 0 then
      was = HELD
      s.used = s.used - entry_of(field[1]).weight
    end
  elseif s.foreign and string.sub(redis.sha1hex(s.mark), 1, 32) == id then
    unmark(s)
    was = HELD
  end
  forget(s, id)
  settle(s)
  return was
end

local replies = {}
for nth = 1, #KEYS / 4 do replies[nth] = leave(keys_at(nth), ARGV[1], ARGV[1 + nth]) end
return replies
