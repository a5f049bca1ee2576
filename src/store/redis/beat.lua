-- Keeps the list of gateways that use this store: those that were heard of in the last ten seconds.
-- KEYS: the mark of the store's life, the list. ARGV: the mark that the gateway knows, its number or nothing.
-- Returns the time in microseconds, then number and time of each.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return { -1 } end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
if ARGV[2] ~= '' then redis.call('ZADD', KEYS[2], string.format('%.0f', now), ARGV[2]) end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now - 10000000))
local list, who = { now }, nil
for _, value in ipairs(redis.call('ZRANGE', KEYS[2], 0, 999, 'WITHSCORES')) do
  if not who then
    who = value
  else
    local at = tonumber(value)
    -- This server's clock went back: who was heard of later than now was heard of now.
    if at > now then
      redis.call('ZADD', KEYS[2], string.format('%.0f', now), who)
      at = now
    end
    list[#list + 1], list[#list + 2], who = tonumber(who), at, nil
  end
end
return list
