-- The common case of leaving, in three commands and without any of what follows: an exclusive holder leaves a key that
-- nobody awaits, shares, observes or wishes for, and it is one of our own.
--   ARGV: what our channels begin with; then for each line: id
local call, replies, others, client = redis.call, {}, false, ' ' .. ARGV[1]
for nth = 1, #KEYS / 5 do
  local key = nth * 5 - 4
  local mark, ours = redis.pcall('GET', KEYS[key]), ARGV[nth + 1] .. client
  if type(mark) == 'string' and string.sub(mark, 1, #ours) == ours and call('EXISTS', KEYS[key + 4]) == 0 then
    call('DEL', KEYS[key])
    replies[nth] = 2
  else
    others = true
  end
end
if not others then return replies end

