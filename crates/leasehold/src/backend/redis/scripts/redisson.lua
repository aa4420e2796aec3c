-- How a holder is written at the lock's own key, where Redisson's clients look for it: as the hash of an RLock, with one
-- field for its owner, `uuid:thread`, and how often that owner has entered as its value.
-- Redisson compares these byte for byte. Changing their form orphans every lock that it can see.

-- Several holders are not written in this form at all.
local SHARED = ''

local function mark_of(id)
  local part = string.sub
  return part(id, 1, 8) .. '-' .. part(id, 9, 12) .. '-' .. part(id, 13, 16) .. '-' .. part(id, 17, 20)
    .. '-' .. part(id, 21) .. ':1'
end

-- What stands at the key: the owner's field, or false if it is free. A second value says which type of key is in the way.
local function read_mark(lock)
  local fields = redis.pcall('HKEYS', lock)
  if fields.err then return 'in the way', redis.call('TYPE', lock).ok end
  return fields[1] or false
end

local function write_mark(lock, mark, ttl)
  redis.call('DEL', lock)
  redis.call('HSET', lock, mark, 1)
  redis.call('PEXPIRE', lock, ttl)
end

local function write_mark_if_free(lock, mark, ttl)
  if redis.call('EXISTS', lock) == 1 then return false end
  redis.call('HSET', lock, mark, 1)
  redis.call('PEXPIRE', lock, ttl)
  return true
end

-- Redisson's waiters listen on this channel, and wait for its lease to end where nobody speaks.
local function erase_mark(lock)
  redis.call('DEL', lock)
  redis.call('PUBLISH', 'redisson_lock__channel:{' .. lock .. '}', '0')
end
