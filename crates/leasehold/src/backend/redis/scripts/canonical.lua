-- How a holder is written at the lock's own key, where other programs look for it: as a plain string, such as
-- `SET key value NX PX ttl` writes. Ours is `id channel ticket note`; whoever finds another has met a foreign holder.
-- Other clients take any value there for a lock, and so do we.

-- What stands at the key while several share it. No client has it as its own value.
local SHARED = 'leasehold:shared'

-- What stands at the key, or false if it is free. A second value says which type of key is in the way.
local function read_mark(lock)
  local mark = redis.pcall('GET', lock)
  if type(mark) ~= 'table' then return mark end
  -- A right that is missing is not a key of another type.
  if not string.find(mark.err, 'WRONGTYPE', 1, true) then redis.call('GET', lock) end
  return 'in the way', redis.call('TYPE', lock).ok
end

-- Whose mark it is, with its channel, ticket and note, if it is one of ours.
local function owner_of(s)
  return string.match(s.mark or '', '^(%x+)[ ?+](leasehold:%S+) (%d+) (.*)$')
end

-- Ours has a `+` behind its id. Whoever enters without a look at the line writes a blank there: it stands while there is no
-- line, so that its writer may leave without a look too, and becomes a `?` when there is one.
local function write_mark(s, id, channel, ticket, note, ttl)
  s.mark = id and id .. '+' .. channel .. ' ' .. ticket .. ' ' .. note or SHARED
  redis.call('SET', s.lock, s.mark, 'PX', ttl)
end

local function is_unlooked(s) return string.sub(s.mark, 33, 33) ~= '+' end

local function close_mark(s)
  if string.sub(s.mark, 33, 33) == ' ' then
    redis.call('SET', s.lock, string.sub(s.mark, 1, 32) .. '?' .. string.sub(s.mark, 34), 'KEEPTTL')
  end
end

local function erase_mark(lock) redis.call('DEL', lock) end
