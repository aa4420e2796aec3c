-- The common case of leaving, in three commands and without any of what follows: an exclusive holder of our own leaves a
-- key that nobody awaits, observes or wishes for. Its entry stays in the line, for nobody to see, until the next is
-- written over it.
--   ARGV: what our channels begin with; then for each line: id
local call, replies, others = redis.call, {}, false
for nth = 1, #KEYS / 5 do
  if redis.pcall('GET', KEYS[nth * 5 - 4]) == ARGV[nth + 1] then
    local line = call('GET', KEYS[nth * 5 - 3])
    if line and string.find(line, '^%d+ 0 0 0 0 ') and string.find(line, ARGV[1], 1, true) then
      call('DEL', KEYS[nth * 5 - 4])
      replies[nth] = 2
    end
  end
  others = others or not replies[nth]
end
if not others then return replies end

