-- The common case of entering, in three commands and without any of what follows: an exclusive claim on a key that is free,
-- and that nobody awaits, shares, observes or wishes for. Answers with the ticket alone.
--   ARGV: our channel, holding ms, waiting ms, ms to remember tickets; then for each line: id, what it wants, note
local call, replies, others, hold_ms, channel = redis.call, {}, false, ARGV[2], ' ' .. ARGV[1] .. ' '
for nth = 1, #KEYS / 5 do
  local key, arg = nth * 5 - 4, nth * 3 + 2
  local lock, wants = KEYS[key], ARGV[arg + 1]
  if wants == 'xq0' or wants == 'xr0' then
    if call('SET', lock, ARGV[arg] .. channel .. ARGV[arg + 2], 'NX', 'PX', hold_ms) then
      if call('EXISTS', KEYS[key + 4]) == 0 then
        local ticket = call('INCR', KEYS[key + 1])
        if ticket > 1000000000000 and ticket <= 9007199254740990 then replies[nth] = ticket end
      end
      if not replies[nth] then call('DEL', lock) end
    end
  end
  others = others or not replies[nth]
end
if not others then return replies end

