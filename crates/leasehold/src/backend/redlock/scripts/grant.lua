local s, now_ms = keys_at(1, KEYS), clock_ms()
local mark, in_the_way = settled(s, now_ms)
if in_the_way then return { IN_THE_WAY, in_the_way } end
local id, ttl = ARGV[1], tonumber(ARGV[2])
if ARGV[7] == 'x' then
  if owner_of(mark) == id then return granted() end
  if mark then return { BUSY, sight(s, mark, now_ms) } end
  call('SET', s.lock, id .. ' ' .. record, 'PX', ttl)
  return granted()
end
if mark and mark ~= SHARED then return { BUSY, sight(s, mark, now_ms) } end
if not call('ZSCORE', s.sharers, id) then share(s, mark, id, ttl, now_ms, record) end
return granted()
