-- The script that decides about all limits of one request: it checks all limits, then takes units of all, or of none.
-- This file is its first half, the arithmetic of src/limit. Times are microseconds of this server's clock, so the
-- gateways' clocks do not matter.
--
-- KEYS: the key of the store's mark, then one key for each part.
-- ARGV: the mark that the gateway knows, then the call as doubles; src/store/redis/wire.rs encodes it.
-- Returns doubles: 1 admitted, 0 refused; then the time and the parts' replies. If the store has another mark, it
-- changes nothing and returns only -1, because counts that the gateway relies on may be lost. It returns -2 if units are
-- asked for, and the clocks of the server and of the gateway differ by more than a window of the calendar.
--
-- The value of a key is a head, a list of gateways, and a body that depends on the kind of limit.
-- Head: newest stamp in ticks (double), place of the next stamp, number of stamps, places for stamps, number of
-- gateways (32 bits each).
-- Entry of a gateway: its number, all units it was ever granted (double), its highest give-back, and which of the 52
-- give-backs before that were applied (double). The latest active gateways are last. Gateway 0 is first in the list
-- where others were dropped from it.
-- Keys expire only after they no longer count.

local pack, unpack, table_unpack = struct.pack, struct.unpack, unpack
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return pack('<d', -1) end

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local input, position = ARGV[2], 1
local function read_number()
  local value
  value, position = unpack('<d', input, position)
  return value
end

-- Which parts take units, the kinds of limits, and how a limit stands: the numbers of src/store/redis/wire.rs.
local NOTHING, SHADOWS, FORGET = 0, 2, 3
local LOG, RINGS, FIXED, GCRA, LEAKY, CALENDAR = 1, 2, 3, 4, 5, 6
local WITHIN, OVER, REFUSED, NEVER = 0, 1, 2, 3
local HEAD_BYTES, ENTRY_BYTES, GIVE_BACK_BITS = 24, 24, 52
-- The places in a decoded entry of a gateway.
local TOTAL, LAST_GIVE_BACK, APPLIED_BITS = 2, 3, 4
-- With a list of at most so many bytes, head and list are written in one piece.
local SMALL_LIST_BYTES = 10 * ENTRY_BYTES
-- Bytes of a stamp, and its format.
local STAMP_BYTES, STAMP_FORMAT = 3, '<I3'

-- The stamp at a place of the log, 0 being the oldest. The body holds the lowest 24 bits of each stamp.
local function stamp_at(cell, place)
  local slot = (cell.next_slot - cell.stamp_count + place) % cell.room
  local value = unpack(STAMP_FORMAT, cell.body, slot * STAMP_BYTES + 1)
  return cell.newest - (cell.newest - value) % 2 ^ (8 * STAMP_BYTES)
end

-- The place of the oldest stamp inside a window.
local function first_inside(cell, window)
  local tick, ticks = floor(now / cell.tick), ceil(window / cell.tick)
  if cell.stamp_count == 0 or tick >= cell.newest + ticks then return cell.stamp_count end
  local low, high = 0, cell.stamp_count
  while low < high do
    local middle = floor((low + high) / 2)
    if tick - stamp_at(cell, middle) < ticks then high = middle else low = middle + 1 end
  end
  return low
end

-- The stamps from place `first` on, oldest first.
local function stamps_from(cell, first)
  if first >= cell.stamp_count then return '' end
  local first_slot, end_slot = (cell.next_slot - cell.stamp_count + first) % cell.room, cell.next_slot
  if first_slot < end_slot then return cell.body:sub(first_slot * STAMP_BYTES + 1, end_slot * STAMP_BYTES) end
  return cell.body:sub(first_slot * STAMP_BYTES + 1, cell.room * STAMP_BYTES) .. cell.body:sub(1, end_slot * STAMP_BYTES)
end

-- Replaces the log by these stamps, with room for more.
local function replace_log(cell, text, room)
  cell.body, cell.stamp_count, cell.room = text, #text / STAMP_BYTES, room
  cell.next_slot, cell.rewrites_all = cell.stamp_count % room, true
end

-- The oldest and the newest number of a ring's buckets that a window covers, of which `span` come before the current one.
local function covered_numbers(ring, span)
  return max(floor(now / ring.length) - span, ring.current + 1 - ring.bucket_count), ring.current
end

-- The number of the current fixed window.
local function fixed_number(window) return floor((now + window.parameter) / window.length) end

-- If this server's clock went back, or a server whose clock is behind has taken over, units were counted later than now.
-- They count from now, or they would count for longer than their window. Returns whether a cell was changed.
local rewind = {}

rewind[LOG] = function(cell)
  local ahead = cell.newest - ceil(now / cell.tick)
  if cell.stamp_count == 0 or ahead <= 0 then return false end
  local list = {}
  for place = 0, cell.stamp_count - 1 do
    list[place + 1] = pack(STAMP_FORMAT, (stamp_at(cell, place) - ahead) % 2 ^ (8 * STAMP_BYTES))
  end
  cell.newest = cell.newest - ahead
  replace_log(cell, table.concat(list), cell.room)
  return true
end
rewind[RINGS] = function(cell)
  local changed = false
  for _, ring in ipairs(cell.rings) do
    local ahead = ring.current - floor(now / ring.length)
    if ahead > 0 then
      local former = { table_unpack(ring, 1, ring.bucket_count) }
      for slot = 0, ring.bucket_count - 1 do ring[(slot - ahead) % ring.bucket_count + 1] = former[slot + 1] end
      ring.current, changed = ring.current - ahead, true
    end
  end
  return changed
end
rewind[FIXED] = function(cell)
  local changed = false
  for _, window in ipairs(cell.windows) do
    local number = fixed_number(window)
    if window.units > 0 and window.number > number then window.number, changed = number, true end
  end
  return changed
end
-- How long a calendar's counter is kept behind its window, for a clock that goes back.
local CALENDAR_GRACE = 86400000000

-- The beginning and the end of the calendar's window by this server's clock: nil if the call names none.
local function calendar_window(window)
  local bounds = window.bounds
  for place = 1, 3 do
    if now >= bounds[place] and now < bounds[place + 1] then return bounds[place], bounds[place + 1] end
  end
end

-- Sets the window in which each count is now. Units of the next window stay there: a clock that goes back must not free the
-- units of a window twice. Units of other windows that have not ended move to the current one: those that are further
-- ahead, and those of another zone or start. They count until the current window ends. Each window has one count, so units
-- of an earlier window are forgotten with the first unit of a later one.
rewind[CALENDAR] = function(cell)
  local changed = false
  for _, window in ipairs(cell.windows) do
    local start, finish = calendar_window(window)
    if not start then
      cell.is_off_calendar = true
      -- For what takes nothing now: give-backs and reports.
      start, finish = window.start, window.finish
    end
    if window.units > 0 and window.start == finish then
      start, finish = window.start, window.finish
    elseif window.units > 0 and window.start ~= start then
      if window.start > start or window.finish > now then
        window.start, window.finish, changed = start, finish, true
      else
        window.units = 0
      end
    end
    window.current, window.current_end = start, finish
    cell.lifetime = max(cell.calendar_life or 0, finish - now + CALENDAR_GRACE)
    cell.calendar_life = cell.lifetime
  end
  return changed
end
-- When a rate was changed, the units in use stay, and leave at the new pace.
rewind[GCRA] = function(cell)
  local changed = false
  for _, window in ipairs(cell.windows) do
    local ahead = window.tat - now
    if ahead > 0 and window.stored_interval > 0 and window.stored_interval ~= window.plain_interval then
      ahead = min(ceil(ahead * window.plain_interval / window.stored_interval), window.max_lead - window.plain_interval)
      window.tat, changed = now + ahead, true
    end
  end
  -- Not by how far the theoretical arrival time (TAT) is ahead: units that are given back soon may count beyond the limit
  -- until then.
  local ahead = cell.newest - now
  if ahead > 0 then
    for _, window in ipairs(cell.windows) do window.tat = window.tat - ahead end
    cell.newest, changed = now, true
  end
  return changed
end
rewind[LEAKY] = rewind[GCRA]

-- For each kind of limit: the units used in a window; how long until so many of them are free; counts units; and, for
-- some kinds, bounds the wait.
local used, wait, apply, bound = {}, {}, {}, {}

used[LOG] = function(cell, window) return cell.stamp_count - first_inside(cell, window.length) end
wait[LOG] = function(cell, window, units)
  local place = min(first_inside(cell, window.length) + units - 1, cell.stamp_count - 1)
  return (stamp_at(cell, max(place, 0)) + ceil(window.length / cell.tick)) * cell.tick - now
end
apply[LOG] = function(cell, units)
  local expired = first_inside(cell, cell.longest)
  cell.stamp_count = cell.stamp_count - expired
  if cell.stamp_count == 0 then
    cell.next_slot = 0
    cell.newest = ceil(now / cell.tick)
  end
  cell.newest = max(cell.newest, ceil(now / cell.tick))
  -- Units that gateways admitted without the store may need more room than one of them asks for.
  if cell.stamp_count + units > cell.room then replace_log(cell, stamps_from(cell, 0), cell.stamp_count + units) end
  cell.stamp_count = cell.stamp_count + units
  local text = pack(STAMP_FORMAT, cell.newest % 2 ^ (8 * STAMP_BYTES)):rep(units)
  local units_before_end = min(units, cell.room - cell.next_slot)
  cell.writes = cell.writes or {}
  local function write(place, piece)
    if piece == '' then return end
    if #cell.body < place * STAMP_BYTES then cell.body = cell.body .. ('\0'):rep(place * STAMP_BYTES - #cell.body) end
    cell.body = cell.body:sub(1, place * STAMP_BYTES) .. piece .. cell.body:sub(place * STAMP_BYTES + #piece + 1)
    table.insert(cell.writes, { place, piece })
  end
  write(cell.next_slot, text:sub(1, units_before_end * STAMP_BYTES))
  write(0, text:sub(units_before_end * STAMP_BYTES + 1))
  cell.next_slot = (cell.next_slot + units) % cell.room
end

used[RINGS] = function(cell, window)
  local ring, sum = cell.rings[window.parameter + 1], 0
  local oldest, newest = covered_numbers(ring, ceil(window.length / ring.length))
  for number = oldest, newest do sum = sum + ring[number % ring.bucket_count + 1] end
  return sum
end
wait[RINGS] = function(cell, window, units)
  local ring = cell.rings[window.parameter + 1]
  local span = ceil(window.length / ring.length)
  local oldest, newest = covered_numbers(ring, span)
  for number = oldest, newest do
    units = units - ring[number % ring.bucket_count + 1]
    if units <= 0 then return (number + span + 1) * ring.length - now end
  end
  return 0
end
apply[RINGS] = function(cell, units)
  for _, ring in ipairs(cell.rings) do
    local number = floor(now / ring.length)
    for skipped = max(ring.current + 1, number - ring.bucket_count + 1), number do
      ring[skipped % ring.bucket_count + 1] = 0
    end
    ring.current = number
    local slot = number % ring.bucket_count + 1
    ring[slot] = min(ring[slot] + units, 4294967295)
  end
end

used[FIXED] = function(cell, window)
  return window.number == fixed_number(window) and window.units or 0
end
wait[FIXED] = function(cell, window)
  return (fixed_number(window) + 1) * window.length - window.parameter - now
end
apply[FIXED] = function(cell, units)
  for _, window in ipairs(cell.windows) do
    local units_before = used[FIXED](cell, window)
    window.number, window.units = fixed_number(window), units_before + units
  end
end

used[CALENDAR] = function(cell, window)
  return window.start == window.current and window.units or 0
end
wait[CALENDAR] = function(cell, window) return window.current_end - now end
apply[CALENDAR] = function(cell, units)
  for _, window in ipairs(cell.windows) do
    local units_before = used[CALENDAR](cell, window)
    window.start, window.finish, window.units = window.current, window.current_end, units_before + units
  end
end

used[GCRA] = function(cell, window)
  return max(0, ceil((window.tat - now - window.early_slack) / window.parameter))
end
wait[GCRA] = function(cell, window, units)
  local remaining = max(0, used[GCRA](cell, window) - units)
  return window.tat - now - window.early_slack - remaining * window.parameter
end
apply[GCRA] = function(cell, units)
  for _, window in ipairs(cell.windows) do
    window.tat = max(window.tat, now) + units * window.parameter
  end
end
used[LEAKY], wait[LEAKY], apply[LEAKY] = used[GCRA], wait[GCRA], apply[GCRA]

-- Bounds the wait after an outage in which each of many gateways took itself for the only one. The bound is twice the
-- limit's, because a part of the units may be given back soon.
bound[GCRA] = function(cell)
  for _, window in ipairs(cell.windows) do
    window.tat = min(window.tat, now + 2 * window.max_lead)
  end
end
bound[LEAKY] = bound[GCRA]

-- The units on loan: a meter that leaks at the current pace.
local function lent_level(cell)
  local elapsed = now - cell.lent_at
  if elapsed >= cell.forget_after then return 0 end
  return max(0, cell.lent_level - elapsed / cell.interval)
end

