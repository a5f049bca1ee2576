-- Keeps the list of gateways that use this store: those whose last heartbeat is at most ten seconds old. The time of a
-- heartbeat is negative if the store does not know all units of its gateway.
-- KEYS: the key of the store's mark, the key of the list. ARGV: the mark that the gateway knows, its number or '', and
-- whether the store knows all its units (1 or 0).
-- Returns the time in microseconds, then the number of each gateway and the time of its last heartbeat. If the store has
-- another mark, it changes nothing and returns only -1.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return { -1 } end
-- How long a gateway counts as alive after its last heartbeat, in microseconds.
local ALIVE_MICROS = 10000000
-- The last rank of the gateways that are returned: 1,000 at most.
local LAST_RANK = 999

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local function record(gateway, sent_at)
  redis.call('ZADD', KEYS[2], string.format('%.0f', sent_at), gateway)
end
if ARGV[2] ~= '' then record(ARGV[2], ARGV[3] == '1' and now or -now) end
local oldest = now - ALIVE_MICROS
redis.call('ZREMRANGEBYSCORE', KEYS[2], string.format('%.0f', -oldest), string.format('%.0f', oldest))
local list, gateway = { now }, nil
for _, value in ipairs(redis.call('ZRANGE', KEYS[2], 0, LAST_RANK, 'WITHSCORES')) do
  if not gateway then
    gateway = value
  else
    local sent_at = tonumber(value)
    -- This server's clock went back: a heartbeat later than now counts as one of now, by which nothing is reported.
    if math.abs(sent_at) > now then
      sent_at = -now
      record(gateway, sent_at)
    end
    list[#list + 1], list[#list + 2], gateway = tonumber(gateway), sent_at, nil
  end
end
return list
