-- Extends leases that have not ended, and never brings one back.
--   ARGV: for each line: id, ttl
-- Answers for each whether it was renewed, and adds what else there is to say: that its holder is asked to let go, that it waits.
local LOST, RENEWED, WANTED, WAITS = 0, 1, 1, 2

local function renew(s, id, ttl, now_ms)
  s.mark = read_mark(s.lock)
  local field, answer = redis.call('HMGET', s.entries, 'e', 'y' .. id), RENEWED
  if owner_of(s) == id then
    redis.call('PEXPIRE', s.lock, ttl)
    -- Its ticket is remembered as long as it is held, by the line if there is one.
    if not field[1] then redis.call('PEXPIRE', s.tickets, KEEP_MS + ttl) end
  else
    local ends = tonumber(redis.call('ZSCORE', s.leases, id) or 0)
    if ends <= now_ms then return LOST end
    if redis.call('ZSCORE', s.queue, id) then
      answer = answer + WAITS
    elseif s.mark == SHARED then
      share_for(s, ttl)
    else
      return LOST
    end
    redis.call('ZADD', s.leases, math.max(ends, now_ms + ttl), id)
  end
  if field[1] and tonumber(field[1]) < now_ms + KEEP_MS / 2 + ttl then
    redis.call('HSET', s.entries, 'e', text(now_ms + KEEP_MS + ttl))
    keep_for(s, KEEP_MS + ttl)
  end
  return field[2] and answer + WANTED or answer
end

local answers, now_ms = {}, math.floor(server_time() / 1000)
for nth = 1, #KEYS / 5 do
  answers[nth] = renew(keys_at(nth), ARGV[nth * 2 - 1], tonumber(ARGV[nth * 2]), now_ms)
end
return answers
