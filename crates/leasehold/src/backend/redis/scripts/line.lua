-- A key's line on this server, and the rule: its holders are the longest prefix of the line, in ticket order, whose
-- weights fit the capacity. `queue.rs` states it once; this restates it and is tested against it.
--
--   lock     what other programs look at: the mark of the exclusive holder, or SHARED while others hold.
--            Its expiry is the exclusive holder's lease, or the longest lease of those who share.
--            Whatever is not marked there is not held: a key that was deleted or taken by others is lost to us.
--   tickets  sorted set of one member, `t`: the last ticket, or a higher number. It begins with the server's time in µs, and
--            is remembered for longer than it takes to be that much time again: so tickets grow even when it has been
--            forgotten, and if the clock has stepped back. While there is a line it is CLOSED, so that nobody gets past the
--            line who enters without a look at it, and outlives the line.
--   queue    sorted set: waiters by ticket
--   leases   sorted set: waiters and those who share, by when their lease ends in ms
--   entries  hash: <id> one that waits or shares, as `claim weight ticket channel note`; y<id> a wish that somebody let go;
--            u the weight of those who share, c the capacity, o whether anybody observes, t the exclusive holder's id, if
--            any, n the last ticket, e when all of this is forgotten in ms. While it is not there, there is no line: nobody
--            waits, shares, observes or is wished for.

-- So that a caller gone wild fills its own line and not the server. Numbers stay exact up to TICKET_MAX.
local LINE_MAX, TICKET_MAX, CLOSED = 100000, 9007199254740990, '9007199254740991'
local WHOLE = 4294967295
-- How long the last ticket is remembered at least, and everything else beyond the longest lease in it.
local KEEP_MS = 3600000

local function server_time()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function text(number) return string.format('%.0f', number) end

local function size_of(capacity) return capacity == 'w' and WHOLE or tonumber(capacity) end

local function entry_of(record)
  local claim, weight, ticket, channel, note = string.match(record, '^(%a) (%d+) (%d+) (%S+) (.*)$')
  return { claim = claim, weight = tonumber(weight), ticket = ticket, channel = channel, note = note }
end

local function written(claim, weight, ticket, channel, note)
  return claim .. ' ' .. text(weight) .. ' ' .. ticket .. ' ' .. channel .. ' ' .. note
end

local function keys_at(nth)
  local at = (nth - 1) * 5
  return { lock = KEYS[at + 1], tickets = KEYS[at + 2], queue = KEYS[at + 3], leases = KEYS[at + 4], entries = KEYS[at + 5] }
end

-- The next ticket. Nil when numbers run out. It counts once the line is saved.
local function next_ticket(s)
  local next = s.last < 1000000000000 and s.now or s.last + 1
  if next > TICKET_MAX then return end
  s.last, s.changed = next, true
  return text(next)
end

-- Nobody holds it for the time being: the mark is erased in the end, unless somebody else's is written over it.
local function unmark(s) s.mark, s.holder, s.foreign, s.unmarked = false, nil, false, true end

-- Forgets an entry when the line is saved.
local function forget(s, id)
  local gone = s.gone
  gone[#gone + 1], gone[#gone + 2], gone[#gone + 3] = id, 'y' .. id, 'h' .. id
  if id == s.asked then s.record = false end
end

-- As many at once as a command takes.
local function erase_gone(s)
  for from = 1, #s.gone, 1000 do
    redis.call('HDEL', s.entries, unpack(s.gone, from, math.min(from + 999, #s.gone)))
  end
end

-- Takes everybody out whose lease is over.
local function reap(s)
  s.changed = true
  for _, ended in ipairs(redis.call('ZRANGE', s.leases, '-inf', s.now_ms, 'BYSCORE')) do
    redis.call('ZREM', s.leases, ended)
    local record = redis.call('HGET', s.entries, ended)
    if redis.call('ZREM', s.queue, ended) == 0 and record then s.used = s.used - entry_of(record).weight end
    forget(s, ended)
  end
end

-- When the first lease in the line ends, if there is one.
local function first_end(s) return tonumber(redis.call('ZRANGE', s.leases, 0, 0, 'WITHSCORES')[2]) end

-- Nobody shares any more: the mark that they had is gone.
local function drop_sharers(s)
  for _, sharer in ipairs(redis.call('ZRANGE', s.leases, 0, -1)) do
    if not redis.call('ZSCORE', s.queue, sharer) then
      redis.call('ZREM', s.leases, sharer)
      forget(s, sharer)
    end
  end
  s.used, s.changed = 0, true
end

-- The line as it is now, without those whose lease is over, and the entry that is asked for. Nil, and why, if the key is of
-- another type.
local function settled(s, asked)
  local in_the_way
  s.mark, in_the_way = read_mark(s.lock)
  if in_the_way then return nil, in_the_way end
  s.now = server_time()
  s.now_ms, s.gone, s.asked = math.floor(s.now / 1000), {}, asked
  local field = redis.call('HMGET', s.entries, 'u', 'c', 'o', 't', 'n', 'e', asked)
  s.used, s.capacity, s.observed, s.before = tonumber(field[1] or 0), field[2] or 'w', field[3], field[4] or ''
  s.lined, s.ends, s.record = field[5], tonumber(field[6] or 0), field[7]
  s.last = tonumber(s.lined or redis.call('ZSCORE', s.tickets, 't') or 0)
  -- A line that was forgotten.
  if s.last > TICKET_MAX then s.last = 0 end
  local id, channel, ticket, note = owner_of(s)
  if id then
    s.holder = { id = id, claim = 'x', weight = WHOLE, ticket = ticket, channel = channel, note = note }
  end
  -- Whoever held when the line was written last may have gone without a word.
  if not s.lined then s.before = id or '' end
  if s.lined then
    if s.used > 0 and s.mark ~= SHARED then drop_sharers(s) end
    s.first_end = first_end(s)
    if s.first_end and s.first_end <= s.now_ms then
      reap(s)
      s.first_end = first_end(s)
    end
  end
  if s.mark == SHARED and s.used <= 0 then unmark(s) end
  s.foreign = s.mark and s.mark ~= SHARED and not s.holder
  return s
end

-- Lets the key be marked as shared for at least so long.
local function share_for(s, ttl)
  if s.mark ~= SHARED then
    write_mark(s, nil, nil, nil, nil, ttl)
  elseif redis.call('PTTL', s.lock) < ttl then
    redis.call('PEXPIRE', s.lock, ttl)
  end
end

local function hold_alone(s, id, entry, ttl)
  write_mark(s, id, entry.channel, entry.ticket, entry.note, ttl)
  entry.id, s.holder = id, entry
end

local function has_room_for(s, claim, weight)
  if s.holder or s.foreign then return false end
  if claim == 'x' then return s.used == 0 end
  return s.used + weight <= size_of(s.capacity)
end

-- Grants to the first in line for as long as the rule lets it, and tells exactly those who were granted. A grant does not
-- lengthen a lease: the waiter counts it from its own last renewal, so however late it hears of it, it is not misled.
local function promote(s)
  while not (s.holder or s.foreign) do
    local head = redis.call('ZRANGE', s.queue, 0, 0)[1]
    if not head then return end
    local record = head == s.asked and s.record or redis.call('HGET', s.entries, head)
    local ends = redis.call('ZSCORE', s.leases, head)
    if not (record and ends) then
      -- Only if the server lost a part of the line: then the entry is lost too.
      redis.call('ZREM', s.queue, head)
      redis.call('ZREM', s.leases, head)
      forget(s, head)
    else
      local entry, left = entry_of(record), math.max(tonumber(ends) - s.now_ms, 1)
      if not has_room_for(s, entry.claim, entry.weight) then return end
      redis.call('ZREM', s.queue, head)
      if entry.claim == 'x' then
        redis.call('ZREM', s.leases, head)
        s.gone[#s.gone + 1] = head
        hold_alone(s, head, entry, left)
      else
        s.used, s.changed = s.used + entry.weight, true
        share_for(s, left)
      end
      redis.call('PUBLISH', entry.channel, 'g ' .. head .. ' ' .. entry.ticket)
    end
  end
end

-- Observers are told of changes from now on.
local function observe(s)
  if not s.observed then s.observed, s.changed = '1', true end
end

-- Grants what can be granted.
local function settle(s)
  if s.lined then promote(s) end
  if s.mark == SHARED and s.used <= 0 then unmark(s) end
  if s.unmarked and not s.mark then erase_mark(s.lock) end
  s.waiting = s.lined and redis.call('ZCARD', s.queue) or 0
end

-- Tells observers who holds exclusively, and for how long; or `?`, to look for themselves. Every telling takes a ticket, by
-- which an observer knows what it has seen already.
local function tell_observers(s)
  local version = next_ticket(s)
  local holder, seen = s.holder, ''
  if holder then
    seen = redis.call('PTTL', s.lock) .. ' ' .. holder.id .. ' '
      .. written('x', WHOLE, holder.ticket, holder.channel, holder.note)
  elseif s.mark then
    seen = '?'
  end
  if version then redis.call('PUBLISH', s.entries, version .. ' ' .. seen) end
end

local function keep_for(s, ms)
  for _, key in ipairs({ s.queue, s.leases, s.entries }) do redis.call('PEXPIRE', key, text(ms)) end
  redis.call('PEXPIRE', s.tickets, text(ms + 60000))
end

-- Writes down that there is a line, and how it is now.
local function save_line(s, holder, ttl)
  erase_gone(s)
  -- What is new has no end yet. Others in the line may have longer leases than the one that was given.
  local extends = s.anew or s.ends < s.now_ms + KEEP_MS / 2 + ttl
  if extends then s.ends = math.max(s.ends, s.now_ms + KEEP_MS + ttl) end
  if s.changed or extends or holder ~= s.before or not s.lined then
    redis.call('HSET', s.entries, 'u', s.used, 'c', s.capacity, 't', holder, 'n', text(s.last), 'e', text(s.ends))
    if s.observed then redis.call('HSET', s.entries, 'o', 1) end
  end
  if extends then
    redis.call('ZADD', s.tickets, CLOSED, 't')
    keep_for(s, s.ends - s.now_ms)
  end
  if s.holder then close_mark(s) end
end

-- Writes down that there is no line. What is left but numbers is a wish, or a note that is kept here; then there is one.
local function save_last(s, keep_ms)
  erase_gone(s)
  if s.lined then redis.call('HDEL', s.entries, 'u', 'c', 't', 'n', 'e') end
  if redis.call('EXISTS', s.entries) == 1 then return false end
  if s.lined or s.changed then
    redis.call('ZADD', s.tickets, text(s.last), 't')
    redis.call('PEXPIRE', s.tickets, math.max(keep_ms or 0, KEEP_MS))
  end
  return true
end

-- Writes down how the line is now. `ttl` is a lease that was given or extended, if one was.
local function save(s, ttl, keep_ms)
  local holder = s.holder and s.holder.id or ''
  if holder ~= s.before then
    if s.observed then tell_observers(s) end
    if s.before ~= '' then forget(s, s.before) end
  end
  local busy = s.used > 0 or s.waiting > 0 or s.observed or s.wished
  if not busy then
    if save_last(s, keep_ms) then return end
    s.gone, s.changed, s.anew = {}, true, true
  end
  save_line(s, holder, ttl or 0)
end

-- How long the shortest lease in the line lives, or -1.
local function shortest_lease(s)
  local shortest = s.mark and redis.call('PTTL', s.lock) or -1
  if s.first_end then
    local left = math.max(s.first_end - s.now_ms, 1)
    if shortest < 0 or left < shortest then shortest = left end
  end
  return shortest
end

-- The entry of that id, if it is in line: the exclusive holder, one who shares, or one who waits.
local function entry_at(s, id)
  if s.holder and s.holder.id == id then return s.holder end
  local record = id == s.asked and s.record
  if id ~= s.asked then record = redis.call('HGET', s.entries, id) end
  return record and entry_of(record)
end

local function view_of(s, id, left)
  local entry = entry_at(s, id)
  local record = written(entry.claim, entry.weight, entry.ticket, entry.channel, entry.note)
  return { id, record, left, redis.call('HEXISTS', s.entries, 'y' .. id) }
end

-- A foreign holder has no id but that of its mark.
local function id_of_foreign(mark) return string.sub(redis.sha1hex(mark), 1, 32) end

-- Those who hold, at most so many of them: id, entry, lease and wish of each. A foreign holder has no entry; it has a mark.
local function holders_of(s, most)
  if s.holder then return { view_of(s, s.holder.id, redis.call('PTTL', s.lock)) } end
  if s.foreign then
    return { { id_of_foreign(s.mark), '', redis.call('PTTL', s.lock), 0, string.sub(s.mark, 1, 64) } }
  end
  local holders = {}
  if s.used == 0 then return holders end
  local leases = redis.call('ZRANGE', s.leases, 0, -1, 'WITHSCORES')
  for at = 1, #leases, 2 do
    if not redis.call('ZSCORE', s.queue, leases[at]) then
      holders[#holders + 1] = view_of(s, leases[at], tonumber(leases[at + 1]) - s.now_ms)
      if #holders == most then break end
    end
  end
  return holders
end
