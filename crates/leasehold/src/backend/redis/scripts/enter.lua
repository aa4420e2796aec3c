-- Joins lines, or looks up places in them and renews their leases.
--   ARGV: our channel; then for each line: id, claim (x, s or p), weight, capacity (w or a number), mood (q to queue, r to
--   be refused; b if it has been in line before), holding ms, waiting ms, whether it is worth observing, note
local HOLDING, WAITING, REFUSED, GONE, MISMATCH, FULL, IN_THE_WAY, OUT_OF_TICKETS = 1, 2, 3, 4, 5, 6, 7, 8
local HOLDERS_SHOWN_MAX = 100

-- The common case in five commands: the key is free and nobody waits for it.
local function enter_free(s, channel, id, ttl, observed, note)
  if not write_mark_if_free(s.lock, mark_of(id), ttl) then return end
  local field = redis.call('HMGET', s.line, 't', 'n', 'u', 'h', 'o')
  local ticket = ticket_after(field[1], now_us())
  if (field[2] or '0') ~= '0' or (field[3] or '0') ~= '0' or not ticket then
    erase_mark(s.lock) -- there are others, or none may enter
    return
  end
  if field[4] then forget(s, field[4]) end -- its lease ended without a farewell
  local record = written('x', WHOLE, ticket, channel, note)
  if observed == '1' or field[5] then
    redis.call('HSET', s.line, 't', ticket, 'c', 'w', 'h', id, id, record, 'o', 1)
    s.holder, s.observed, s.last = id, true, ticket
    tell_observers(s)
  else
    redis.call('HSET', s.line, 't', ticket, 'c', 'w', 'h', id, id, record)
  end
  redis.call('PEXPIRE', s.line, FLOOR_MS + ttl)
  return { HOLDING, tonumber(ticket), ttl }
end

local function holding(s, id, ttl)
  local entry = entry_of(redis.call('HGET', s.line, id))
  return { HOLDING, tonumber(entry.ticket), ttl }
end

local function waiting(s, id, ttl)
  local before = redis.call('ZRANK', s.queue, id)
  local ahead = before + redis.call('ZCARD', s.leases) - s.waiting
  if s.holder or s.foreign then ahead = ahead + 1 end
  return { WAITING, ahead, ttl, shortest_lease(s), s.foreign and before or -1 }
end

local function extend(s, id, ttl)
  local ends = math.max(s.now_ms + ttl, tonumber(redis.call('ZSCORE', s.leases, id)))
  redis.call('ZADD', s.leases, ends, id)
  outlive(s, ttl)
end

-- An entry that is in line already.
local function look(s, id, hold_ms, wait_ms)
  if s.holder == id then
    if redis.call('PTTL', s.lock) < hold_ms then redis.call('PEXPIRE', s.lock, hold_ms) end
    outlive(s, hold_ms)
    return holding(s, id, hold_ms)
  end
  if not redis.call('ZSCORE', s.leases, id) then return end
  if redis.call('ZSCORE', s.queue, id) then
    extend(s, id, wait_ms)
    return waiting(s, id, wait_ms)
  end
  extend(s, id, hold_ms)
  share_for(s, hold_ms)
  return holding(s, id, hold_ms)
end

local function enter(s, channel, id, claim, weight, capacity, mood, hold_ms, wait_ms, observed, note)
  local back = mood == 'b'
  if claim == 'x' and not back then
    local entered = enter_free(s, channel, id, hold_ms, observed, note)
    if entered then return entered end
  end
  local fine, in_the_way = settled(s)
  if not fine then return { IN_THE_WAY, in_the_way } end
  settle(s)
  local found = look(s, id, hold_ms, wait_ms)
  if found then return found end
  if back then return { GONE } end
  local empty = not s.holder and s.used == 0 and s.waiting == 0
  local agreed = s.foreign and 'w' or (not empty and s.capacity) or capacity
  if agreed ~= capacity then return { MISMATCH, agreed } end
  s.capacity = capacity
  local free = s.waiting == 0 and has_room_for(s, claim, weight)
  if not free and mood == 'r' then
    local now = string.format('%.0f', s.now)
    return { REFUSED, shortest_lease(s), s.foreign and 0 or -1, holders_of(s, HOLDERS_SHOWN_MAX), now }
  end
  if redis.call('ZCARD', s.leases) >= LINE_MAX then return { FULL, LINE_MAX } end
  local ticket = ticket_after(s.last, s.now)
  if not ticket then return { OUT_OF_TICKETS } end
  local ttl = free and hold_ms or wait_ms
  redis.call('HSET', s.line, 't', ticket, 'c', capacity, id, written(claim, weight, ticket, channel, note))
  s.last = ticket
  if observed == '1' then
    redis.call('HSET', s.line, 'o', 1)
    s.observed = true
  end
  if claim == 'x' and free then
    write_mark(s.lock, mark_of(id), ttl)
    redis.call('HSET', s.line, 'h', id)
    s.holder = id
    tell_observers(s)
  else
    redis.call('ZADD', s.leases, s.now_ms + ttl, id)
    if free then
      s.used = s.used + weight
      redis.call('HSET', s.line, 'u', s.used)
      share_for(s, ttl)
    else
      redis.call('ZADD', s.queue, ticket, id)
      s.waiting = s.waiting + 1
      redis.call('HSET', s.line, 'n', s.waiting)
    end
  end
  outlive(s, ttl)
  if free then return { HOLDING, tonumber(ticket), ttl } end
  return waiting(s, id, ttl)
end

local replies = {}
for nth = 1, #KEYS / 4 do
  local a = 1 + (nth - 1) * 9
  replies[nth] = enter(keys_at(nth), ARGV[1], ARGV[a + 1], ARGV[a + 2], tonumber(ARGV[a + 3]), ARGV[a + 4], ARGV[a + 5],
    tonumber(ARGV[a + 6]), tonumber(ARGV[a + 7]), ARGV[a + 8], ARGV[a + 9])
end
return replies
