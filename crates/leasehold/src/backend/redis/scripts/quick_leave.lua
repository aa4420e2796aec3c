-- The common cases of leaving, without any of what follows: a holder of our own that holds alone.
--   ARGV: id and what our channels begin with, as a mark begins that was written without a look at the line
local call, mark, ours = redis.call, redis.pcall('GET', KEYS[1]), ARGV[1]
if type(mark) == 'string' then

  -- A key that has no line, which such a mark says: in two commands.
  if string.sub(mark, 1, #ours) == ours then
    call('DEL', KEYS[1])
    return 2
  end

  local id = string.sub(ours, 1, 32)
  if string.sub(mark, 1, 32) == id and string.sub(mark, 34, #ours) == string.sub(ours, 34) then
    local tickets, queue, leases, entries = KEYS[2], KEYS[3], KEYS[4], KEYS[5]
    local field = call('HMGET', entries, 'u', 'o', 't', 'e', 'n')

    -- One whose line has ended since: in three.
    if not field[5] then
      call('DEL', KEYS[1])
      return 2
    end

    -- One that others wait for alone, and nobody observes: in twelve, whether one waits or several.
    local time, heads = call('TIME'), call('ZRANGE', queue, 0, 1)
    local now_ms, head, several = time[1] * 1000 + math.floor(time[2] / 1000), heads[1], heads[2]
    if head and field[1] == '0' and not field[2] and field[3] == id and tonumber(field[4]) > now_ms + 1800000 then
      local record, ends = call('HGET', entries, head), tonumber(call('ZSCORE', leases, head) or 0)
      local ticket, told, note = string.match(record or '', '^x %d+ (%d+) (%S+) (.*)$')
      -- Beside the only one who waits there are five numbers; a wish is something more.
      if ticket and ends > now_ms and (several or call('HLEN', entries) == 6) then
        if several then
          call('ZREM', queue, head)
          call('ZREM', leases, head)
          call('HDEL', entries, head, 'y' .. id)
          call('HSET', entries, 't', head)
        else
          call('DEL', queue, leases, entries)
          call('ZADD', tickets, field[5], 't')
          call('PEXPIRE', tickets, 3600000)
        end
        call('SET', KEYS[1], head .. '+' .. told .. ' ' .. ticket .. ' ' .. note, 'PX', ends - now_ms)
        call('PUBLISH', told, 'g ' .. head .. ' ' .. ticket)
        return 2
      end
    end
  end
end

