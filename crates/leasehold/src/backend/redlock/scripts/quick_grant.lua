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

local function granted()
  local prior = math.max(tonumber(memory[3]), tonumber(memory[4] or 0))
  if tonumber(ARGV[3]) > prior then call('HSET', KEYS[5], ARGV[6], ARGV[3]) end
  return { GRANTED, string.format('%.0f', prior), memory[1] }
end

local time = call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
-- Other programs take any value at the key for a lock, and so do we.
local record = ARGV[4] .. ' ' .. ARGV[3] .. ' ' .. string.format('%.0f', now_ms) .. ' ' .. ARGV[5]
if ARGV[7] == 'x' and call('SET', KEYS[1], ARGV[1] .. ' ' .. record, 'NX', 'PX', ARGV[2]) then return granted() end
