-- A key's line on this server, and the rule: its holders are the longest prefix of the line, in ticket order, whose
-- weights fit the capacity. `queue.rs` states it once; this restates it and is tested against it.
--
--   lock    what other programs look at: the mark of the exclusive holder, or SHARED while others hold.
--           Its expiry is the exclusive holder's lease, or the longest lease of those who share.
--           Whatever is not marked there is not held: a key that was deleted or taken by others is lost to us.
--   line    hash: t the last ticket, c the capacity, h the exclusive holder, u the weight of those who share,
--           n how many wait, o whether anybody observes, <id> an entry, y<id> a wish that this entry let go
--   queue   sorted set: waiters by ticket
--   leases  sorted set: waiters and those who share, by when their lease ends in ms

-- How long a deserted line's last ticket is remembered: a server clock may step back by less without a token repeating.
local FLOOR_MS = 3600000
-- So that a caller gone wild fills its own line and not the server. Numbers stay exact up to TICKET_MAX.
local LINE_MAX, TICKET_MAX = 100000, 9007199254740990
local WHOLE = 4294967295

local function now_us()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function size_of(capacity) return capacity == 'w' and WHOLE or tonumber(capacity) end

-- An entry is written as `claim weight ticket channel note`.
local function entry_of(record)
  local claim, weight, ticket, channel, note = string.match(record, '^(%a) (%d+) (%d+) (%S+) (.*)$')
  return { claim = claim, weight = tonumber(weight), ticket = ticket, channel = channel, note = note }
end

local function written(claim, weight, ticket, channel, note)
  return claim .. ' ' .. weight .. ' ' .. ticket .. ' ' .. channel .. ' ' .. note
end

-- The next ticket: larger than every one before it, and than every one forgotten. Nil when numbers run out.
local function ticket_after(last, now)
  local ticket = math.max((tonumber(last) or 0) + 1, now)
  if ticket <= TICKET_MAX then return string.format('%.0f', ticket) end
end

local function keys_at(nth)
  local at = (nth - 1) * 4
  return { lock = KEYS[at + 1], line = KEYS[at + 2], queue = KEYS[at + 3], leases = KEYS[at + 4] }
end

local function forget(s, id) redis.call('HDEL', s.line, id, 'y' .. id) end

-- Nobody holds it for the time being: the mark is erased in the end, unless somebody else's is written over it.
local function unmark(s) s.mark, s.holder, s.foreign, s.unmarked = false, false, false, true end

-- Tells observers who holds exclusively, and for how long; or `?`, to look for themselves. Every telling takes a ticket, by
-- which an observer knows what it has seen already.
local function tell_observers(s)
  if not s.observed then return end
  local version = ticket_after(s.last, s.now or now_us())
  if not version then return end
  s.last = version
  redis.call('HSET', s.line, 't', version)
  local seen = ''
  if s.holder then
    seen = redis.call('PTTL', s.lock) .. ' ' .. s.holder .. ' ' .. redis.call('HGET', s.line, s.holder)
  elseif s.mark then
    seen = '?'
  end
  redis.call('PUBLISH', s.line, version .. ' ' .. seen)
end

-- The line as it is now, without those whose lease is over. Nil, and why, if the key is of another type.
local function settled(s)
  local in_the_way
  s.mark, in_the_way = read_mark(s.lock)
  if in_the_way then return nil, in_the_way end
  local field = redis.call('HMGET', s.line, 't', 'c', 'h', 'u', 'o')
  s.last, s.capacity, s.holder, s.used, s.observed = field[1], field[2], field[3], tonumber(field[4]) or 0, field[5]
  s.now = now_us()
  s.now_ms = math.floor(s.now / 1000)
  s.before = s.holder
  if s.holder and s.mark ~= mark_of(s.holder) then
    forget(s, s.holder)
    redis.call('HDEL', s.line, 'h')
    s.holder = false
  end
  if s.used > 0 and s.mark ~= SHARED then
    for _, id in ipairs(redis.call('ZRANGE', s.leases, 0, -1)) do
      if not redis.call('ZSCORE', s.queue, id) then
        redis.call('ZREM', s.leases, id)
        forget(s, id)
      end
    end
    s.used = 0
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', s.leases, '-inf', s.now_ms)) do
    redis.call('ZREM', s.leases, id)
    local record = redis.call('HGET', s.line, id)
    if redis.call('ZREM', s.queue, id) == 0 and record then s.used = s.used - entry_of(record).weight end
    forget(s, id)
  end
  if s.mark == SHARED and s.used <= 0 then unmark(s) end
  s.foreign = s.mark and s.mark ~= SHARED and not s.holder
  return s
end

-- Lets the key be marked as shared for at least so long.
local function share_for(s, ttl)
  if s.mark == SHARED then
    if redis.call('PTTL', s.lock) < ttl then redis.call('PEXPIRE', s.lock, ttl) end
  else
    write_mark(s.lock, SHARED, ttl)
    s.mark = SHARED
  end
end

local function has_room_for(s, claim, weight)
  if s.holder or s.foreign then return false end
  if claim == 'x' then return s.used == 0 end
  return s.used + weight <= size_of(s.capacity)
end

-- Grants to the first in line for as long as the rule lets it, and tells exactly those who were granted. A grant does not
-- lengthen a lease: the waiter counts it from its own last renewal, so however late it hears of it, it is not misled.
local function promote(s)
  while true do
    local head = redis.call('ZRANGE', s.queue, 0, 0)[1]
    if not head then return end
    local record, ends = redis.call('HGET', s.line, head), redis.call('ZSCORE', s.leases, head)
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
        write_mark(s.lock, mark_of(head), left)
        s.mark, s.holder = mark_of(head), head
        redis.call('HSET', s.line, 'h', head)
      else
        s.used = s.used + entry.weight
        share_for(s, left)
      end
      redis.call('PUBLISH', entry.channel, 'g ' .. head .. ' ' .. entry.ticket)
    end
  end
end

-- Grants what can be granted and writes down how the line is now.
local function settle(s)
  promote(s)
  if s.mark == SHARED and s.used <= 0 then unmark(s) end
  if s.unmarked and not s.mark then erase_mark(s.lock) end
  if s.holder ~= s.before then tell_observers(s) end
  s.waiting = redis.call('ZCARD', s.queue)
  if s.last or s.holder or s.mark == SHARED or s.waiting > 0 then
    redis.call('HSET', s.line, 'u', s.used, 'n', s.waiting)
  end
end

-- Keeps what is not the lease itself for longer than any lease in it.
local function outlive(s, ttl)
  for _, key in ipairs({ s.line, s.queue, s.leases }) do redis.call('PEXPIRE', key, FLOOR_MS + ttl) end
end

-- How long the shortest lease in the line lives, or -1.
local function shortest_lease(s)
  local shortest = s.mark and redis.call('PTTL', s.lock) or -1
  local first = redis.call('ZRANGE', s.leases, 0, 0, 'WITHSCORES')
  if first[2] then
    local left = math.max(tonumber(first[2]) - s.now_ms, 1)
    if shortest < 0 or left < shortest then shortest = left end
  end
  return shortest
end

local function view_of(s, id, left)
  local record = redis.call('HGET', s.line, id)
  return { id, record, left, redis.call('HEXISTS', s.line, 'y' .. id) }
end

-- Those who hold, at most so many of them: id, entry, lease and wish of each. A foreign holder has no entry, and the
-- digest of its mark for an id.
local function holders_of(s, most)
  if s.holder then return { view_of(s, s.holder, redis.call('PTTL', s.lock)) } end
  if s.foreign then
    return { { string.sub(redis.sha1hex(s.mark), 1, 32), '', redis.call('PTTL', s.lock), 0, string.sub(s.mark, 1, 64) } }
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
