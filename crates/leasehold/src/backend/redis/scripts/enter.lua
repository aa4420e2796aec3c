-- Joins a line, or looks up a place in it and renews its lease.
--   ARGV: `id channel note`, holding ms, what it wants, waiting ms, ms to remember tickets
-- What it wants: the claim (x, s or p), what if it is not free (q to queue, r to be refused; b if it is in line already and
-- comes back to look), 1 if it is worth observing or 0; and then ` weight capacity`, unless the claim is x.
local HOLDING, WAITING, REFUSED, GONE, MISMATCH, FULL, IN_THE_WAY, OUT_OF_TICKETS = 1, 2, 3, 4, 5, 6, 7, 8
local HOLDERS_SHOWN_MAX = 100

-- `before` is how many wait before it, `ticket` its own and `behind` a lower one with nobody in between, if that is known.
local function waiting(s, id, ttl, before, ticket, behind)
  before = before or redis.call('ZRANK', s.queue, id)
  local ahead = before
  if s.used > 0 then ahead = ahead + redis.call('ZCARD', s.leases) - s.waiting end
  if s.holder or s.foreign then ahead = ahead + 1 end
  return { WAITING, ahead, ttl, shortest_lease(s), s.foreign and before or -1, tonumber(ticket), tonumber(behind) }
end

local function extend(s, id, ttl)
  local ends = math.max(s.now_ms + ttl, tonumber(redis.call('ZSCORE', s.leases, id)))
  redis.call('ZADD', s.leases, ends, id)
  save(s, ttl)
end

-- An entry that is in line already.
local function look(s, id, hold_ms, wait_ms)
  local entry = entry_at(s, id)
  if not entry then return end
  if entry == s.holder then
    if redis.call('PTTL', s.lock) < hold_ms then redis.call('PEXPIRE', s.lock, hold_ms) end
    save(s, hold_ms)
  elseif redis.call('ZSCORE', s.queue, id) then
    extend(s, id, wait_ms)
    return waiting(s, id, wait_ms)
  else
    share_for(s, hold_ms)
    extend(s, id, hold_ms)
  end
  return { HOLDING, tonumber(entry.ticket), hold_ms }
end

local function is_full(s)
  return s.waiting >= LINE_MAX or (s.used > 0 and redis.call('ZCARD', s.leases) >= LINE_MAX)
end

local function enter(s, channel, hold_ms, wait_ms, keep_ms, id, wants, note)
  local fine, in_the_way = settled(s, id)
  if not fine then return { IN_THE_WAY, in_the_way } end
  local claim, mood, observed, weight, capacity = string.match(wants, '^(%a)(%a)(%d) ?(%d*) ?(%S*)$')
  -- It came in without a look at the line, and then its ticket was too low or it was not told. Nobody believes that it holds,
  -- and its ticket is worth nothing: it begins anew, behind whoever has come since.
  if s.holder and s.holder.id == id and mood ~= 'b' and is_unlooked(s) then unmark(s) end
  settle(s)
  local found = look(s, id, hold_ms, wait_ms)
  if found then return found end
  if claim == 'x' then weight, capacity = WHOLE, 'w' end
  weight = tonumber(weight)
  local empty = not s.holder and s.used == 0 and s.waiting == 0
  local agreed = s.foreign and 'w' or (not empty and s.capacity) or capacity
  if agreed ~= s.capacity then s.capacity, s.changed = agreed, true end
  local free = s.waiting == 0 and agreed == capacity and has_room_for(s, claim, weight)
  local refusal, ticket
  if mood == 'b' then
    refusal = { GONE }
  elseif agreed ~= capacity then
    refusal = { MISMATCH, agreed }
  elseif not free and mood == 'r' then
    refusal = { REFUSED, shortest_lease(s), s.foreign and 0 or -1, holders_of(s, HOLDERS_SHOWN_MAX), text(s.now) }
  elseif is_full(s) then
    refusal = { FULL, LINE_MAX }
  else
    ticket = next_ticket(s)
    if not ticket then refusal = { OUT_OF_TICKETS } end
  end
  if refusal then
    save(s)
    return refusal
  end
  -- If it was taken for the holder before, without a ticket that counts, then what is forgotten of that one is not this.
  if s.before == id then s.before = '' end
  if observed == '1' then observe(s) end
  local ttl = free and hold_ms or wait_ms
  if claim == 'x' and free then
    hold_alone(s, id, { claim = 'x', weight = WHOLE, ticket = ticket, channel = channel, note = note }, ttl)
  else
    s.anew = not s.lined or s.waiting == 0
    redis.call('HSET', s.entries, id, written(claim, weight, ticket, channel, note))
    redis.call('ZADD', s.leases, s.now_ms + ttl, id)
    s.first_end = math.min(s.first_end or math.huge, s.now_ms + ttl)
    if free then
      s.used = s.used + weight
      share_for(s, ttl)
    else
      redis.call('ZADD', s.queue, ticket, id)
      s.waiting = s.waiting + 1
    end
  end
  save(s, ttl, keep_ms)
  if free then return { HOLDING, tonumber(ticket), ttl } end
  local behind = s.waiting == 1 and s.holder and s.holder.ticket or ticket - 1
  return waiting(s, id, ttl, s.waiting - 1, ticket, behind)
end

local id, channel, note = string.match(ARGV[1], '^(%x+) (%S+) (.*)$')
return enter(keys_at(1), channel, tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[5]), id, ARGV[3], note)
