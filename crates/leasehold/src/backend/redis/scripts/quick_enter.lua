-- The common case of entering, in three commands and without any of what follows: an exclusive claim on a key that is free,
-- which nobody awaits, observes or wishes for. Answers with the ticket alone.
--   ARGV: our channel, holding ms, waiting ms, ms to keep the line; then for each line: id, what it wants, note
local call, match, format, max, time = redis.call, string.match, string.format, math.max, redis.call('TIME')
local replies, others, hold_ms, keep_ms = {}, false, ARGV[2], ARGV[4]
local now_us, channel = time[1] * 1000000 + time[2], ' ' .. ARGV[1] .. ' '
for nth = 1, #KEYS / 5 do
  local key, arg, number = nth * 5 - 4, nth * 3 + 2, nil
  local lock, wants = KEYS[key], ARGV[arg + 1]
  if (wants == 'xq0' or wants == 'xr0') and call('SET', lock, ARGV[arg], 'NX', 'PX', hold_ms) then
    local line = call('GET', KEYS[key + 1])
    local last = not line and 0 or tonumber(match(line, '^(%d+) 0 0 0 0 '))
    if last and last < 9007199254740990 then
      number = max(last + 1, now_us)
      local ticket = format('%.0f', number)
      line = ticket .. ' 0 0 0 0 w ' .. ARGV[arg] .. ' x 4294967295 ' .. ticket .. channel .. ARGV[arg + 2]
      call('SET', KEYS[key + 1], line, 'PX', keep_ms)
      replies[nth] = number
    else
      call('DEL', lock)
    end
  end
  others = others or not number
end
if not others then return replies end

