-- Locks a key for an owner if it is free, and raises the fence to the owner's guess of a token.
--   KEYS: lock, sharers, notes, left, memory
--   ARGV: what is to stand at the lock, ttl, guess, the fence's name, x (alone) or s (shared)
local GRANTED, BUSY, NOT_READY, TOO_LONG, BARRED, IN_THE_WAY = 1, 2, 3, 4, 5, 6
local s, id, ttl = keys_at(1, KEYS), string.sub(ARGV[1], 1, 32), tonumber(ARGV[2])
local memory = redis.call('ZMSCORE', KEYS[5], 'epoch', 'longest')

-- With the fence as it was.
local function granted()
  local fence = ARGV[4] .. ':' .. memory[1]
  local prior = redis.call('ZSCORE', KEYS[5], fence)
  if tonumber(ARGV[3]) > tonumber(prior) then redis.call('ZADD', KEYS[5], ARGV[3], fence) end
  return { GRANTED, prior, memory[1], memory[2] }
end

if not memory[1] then return { NOT_READY } end
if ttl > tonumber(memory[2]) then return { TOO_LONG, memory[2] } end
-- It was given up before this request for it arrived.
if redis.call('EXISTS', KEYS[4]) == 1 then return { BARRED } end
local now_ms = clock_ms()
local mark, in_the_way = settled(s, now_ms)
if in_the_way then return { IN_THE_WAY, in_the_way } end
if ARGV[5] == 'x' then
  if owner_of(mark) == id then return granted() end
  -- Other programs take any value at the key for a lock, and so do we.
  if mark then return { BUSY, sight(s, mark, now_ms) } end
  redis.call('SET', s.lock, ARGV[1], 'PX', ttl)
  return granted()
end
if mark and mark ~= SHARED then return { BUSY, sight(s, mark, now_ms) } end
if not redis.call('ZSCORE', s.sharers, id) then share(s, mark, id, ttl, now_ms, string.sub(ARGV[1], 34)) end
return granted()
