-- Extends leases that have not ended, and never brings one back.
--   ARGV: for each line: id, ttl
local LOST, RENEWED, WANTED = 0, 1, 2

local function renew(s, id, ttl, now_ms)
  local mark = read_mark(s.lock)
  if mark == mark_of(id) then
    redis.call('PEXPIRE', s.lock, ttl)
    redis.call('PEXPIRE', s.line, FLOOR_MS + ttl)
  else
    local ends = tonumber(redis.call('ZSCORE', s.leases, id) or 0)
    if ends <= now_ms then return LOST end
    if not redis.call('ZSCORE', s.queue, id) then
      if mark ~= SHARED then return LOST end
      s.mark = mark
      share_for(s, ttl)
    end
    redis.call('ZADD', s.leases, math.max(ends, now_ms + ttl), id)
    outlive(s, ttl)
  end
  return redis.call('HEXISTS', s.line, 'y' .. id) == 1 and WANTED or RENEWED
end

local replies, now_ms = {}, math.floor(now_us() / 1000)
for nth = 1, #KEYS / 4 do
  replies[nth] = renew(keys_at(nth), ARGV[nth * 2 - 1], tonumber(ARGV[nth * 2]), now_ms)
end
return replies
