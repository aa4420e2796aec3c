-- The common cases of leaving, without any of what follows: a holder of our own that holds alone.
--   ARGV: id and what our channels begin with, as a mark begins that was written without a look at the line
local call, mark, ours = redis.call, redis.pcall('GET', KEYS[1]), ARGV[1]
if type(mark) == 'string' then

  -- A key that has no line, which such a mark says: in two commands.
  if string.sub(mark, 1, #ours) == ours then
    call('DEL', KEYS[1])
    return 2
  end

  -- One that several wait for alone, and nobody observes: in twelve.
  local id = string.sub(ours, 1, 32)
  if string.sub(mark, 1, 32) == id and string.sub(mark, 34, #ours) == string.sub(ours, 34) then
    local entries, queue, leases, time = KEYS[5], KEYS[3], KEYS[4], call('TIME')
    local field, now_ms = call('HMGET', entries, 'u', 'o', 't', 'e'), time[1] * 1000 + math.floor(time[2] / 1000)
    local heads = call('ZRANGE', queue, 0, 1)
    local head = heads[1]
    if heads[2] and field[1] == '0' and not field[2] and field[3] == id
      and tonumber(field[4]) > now_ms + 1800000 then
      local record, ends = call('HGET', entries, head), tonumber(call('ZSCORE', leases, head) or 0)
      local ticket, told, note = string.match(record or '', '^x %d+ (%d+) (%S+) (.*)$')
      if ticket and ends > now_ms then
        call('ZREM', queue, head)
        call('ZREM', leases, head)
        call('HDEL', entries, head, 'y' .. id)
        call('HSET', entries, 't', head)
        call('SET', KEYS[1], head .. '+' .. told .. ' ' .. ticket .. ' ' .. note, 'PX', ends - now_ms)
        call('PUBLISH', told, 'g ' .. head .. ' ' .. ticket)
        return 2
      end
    end
  end
end

