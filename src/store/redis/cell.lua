-- Decides about all limits of one request: checks all, then takes all, or none. The arithmetic is that of
-- src/limit, in microseconds of this server's clock, so that clocks of gateways do not matter.
--
-- KEYS: the mark of the store's life, then one key for each part.
-- ARGV: the mark that the gateway knows, then everything else as doubles; see src/store/redis/wire.rs.
-- Returns doubles: 1 admitted, 0 refused; then the time and the parts' answers. Only -1, and nothing is
-- done, where the mark is another: what the gateway takes for known may be lost.
--
-- A value: newest stamp in ticks (double), place of the next stamp, stamps that are there, places (all 32
-- bits), number of gateways; for each gateway, those heard of lately at the end, its number, all units it was
-- ever granted (double), its highest give-back, and which of the 52 before that were met (double); then what the
-- kind of limit remembers. Gateway 0 stands first where some were forgotten. Expiry only collects garbage.

local pack, unpack, table_unpack = struct.pack, struct.unpack, unpack
local floor, ceil, max, min = math.floor, math.ceil, math.max, math.min

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return pack('<d', -1) end

local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local input, at = ARGV[2], 1
local function number()
  local value
  value, at = unpack('<d', input, at)
  return value
end

local NOTHING, SHADOWS, FORGET = 0, 2, 3
local LOG, RINGS, FIXED, GCRA, LEAKY = 1, 2, 3, 4, 5
local WITHIN, OVER, REFUSED, NEVER = 0, 1, 2, 3
local HEAD, EACH, BACKS = 24, 24, 52
-- A value with so few bytes of gateways is written in one piece.
local SMALL = 10 * EACH
-- Bytes of a stamp, and how it is written.
local WIDE, STAMP = 3, '<I3'

-- Stamps of the log, as a string of 24-bit numbers.
local function stamp(cell, place)
  local slot = (cell.next - cell.len + place) % cell.room
  local value = unpack(STAMP, cell.body, slot * WIDE + 1)
  return cell.newest - (cell.newest - value) % 2 ^ (8 * WIDE)
end

local function first_inside(cell, window)
  local tick, ticks = floor(now / cell.tick), ceil(window / cell.tick)
  if cell.len == 0 or tick >= cell.newest + ticks then return cell.len end
  local low, high = 0, cell.len
  while low < high do
    local middle = floor((low + high) / 2)
    if tick - stamp(cell, middle) < ticks then high = middle else low = middle + 1 end
  end
  return low
end

-- The stamps from place `first` on, oldest first.
local function stamps(cell, first)
  if first >= cell.len then return '' end
  local from, to = (cell.next - cell.len + first) % cell.room, cell.next
  if from < to then return cell.body:sub(from * WIDE + 1, to * WIDE) end
  return cell.body:sub(from * WIDE + 1, cell.room * WIDE) .. cell.body:sub(1, to * WIDE)
end

local function relay(cell, text, room)
  cell.body, cell.len, cell.room = text, #text / WIDE, room
  cell.next, cell.whole = cell.len % room, true
end

local function covered(ring, span)
  return max(floor(now / ring.length) - span, ring.current + 1 - ring.kept), ring.current
end

local function fixed_number(window) return floor((now + window.first) / window.length) end

-- This server's clock went back, or another server has taken over whose clock is behind: what was counted later
-- than now counts as of now, or it would count for longer than its window.
local rewind = {}

rewind[LOG] = function(cell)
  local ahead = cell.newest - ceil(now / cell.tick)
  if cell.len == 0 or ahead <= 0 then return false end
  local list = {}
  for place = 0, cell.len - 1 do
    list[place + 1] = pack(STAMP, (stamp(cell, place) - ahead) % 2 ^ (8 * WIDE))
  end
  cell.newest = cell.newest - ahead
  relay(cell, table.concat(list), cell.room)
  return true
end
rewind[RINGS] = function(cell)
  local back = false
  for _, ring in ipairs(cell.rings) do
    local ahead = ring.current - floor(now / ring.length)
    if ahead > 0 then
      local before = { table_unpack(ring, 1, ring.kept) }
      for slot = 0, ring.kept - 1 do ring[(slot - ahead) % ring.kept + 1] = before[slot + 1] end
      ring.current, back = ring.current - ahead, true
    end
  end
  return back
end
rewind[FIXED] = function(cell)
  local back = false
  for _, window in ipairs(cell.windows) do
    local number = fixed_number(window)
    if window.units > 0 and window.number > number then window.number, back = number, true end
  end
  return back
end
-- A rate that has changed since keeps the units that are used, and gives them its own pace.
rewind[GCRA] = function(cell)
  local back = false
  for _, window in ipairs(cell.windows) do
    local ahead = window.arrival - now
    if ahead > 0 and window.paced > 0 and window.paced ~= window.pace then
      ahead = min(ceil(ahead * window.pace / window.paced), window.most - window.pace)
      window.arrival, back = now + ahead, true
    end
  end
  -- Not by how far ahead it is: what is given back soon may count beyond the limit until then.
  local later = cell.newest - now
  if later > 0 then
    for _, window in ipairs(cell.windows) do window.arrival = window.arrival - later end
    cell.newest, back = now, true
  end
  return back
end
rewind[LEAKY] = rewind[GCRA]

local used, wait, apply, bound = {}, {}, {}, {}

used[LOG] = function(cell, window) return cell.len - first_inside(cell, window.length) end
wait[LOG] = function(cell, window, units)
  local place = min(first_inside(cell, window.length) + units - 1, cell.len - 1)
  return (stamp(cell, max(place, 0)) + ceil(window.length / cell.tick)) * cell.tick - now
end
apply[LOG] = function(cell, units)
  local gone = first_inside(cell, cell.longest)
  cell.len = cell.len - gone
  if cell.len == 0 then
    cell.next = 0
    cell.newest = ceil(now / cell.tick)
  end
  cell.newest = max(cell.newest, ceil(now / cell.tick))
  -- What gateways counted without the store may be more than one of them asks room for.
  if cell.len + units > cell.room then relay(cell, stamps(cell, 0), cell.len + units) end
  cell.len = cell.len + units
  local text = pack(STAMP, cell.newest % 2 ^ (8 * WIDE)):rep(units)
  local before = min(units, cell.room - cell.next)
  cell.writes = cell.writes or {}
  local function write(place, piece)
    if piece == '' then return end
    if #cell.body < place * WIDE then cell.body = cell.body .. ('\0'):rep(place * WIDE - #cell.body) end
    cell.body = cell.body:sub(1, place * WIDE) .. piece .. cell.body:sub(place * WIDE + #piece + 1)
    table.insert(cell.writes, { place, piece })
  end
  write(cell.next, text:sub(1, before * WIDE))
  write(0, text:sub(before * WIDE + 1))
  cell.next = (cell.next + units) % cell.room
end

used[RINGS] = function(cell, window)
  local ring, sum = cell.rings[window.first + 1], 0
  local oldest, newest = covered(ring, ceil(window.length / ring.length))
  for number = oldest, newest do sum = sum + ring[number % ring.kept + 1] end
  return sum
end
wait[RINGS] = function(cell, window, units)
  local ring = cell.rings[window.first + 1]
  local span = ceil(window.length / ring.length)
  local oldest, newest = covered(ring, span)
  for number = oldest, newest do
    units = units - ring[number % ring.kept + 1]
    if units <= 0 then return (number + span + 1) * ring.length - now end
  end
  return 0
end
apply[RINGS] = function(cell, units)
  for _, ring in ipairs(cell.rings) do
    local number = floor(now / ring.length)
    for left = max(ring.current + 1, number - ring.kept + 1), number do
      ring[left % ring.kept + 1] = 0
    end
    ring.current = number
    local slot = number % ring.kept + 1
    ring[slot] = min(ring[slot] + units, 4294967295)
  end
end

used[FIXED] = function(cell, window)
  return window.number == fixed_number(window) and window.units or 0
end
wait[FIXED] = function(cell, window)
  return (fixed_number(window) + 1) * window.length - window.first - now
end
apply[FIXED] = function(cell, units)
  for _, window in ipairs(cell.windows) do
    local before = used[FIXED](cell, window)
    window.number, window.units = fixed_number(window), before + units
  end
end

used[GCRA] = function(cell, window)
  return max(0, ceil((window.arrival - now - window.second) / window.first))
end
wait[GCRA] = function(cell, window, units)
  local left = max(0, used[GCRA](cell, window) - units)
  return window.arrival - now - window.second - left * window.first
end
apply[GCRA] = function(cell, units)
  for _, window in ipairs(cell.windows) do
    window.arrival = max(window.arrival, now) + units * window.first
  end
end
used[LEAKY], wait[LEAKY], apply[LEAKY] = used[GCRA], wait[GCRA], apply[GCRA]

-- What many gateways admitted while each took itself for the only one makes nobody wait for many windows. Twice what
-- may be ahead, for a part of it may be given back soon.
bound[GCRA] = function(cell)
  for _, window in ipairs(cell.windows) do
    window.arrival = min(window.arrival, now + 2 * window.most)
  end
end
bound[LEAKY] = bound[GCRA]

-- What is lent: a meter that leaks at the pace of the moment.
local function lent_level(cell)
  local since = now - cell.lent_last
  if since >= cell.forgotten then return 0 end
  return max(0, cell.lent_level - since / cell.interval)
end

