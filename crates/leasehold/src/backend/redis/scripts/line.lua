-- A key's line on this server, and the rule: its holders are the longest prefix of the line, in ticket order, whose
-- weights fit the capacity. `queue.rs` states it once; this restates it and is tested against it.
--
--   lock     what other programs look at: the mark of the exclusive holder, or SHARED while others hold.
--            Its expiry is the exclusive holder's lease, or the longest lease of those who share.
--            Whatever is not marked there is not held: a key that was deleted or taken by others is lost to us.
--   line     string: `last used waiting observed wished capacity holder entry`: the last ticket, the weight of those who
--            share, how many wait, whether anybody observes, whether anybody wished that an entry let go, the capacity,
--            the exclusive holder's id or `-`, and its entry. It holds only if its mark is at the lock.
--   queue    sorted set: waiters by ticket
--   leases   sorted set: waiters and those who share, by when their lease ends in ms
--   entries  hash: <id> the entry of one that waits or shares, y<id> a wish that somebody let go
--
-- An entry is written as `claim weight ticket channel note`.

-- How long a deserted line's last ticket is remembered: a server clock may step back by less without a token repeating.
local FLOOR_MS = 3600000
-- So that a caller gone wild fills its own line and not the server. Numbers stay exact up to TICKET_MAX.
local LINE_MAX, TICKET_MAX = 100000, 9007199254740990
local WHOLE = 4294967295

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

-- The next ticket: larger than every one before it, and than every one forgotten. Nil when numbers run out.
local function ticket_after(last, now)
  local ticket = math.max(tonumber(last) + 1, now)
  if ticket <= TICKET_MAX then return text(ticket) end
end

local function keys_at(nth)
  local at = (nth - 1) * 5
  return { lock = KEYS[at + 1], line = KEYS[at + 2], queue = KEYS[at + 3], leases = KEYS[at + 4], entries = KEYS[at + 5] }
end

local function record_of(s, id)
  if id == s.holder then return s.record end
  return redis.call('HGET', s.entries, id)
end

-- Nobody holds it for the time being: the mark is erased in the end, unless somebody else's is written over it.
local function unmark(s) s.mark, s.holder, s.foreign, s.unmarked = false, false, false, true end

local function forget(s, id)
  redis.call('HDEL', s.entries, id, 'y' .. id)
  s.wished = redis.call('EXISTS', s.entries) == 1 and s.wished or '0'
end

-- The line as it is now, without those whose lease is over. Nil, and why, if the key is of another type.
local function settled(s)
  local in_the_way
  s.mark, in_the_way = read_mark(s.lock)
  if in_the_way then return nil, in_the_way end
  s.now = server_time()
  s.now_ms = math.floor(s.now / 1000)
  s.saved = redis.call('GET', s.line)
  local last, used, _, observed, wished, capacity, holder, record =
    string.match(s.saved or '0 0 0 0 0 w - ', '^(%d+) (%d+) (%d+) (%d) (%d) (%S+) (%S+) (.*)$')
  s.last, s.used, s.observed, s.wished, s.capacity = last, tonumber(used), observed, wished, capacity
  s.holder = holder ~= '-' and s.mark == mark_of(holder) and holder
  if s.holder then
    s.record = record
  elseif holder ~= '-' and wished == '1' then
    forget(s, holder)
  end
  s.before = s.holder
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
    local ended = redis.call('HGET', s.entries, id)
    if redis.call('ZREM', s.queue, id) == 0 and ended then s.used = s.used - entry_of(ended).weight end
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

local function hold_alone(s, id, record, ttl)
  write_mark(s.lock, mark_of(id), ttl)
  s.mark, s.holder, s.record = mark_of(id), id, record
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
    local record, ends = redis.call('HGET', s.entries, head), redis.call('ZSCORE', s.leases, head)
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
        redis.call('HDEL', s.entries, head)
        hold_alone(s, head, record, left)
      else
        s.used = s.used + entry.weight
        share_for(s, left)
      end
      redis.call('PUBLISH', entry.channel, 'g ' .. head .. ' ' .. entry.ticket)
    end
  end
end

-- Grants what can be granted.
local function settle(s)
  promote(s)
  if s.mark == SHARED and s.used <= 0 then unmark(s) end
  if s.unmarked and not s.mark then erase_mark(s.lock) end
  s.waiting = redis.call('ZCARD', s.queue)
end

-- Tells observers who holds exclusively, and for how long; or `?`, to look for themselves. Every telling takes a ticket, by
-- which an observer knows what it has seen already.
local function tell_observers(s)
  local version = ticket_after(s.last, s.now)
  if s.observed == '0' or not version then return end
  s.last = version
  local seen = ''
  if s.holder then
    seen = redis.call('PTTL', s.lock) .. ' ' .. s.holder .. ' ' .. s.record
  elseif s.mark then
    seen = '?'
  end
  redis.call('PUBLISH', s.line, version .. ' ' .. seen)
end

-- Writes down how the line is now, to be kept for longer than a lease of `ttl` that was given or extended, if one was.
local function save(s, ttl)
  if s.holder ~= s.before then tell_observers(s) end
  local line = s.last .. ' ' .. text(s.used) .. ' ' .. text(s.waiting) .. ' ' .. s.observed .. ' ' .. s.wished .. ' '
    .. s.capacity .. ' ' .. (s.holder or '-') .. ' ' .. (s.holder and s.record or '')
  if ttl or not s.saved then
    -- Others in the line may have longer leases.
    local life = math.max(FLOOR_MS + (ttl or 0), redis.call('PTTL', s.line))
    if line ~= '0 0 0 0 0 w - ' then redis.call('SET', s.line, line, 'PX', life) end
    for _, key in ipairs({ s.queue, s.leases, s.entries }) do redis.call('PEXPIRE', key, life) end
  elseif line ~= s.saved then
    redis.call('SET', s.line, line, 'KEEPTTL')
  end
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
  return { id, record_of(s, id), left, redis.call('HEXISTS', s.entries, 'y' .. id) }
end

-- A foreign holder has no id but that of its mark.
local function id_of_foreign(mark) return string.sub(redis.sha1hex(mark), 1, 32) end

-- Those who hold, at most so many of them: id, entry, lease and wish of each. A foreign holder has no entry; it has a mark.
local function holders_of(s, most)
  if s.holder then return { view_of(s, s.holder, redis.call('PTTL', s.lock)) } end
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
