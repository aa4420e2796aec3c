-- A key on this server.
--   lock     what other programs look at: `id channel token since note` of whoever has it alone, or SHARED while several do
--   sharers  sorted set: who shares it, by when their lease ends in ms
--   notes    hash: <id> `channel token since note` of one who shares; y<id> a wish that somebody let go
-- The memory of this server is one sorted set, so that it forgets all of it or nothing: `epoch`, without which it grants nothing;
-- `longest`, the longest lease that it grants, in ms; `run:<id>`, of which run of the server that is; and a few hundred fences
-- `f<n>:<epoch>`, each for many names, so that none is left behind by a name that is never used again. A fence only grows.
-- Without an epoch there is nothing but `blank:<mark>`.
local SHARED = 'leasehold:shared'

local function keys_at(nth, keys)
  local at = (nth - 1) * 3
  return { lock = keys[at + 1], sharers = keys[at + 2], notes = keys[at + 3] }
end

local function clock_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Whose mark it is, with the owner's channel, if it is one of ours.
local function owner_of(mark) return string.match(mark or '', '^(%x+) (redlock:%S+) ') end

-- A foreign owner has no id but that of its mark.
local function id_of_foreign(mark) return string.sub(redis.sha1hex(mark), 1, 32) end

-- What stands at the key now, without those whose lease is over; false if it is free. A second value says which type of key
-- is in the way.
local function settled(s, now_ms)
  local mark = redis.pcall('GET', s.lock)
  if type(mark) == 'table' then return 'in the way', redis.call('TYPE', s.lock).ok end
  if mark ~= SHARED then
    -- Whoever shared it has lost it with the mark.
    redis.call('DEL', s.sharers)
    return mark
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', s.sharers, '-inf', now_ms)) do
    redis.call('ZREM', s.sharers, id)
    redis.call('HDEL', s.notes, id, 'y' .. id)
  end
  if redis.call('EXISTS', s.sharers) == 1 then return mark end
  redis.call('DEL', s.lock, s.notes)
  return false
end

-- Lets a key live for at least so long.
local function prolong(key, ttl)
  if redis.call('PTTL', key) < ttl then redis.call('PEXPIRE', key, ttl) end
end

local function share(s, mark, id, ttl, now_ms, record)
  if not mark then redis.call('SET', s.lock, SHARED, 'PX', ttl) end
  redis.call('ZADD', s.sharers, now_ms + ttl, id)
  if record then redis.call('HSET', s.notes, id, record) end
  for _, key in ipairs({ s.lock, s.sharers, s.notes }) do prolong(key, ttl) end
end

-- Who has the key: how long until it is free, or -1; then of each: id, x or s or f, record, lease and wish. A foreign one has
-- its mark for a record.
local function sight(s, mark, now_ms)
  if not mark then return { -1 } end
  local left = redis.call('PTTL', s.lock)
  local function wished(id) return redis.call('HEXISTS', s.notes, 'y' .. id) end
  local id = owner_of(mark)
  if id then return { left, { id, 'x', string.sub(mark, #id + 2), left, wished(id) } } end
  if mark ~= SHARED then return { left, { id_of_foreign(mark), 'f', string.sub(mark, 1, 64), left, 0 } } end
  local seen, leases = { left }, redis.call('ZRANGE', s.sharers, 0, -1, 'WITHSCORES')
  for at = 1, #leases, 2 do
    local record = redis.call('HGET', s.notes, leases[at]) or ''
    seen[#seen + 1] = { leases[at], 's', record, tonumber(leases[at + 1]) - now_ms, wished(leases[at]) }
  end
  return seen
end

