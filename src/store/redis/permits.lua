-- Sets the number of permits of one key that one gateway holds. A call with the number 0 changes nothing.
-- KEYS: the key of the store's mark, the key of the leases, the key of the permits.
-- ARGV: the mark that the gateway knows, its lease, the number of the call, permits that it uses, permits that it needs,
-- permits that it takes in advance, all permits of the key, whether a gateway without permits is forgotten (1 or 0), and
-- the milliseconds for which the key is kept while somebody holds permits, and while nobody does.
-- Returns the permits that the gateway holds from now on, and those of other gateways. It changes nothing and returns only
-- -1 if the store has another mark, -2 if the lease has ended, and -3 if a later call came before.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return { -1 } end
local lease, call_number = ARGV[2], tonumber(ARGV[3])
local used, needed, spare = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local ceiling, forgets = tonumber(ARGV[7]), ARGV[8] == '1'

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local function is_alive(other)
  local ends_at = redis.call('ZSCORE', KEYS[2], other)
  return ends_at and tonumber(ends_at) > now
end
local reads = call_number == 0
if not reads and not is_alive(lease) then return { -2 } end

local others, last_call, holder = 0, 0, nil
for _, value in ipairs(redis.call('HGETALL', KEYS[3])) do
  if not holder then
    holder = value
  else
    local count, number = string.match(value, '^(%d+):(%d+)$')
    if holder == lease then
      last_call = tonumber(number)
    elseif is_alive(holder) then
      others = others + tonumber(count)
    elseif not reads then
      redis.call('HDEL', KEYS[3], holder)
    end
    holder = nil
  end
end
if reads then return { 0, others } end
if call_number <= last_call then return { -3 } end

local free = math.max(ceiling - others, 0)
local held = math.min(needed, free)
if held == needed then held = held + math.min(spare, math.floor((free - needed) / 2)) end
-- What requests use already counts in any case.
held = math.max(held, used)
if held == 0 and forgets then
  redis.call('HDEL', KEYS[3], lease)
else
  redis.call('HSET', KEYS[3], lease, string.format('%.0f:%.0f', held, call_number))
  redis.call('PEXPIRE', KEYS[3], (held + others > 0) and ARGV[9] or ARGV[10])
end
return { held, others }
