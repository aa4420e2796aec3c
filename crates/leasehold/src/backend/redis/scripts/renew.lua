-- Extends leases that have not ended, and never brings one back.
--   ARGV: for each line: id, ttl
local LOST, RENEWED, WANTED = 0, 1, 2

local function renew(s, id, ttl, now_ms)
  s.mark = read_mark(s.lock)
  if s.mark == mark_of(id) then
    redis.call('PEXPIRE', s.lock, ttl)
    -- Those who wait have shorter leases than what the line outlives any by.
    redis.call('PEXPIRE', s.line, FLOOR_MS + ttl)
  else
    local ends = tonumber(redis.call('ZSCORE', s.leases, id) or 0)
    if ends <= now_ms then return LOST end
    if not redis.call('ZSCORE', s.queue, id) then
      if s.mark ~= SHARED then return LOST end
      share_for(s, ttl)
    end
    redis.call('ZADD', s.leases, math.max(ends, now_ms + ttl), id)
    local life = math.max(FLOOR_MS + ttl, redis.call('PTTL', s.line))
    for _, key in ipairs({ s.line, s.queue, s.leases, s.entries }) do redis.call('PEXPIRE', key, life) end
  end
  return redis.call('HEXISTS', s.entries, 'y' .. id) == 1 and WANTED or RENEWED
end

local answers, now_ms = {}, math.floor(server_time() / 1000)
for nth = 1, #KEYS / 5 do
  answers[nth] = renew(keys_at(nth), ARGV[nth * 2 - 1], tonumber(ARGV[nth * 2]), now_ms)
end
return answers
