-- Who has these keys.   KEYS: for each: lock, sharers, notes
-- Answers with this server's time in ms, then for each key a sight, or the type of what is in the way.
local now_ms = clock_ms()
local answers = { string.format('%.0f', now_ms) }
for nth = 1, #KEYS / 3 do
  local s = keys_at(nth, KEYS)
  local mark, in_the_way = settled(s, now_ms)
  answers[nth + 1] = in_the_way or sight(s, mark, now_ms)
end
return answers
