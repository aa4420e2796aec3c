-- How a holder is written at the lock's own key, where Redisson's clients look for it: as the hash of an RLock, with one
-- field for its owner, `uuid:thread`, and how often that owner has entered as its value. Its channel and note are with the
-- entries.
-- Redisson compares these byte for byte. Changing their form orphans every lock that it can see.

-- Several holders are not written in this form at all.
local SHARED = ''

-- What stands at the key: the owner's field, or false if it is free. A second value says which type of key is in the way.
local function read_mark(lock)
  local fields = redis.pcall('HKEYS', lock)
  if not fields.err then return fields[1] or false end
  -- A right that is missing is not a key of another type.
  if not string.find(fields.err, 'WRONGTYPE', 1, true) then redis.call('HKEYS', lock) end
  return 'in the way', redis.call('TYPE', lock).ok
end

-- Whose mark it is, with its channel, ticket and note, if it is one of ours.
local function owner_of(s)
  local a, b, c, d, e = string.match(s.mark or '', '^(%x+)-(%x+)-(%x+)-(%x+)-(%x+):1$')
  local id = a and a .. b .. c .. d .. e
  local own = id and redis.call('HGET', s.entries, 'h' .. id)
  if own then return id, string.match(own, '^(%S+) (%d+) (.*)$') end
end

local function write_mark(s, id, channel, ticket, note, ttl)
  local part = string.sub
  s.mark = part(id, 1, 8) .. '-' .. part(id, 9, 12) .. '-' .. part(id, 13, 16) .. '-' .. part(id, 17, 20) .. '-'
    .. part(id, 21) .. ':1'
  redis.call('DEL', s.lock)
  redis.call('HSET', s.lock, s.mark, 1)
  redis.call('PEXPIRE', s.lock, ttl)
  redis.call('HSET', s.entries, 'h' .. id, channel .. ' ' .. ticket .. ' ' .. note)
end

-- Its holder never enters or leaves without a look at the line.
local function is_unlooked() return false end

local function close_mark() end

-- Redisson's waiters listen on this channel, and wait for the lease to end where nobody speaks.
local function erase_mark(lock)
  redis.call('DEL', lock)
  redis.call('PUBLISH', 'redisson_lock__channel:{' .. lock .. '}', '0')
end
