-- Locks a key for an owner if it is free, and raises the fence to the owner's guess of a token.
--   KEYS: lock, sharers, notes, left, memory
--   ARGV: id, ttl, guess, channel, note, the fence's field, x (alone) or s (shared)
-- The memory of this server is one hash, so that it forgets all of it or nothing: `epoch`, without which it grants nothing;
-- `longest`, the longest lease that it grants; `floor` and a few hundred fences, each for many names, so that none is left
-- behind by a name that is never used again. A fence is as high as its field or the floor, and only grows.
local GRANTED, BUSY, NOT_READY, TOO_LONG, BARRED, IN_THE_WAY = 1, 2, 3, 4, 5, 6
local call = redis.call
local memory = call('HMGET', KEYS[5], 'epoch', 'longest', 'floor', ARGV[6])
if not memory[1] then return { NOT_READY } end
if tonumber(ARGV[2]) > tonumber(memory[2]) then return { TOO_LONG, memory[2] } end
-- It was given up before this request for it arrived.
if call('EXISTS', KEYS[4]) == 1 then return { BARRED } end

-- With the floor and the fence as they were.
local function granted()
  local fence, guess = memory[4] or '0', tonumber(ARGV[3])
  if guess > tonumber(memory[3]) and guess > tonumber(fence) then call('HSET', KEYS[5], ARGV[6], ARGV[3]) end
  return { GRANTED, memory[3], fence, memory[1] }
end

local time = call('TIME')
-- Other programs take any value at the key for a lock, and so do we.
local record = ARGV[4] .. ' ' .. ARGV[3] .. ' ' .. time[1] .. string.sub(time[2] + 1000000, 2, 4) .. ' ' .. ARGV[5]
if ARGV[7] == 'x' and call('SET', KEYS[1], ARGV[1] .. ' ' .. record, 'NX', 'PX', ARGV[2]) then return granted() end
