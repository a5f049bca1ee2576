-- Keeps the list of gateways that use this store: those whose last beat is at most ten seconds old.
-- KEYS: the key of the store's mark, the key of the list. ARGV: the mark that the gateway knows, its number or ''.
-- Returns the time in microseconds, then the number of each gateway and the time of its last beat. If the store has
-- another mark, it changes nothing and returns only -1.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return { -1 } end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
if ARGV[2] ~= '' then redis.call('ZADD', KEYS[2], string.format('%.0f', now), ARGV[2]) end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now - 10000000))
local list, gateway = { now }, nil
for _, value in ipairs(redis.call('ZRANGE', KEYS[2], 0, 999, 'WITHSCORES')) do
  if not gateway then
    gateway = value
  else
    local at = tonumber(value)
    -- This server's clock went back: a beat later than now counts as one of now.
    if at > now then
      redis.call('ZADD', KEYS[2], string.format('%.0f', now), gateway)
      at = now
    end
    list[#list + 1], list[#list + 2], gateway = tonumber(gateway), at, nil
  end
end
return list
