-- The common case of entering a line, in ten commands and without any of what follows: an exclusive claim is put behind others
-- who wait for the one who holds alone.
--   ARGV: `id channel note`, holding ms, what it wants, waiting ms, ms to remember tickets
if ARGV[3] == 'xq0' then
  local call, lock, entries, id = redis.call, KEYS[1], KEYS[5], string.sub(ARGV[1], 1, 32)
  local field, mark = call('HMGET', entries, 'u', 'c', 't', 'n', 'e', id), redis.pcall('GET', lock)
  local last = tonumber(field[4])
  if last and last < 9007199254740990 and field[1] == '0' and field[2] == 'w' and field[3] ~= id and not field[6]
    and type(mark) == 'string' and string.sub(mark, 1, 32) == field[3] then
    local time, first = call('TIME'), tonumber(call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')[2])
    local now_ms, before = time[1] * 1000 + math.floor(time[2] / 1000), call('ZCARD', KEYS[3])
    local ends = now_ms + ARGV[4]
    if first and first > now_ms and tonumber(field[5]) > ends + 1800000 and before < 100000 then
      local ticket = string.format('%.0f', last + 1)
      call('HSET', entries, id, 'x 4294967295 ' .. ticket .. string.sub(ARGV[1], 33), 'n', ticket)
      call('ZADD', KEYS[4], ends, id)
      call('ZADD', KEYS[3], ticket, id)
      return { 2, before + 1, tonumber(ARGV[4]), math.min(call('PTTL', lock), first - now_ms), -1, last + 1, last }
    end
  end
end

