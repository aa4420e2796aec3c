-- Extends leases that have not ended, and never brings one back.
--   KEYS: for each lease: lock, sharers, notes   ARGV: for each lease: id, ttl
local LOST, EXTENDED, WANTED = 0, 1, 2

local function extend(s, id, ttl, now_ms)
  local mark = redis.pcall('GET', s.lock)
  if type(mark) ~= 'string' then return LOST end
  if owner_of(mark) == id then
    redis.call('PEXPIRE', s.lock, ttl)
  else
    local ends = mark == SHARED and tonumber(redis.call('ZSCORE', s.sharers, id) or 0) or 0
    if ends <= now_ms then return LOST end
    share(s, mark, id, ttl, now_ms)
  end
  if redis.call('HEXISTS', s.notes, 'y' .. id) == 0 then return EXTENDED end
  prolong(s.notes, ttl)
  return WANTED
end

local answers, now_ms = {}, clock_ms()
for nth = 1, #KEYS / 3 do
  answers[nth] = extend(keys_at(nth, KEYS), ARGV[nth * 2 - 1], tonumber(ARGV[nth * 2]), now_ms)
end
return answers
