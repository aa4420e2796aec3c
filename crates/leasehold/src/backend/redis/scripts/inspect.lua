-- Who holds and who waits, each as id, entry, lease and wish.   ARGV: whether to tell observers of changes from now on
local s = keys_at(1)
local fine, in_the_way = settled(s, '')
if not fine then return { in_the_way } end
settle(s)
if ARGV[1] == '1' then observe(s) end
save(s)
local waiters, queue = {}, redis.call('ZRANGE', s.queue, 0, -1)
for at, id in ipairs(queue) do
  waiters[at] = view_of(s, id, tonumber(redis.call('ZSCORE', s.leases, id)) - s.now_ms)
end
return { '', text(s.now), s.capacity, holders_of(s, -1), waiters, text(s.last) }
