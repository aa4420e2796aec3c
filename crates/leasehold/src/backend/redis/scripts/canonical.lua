-- How a holder is written at the lock's own key, where other programs look for it: as a plain string, the one that
-- `SET key id NX PX ttl` writes. Whoever finds a string there that is not ours has met a foreign holder.
-- Other clients compare this value byte for byte. Changing its form orphans every lock that they can see.

-- What stands at the key while several share it. No client has it as its own value.
local SHARED = 'leasehold:shared'

local function mark_of(id) return id end

-- What stands at the key: a mark, or false if it is free. A second value says which type of key is in the way.
local function read_mark(lock)
  local mark = redis.pcall('GET', lock)
  if type(mark) == 'table' then return 'in the way', redis.call('TYPE', lock).ok end
  return mark
end

local function write_mark_if_free(lock, mark, ttl) return redis.call('SET', lock, mark, 'NX', 'PX', ttl) end

local function write_mark(lock, mark, ttl) redis.call('SET', lock, mark, 'PX', ttl) end

local function erase_mark(lock) redis.call('DEL', lock) end
