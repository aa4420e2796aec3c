-- Gives a lock up, and tells those who wait for it.
--   KEYS: lock, sharers, notes, left
--   ARGV: id, ms for which the owner is refused from now on (or 0), 1 if it was held, the channel of whoever asks, the
--         channel on which releases of this key are told
local mark, ours = redis.pcall('GET', KEYS[1]), ARGV[1] .. ' ' .. ARGV[4] .. ' '
if ARGV[2] ~= '0' then redis.call('SET', KEYS[4], '', 'PX', ARGV[2]) end
if type(mark) == 'string' and string.sub(mark, 1, #ours) == ours then
  redis.call('DEL', KEYS[1])
  if ARGV[3] == '1' then redis.call('PUBLISH', ARGV[5], ARGV[1]) end
  return 1
end
if not mark then return 0 end
