-- What this server remembers: 1, its epoch, the highest of its fences, its longest lease; or 0 and the mark by which it is
-- known whether it forgot once more.   KEYS: memory   ARGV: a mark, in case it has none
local epoch = redis.call('HGET', KEYS[1], 'epoch')
if not epoch then
  redis.call('HSETNX', KEYS[1], 'blank', ARGV[1])
  return { 0, redis.call('HGET', KEYS[1], 'blank') }
end
local highest, fields = 0, redis.call('HGETALL', KEYS[1])
for at = 1, #fields, 2 do
  local field = fields[at]
  if field == 'floor' or string.match(field, '^f%d+$') then highest = math.max(highest, tonumber(fields[at + 1])) end
end
return { 1, epoch, string.format('%.0f', highest), redis.call('HGET', KEYS[1], 'longest') }
