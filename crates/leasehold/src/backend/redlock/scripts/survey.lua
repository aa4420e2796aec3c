-- What this server remembers: 1, its epoch, the highest of its fences, its longest lease; or 0 and the mark by which it is
-- known whether it forgot once more.   KEYS: memory   ARGV: a mark, in case it has none
local memory = redis.call('ZMSCORE', KEYS[1], 'epoch', 'longest')
local highest, members = 0, redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for at = 1, #members, 2 do
  local mark = string.match(members[at], '^blank:(%d+)$')
  if mark and not memory[1] then return { 0, mark } end
  if string.match(members[at], '^f%d+:') then highest = math.max(highest, tonumber(members[at + 1])) end
end
if memory[1] then return { 1, memory[1], string.format('%.0f', highest), memory[2] } end
redis.call('ZADD', KEYS[1], 0, 'blank:' .. ARGV[1])
return { 0, ARGV[1] }
