-- Stores entries that gateways share, such as bans. Of two values of one entry the one with the greater beginning is newer.
-- KEYS: the key of the entries, the key of their version.
-- ARGV: a new version, and the length of the beginning. Then the mark with which names of entries begin that give way, the
-- most entries before no new one of these is taken, and the most before no new one at all is taken. Then for each entry its
-- name, its value, and whether this value is over and to be removed (1 or 0).
-- Returns the number of changed entries.

local order_bytes, changed_count = tonumber(ARGV[2]), 0
local mark, most_yielding, most = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

local function has_room(name)
  local is_yielding = string.sub(name, 1, #mark) == mark
  return redis.call('HLEN', KEYS[1]) < (is_yielding and most_yielding or most)
end

for index = 6, #ARGV, 3 do
  local name, value, is_over = ARGV[index], ARGV[index + 1], ARGV[index + 2] == '1'
  local stored = redis.call('HGET', KEYS[1], name) or ''
  local stored_order = string.sub(stored, 1, order_bytes)
  local order = string.sub(value, 1, order_bytes)
  if is_over and stored_order ~= '' and stored_order <= order then
    redis.call('HDEL', KEYS[1], name)
    changed_count = changed_count + 1
  elseif not is_over and stored_order < order and (stored ~= '' or has_room(name)) then
    redis.call('HSET', KEYS[1], name, value)
    changed_count = changed_count + 1
  end
end
if changed_count > 0 then redis.call('SET', KEYS[2], ARGV[1]) end
return changed_count
