-- Keeps the leases of the permits of gateways, each with the time at which it ends.
-- KEYS: the key of the store's mark, the key of the leases. ARGV: the mark that the gateway knows, its lease, `begin`,
-- `renew` or `end`, and the life of the lease in microseconds.
-- Returns 1; -1 if the store has another mark, and -2 if the lease to be renewed has ended.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return -1 end
-- How long the leases are kept without a change, in milliseconds: longer than any of them lives.
local KEPT_MILLIS = 7200000
-- The longest life of a lease, in microseconds: see `permit_lease`.
local LONGEST_LIFE_MICROS = 3600000000

local lease, step = ARGV[2], ARGV[3]
if step == 'end' then
  redis.call('ZREM', KEYS[2], lease)
  return 1
end
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
-- This server's clock may have gone back: a lease that seems to end later than any can ends after the longest life.
local latest = string.format('%.0f', now + LONGEST_LIFE_MICROS)
local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
while last[1] and tonumber(last[2]) > tonumber(latest) do
  redis.call('ZADD', KEYS[2], latest, last[1])
  last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now))
if step == 'renew' and not redis.call('ZSCORE', KEYS[2], lease) then return -2 end
redis.call('ZADD', KEYS[2], string.format('%.0f', now + tonumber(ARGV[4])), lease)
redis.call('PEXPIRE', KEYS[2], KEPT_MILLIS)
return 1
