-- Decides about all limits of one request: checks all, then takes all, or none. The arithmetic is that of
-- src/limit, in microseconds of this server's clock, so that clocks of gateways do not matter.
--
-- KEYS: the mark of the store's life, then one key for each part.
-- ARGV: the mark that the gateway knows, then everything else as doubles; see src/store/redis/wire.rs.
-- Returns doubles: 1 admitted, 0 refused; then the time and the parts' answers. Only -1, and nothing is
-- done, where the mark is another: what the gateway takes for known may be lost.
--
-- A value: newest stamp in ticks (double), place of the next stamp, stamps that are there, places (all 32
-- bits), number of gateways; for each gateway, the one heard of last at the end, its number, all units it was
-- ever granted (double), its highest give-back, and which of the 52 before that were met (double); then what the
-- kind of limit remembers. Expiry only collects garbage.

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
local HEAD, EACH, MOST_GATEWAYS, BACKS = 24, 24, 64, 52
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

local function covered(cell, ring, span)
  local number = max(floor(now / ring.length), ring.current)
  return max(number - span, ring.current + 1 - ring.kept), ring.current
end

local function fixed_number(cell, window)
  local number = floor((now + window.first) / window.length)
  if window.units > 0 then number = max(number, window.number) end
  return number
end

local used, wait, apply = {}, {}, {}

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
  local oldest, newest = covered(cell, ring, ceil(window.length / ring.length))
  for number = oldest, newest do sum = sum + ring[number % ring.kept + 1] end
  return sum
end
wait[RINGS] = function(cell, window, units)
  local ring = cell.rings[window.first + 1]
  local span = ceil(window.length / ring.length)
  local oldest, newest = covered(cell, ring, span)
  for number = oldest, newest do
    units = units - ring[number % ring.kept + 1]
    if units <= 0 then return (number + span + 1) * ring.length - now end
  end
  return 0
end
apply[RINGS] = function(cell, units)
  for _, ring in ipairs(cell.rings) do
    local number = max(floor(now / ring.length), ring.current)
    for left = max(ring.current + 1, number - ring.kept + 1), number do
      ring[left % ring.kept + 1] = 0
    end
    ring.current = number
    local slot = number % ring.kept + 1
    ring[slot] = min(ring[slot] + units, 4294967295)
  end
end

used[FIXED] = function(cell, window)
  return window.number == fixed_number(cell, window) and window.units or 0
end
wait[FIXED] = function(cell, window)
  return (fixed_number(cell, window) + 1) * window.length - window.first - now
end
apply[FIXED] = function(cell, units)
  for _, window in ipairs(cell.windows) do
    local before = used[FIXED](cell, window)
    window.number, window.units = fixed_number(cell, window), before + units
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

-- What is lent: a meter that leaks at the pace of the moment.
local function lent_level(cell)
  local since = max(0, now - cell.lent_last)
  if since >= cell.forgotten then return 0 end
  return max(0, cell.lent_level - since / cell.interval)
end

local function read_body(cell, text)
  if cell.lends then
    cell.lent_last, cell.lent_level = 0, 0
    if #text >= 16 then cell.lent_last, cell.lent_level = unpack('<dd', text) end
    text = text:sub(17)
  end
  if cell.kind == LOG then
    cell.body = text
    if cell.stored_room ~= 0 and cell.stored_room ~= cell.room then
      local room, live = cell.room, nil
      cell.room = cell.stored_room
      live = stamps(cell, first_inside(cell, cell.longest))
      -- Another multiplier or another gateway's policy asks for less room; what counts stays.
      relay(cell, live, live == '' and room or max(room, cell.stored_room))
    end
  elseif cell.kind == RINGS then
    local place = 1
    for index, ring in ipairs(cell.rings) do
      local read = { current = 0, length = ring.length, kept = ring.kept }
      if #text >= place + 7 + ring.kept * 4 then
        read = { unpack('<' .. ('I4'):rep(ring.kept), text, place + 8) }
        read[ring.kept + 1] = nil
        read.current = unpack('<d', text, place)
        read.length, read.kept = ring.length, ring.kept
        place = place + 8 + ring.kept * 4
      else
        for slot = 1, ring.kept do read[slot] = 0 end
      end
      cell.rings[index] = read
    end
  else
    for index, window in ipairs(cell.windows) do
      local one, two = 0, 0
      if #text >= index * 16 then one, two = unpack('<dd', text, index * 16 - 15) end
      window.number, window.units, window.arrival = one, two, one
    end
  end
end

local function body(cell)
  local list = {}
  if cell.lends then list[1] = pack('<dd', cell.lent_last, cell.lent_level) end
  if cell.kind == LOG then
    -- Grown in steps, for a string that grows in place takes twice what it holds.
    local live = cell.next >= cell.len and cell.next or cell.room
    local wanted = min(cell.room, live + max(4, floor(live / 8)))
    list[#list + 1] = (cell.body .. ('\0'):rep(wanted * WIDE - #cell.body)):sub(1, wanted * WIDE)
  elseif cell.kind == RINGS then
    for _, ring in ipairs(cell.rings) do
      list[#list + 1] = pack('<d' .. ('I4'):rep(ring.kept), ring.current, table_unpack(ring, 1, ring.kept))
    end
  else
    for _, window in ipairs(cell.windows) do
      if cell.kind == FIXED then
        list[#list + 1] = pack('<dd', window.number, window.units)
      else
        list[#list + 1] = pack('<dd', window.arrival, 0)
      end
    end
  end
  return table.concat(list)
end

-- What the parts ask, and what is there.
local gateway, taking, count = number(), number(), number()
local cells = {}
for index = 1, count do
  local cell = { key = KEYS[index + 1], gateways = {} }
  cell.kind, cell.room, cell.tick = number(), number(), number()
  cell.shadow, cell.of = number() == 1, number()
  cell.cost, cell.want, cell.spread, cell.total, cell.within = number(), number(), number(), number(), number()
  cell.back, cell.back_at = number(), number()
  cell.lends, cell.interval, cell.lent_room, cell.forgotten = number() == 1, number(), number(), number()
  cell.kept = number()
  cell.windows, cell.rings = {}, {}
  for place = 1, number() do
    cell.windows[place] = { length = number(), base = number(), ceiling = number(), first = number(), second = number() }
    cell.longest = cell.windows[place].length
  end
  for place = 1, number() do cell.rings[place] = { length = number(), kept = number() } end
  local value = redis.call('GET', cell.key)
  cell.newest, cell.next, cell.len, cell.stored_room, cell.stored = 0, 0, 0, 0, value and #value or 0
  local text, many = '', nil
  if value then
    cell.newest, cell.next, cell.len, cell.stored_room, many = unpack('<dI4I4I4I4', value)
    for place = 1, many do
      local id, total, back, backs = unpack('<I4dI4d', value, HEAD + 1 + (place - 1) * EACH)
      cell.gateways[place] = { id, total, back, backs }
      if id == gateway then cell.mine = cell.gateways[place] end
    end
    text = value:sub(HEAD + many * EACH + 1)
  end
  -- The gateways stay: a total that was met must not count again.
  if taking == FORGET and value then
    text, cell.newest, cell.next, cell.len, cell.stored_room = '', 0, 0, 0, 0
    cell.known, cell.whole, cell.dirty = true, true, true
  end
  read_body(cell, text)
  cells[index] = cell
end

-- The gateway's own entry, moved to the end: of many the one that was heard of first makes room.
local function mine(cell)
  local entry = cell.mine or { gateway, 0, 0, 0 }
  for place, other in ipairs(cell.gateways) do
    if other == entry then
      table.remove(cell.gateways, place)
      break
    end
  end
  if #cell.gateways >= MOST_GATEWAYS then table.remove(cell.gateways, 1) end
  table.insert(cell.gateways, entry)
  cell.whole = cell.whole or not cell.mine
  cell.mine = entry
  return entry
end

local function save(cell)
  local list = { pack('<dI4I4I4I4', cell.newest, cell.next, cell.len, cell.kind == LOG and cell.room or 0, #cell.gateways) }
  for place, entry in ipairs(cell.gateways) do list[place + 1] = pack('<I4dI4d', table_unpack(entry)) end
  local head, life = table.concat(list), ceil(cell.kept / 1000) + 1000
  local offset = #head + (cell.lends and 16 or 0)
  if cell.kind == LOG and not cell.whole and offset + #cell.body <= cell.stored then
    if cell.lends then head = head .. pack('<dd', cell.lent_last, cell.lent_level) end
    redis.call('SETRANGE', cell.key, 0, head)
    for _, piece in ipairs(cell.writes or {}) do
      redis.call('SETRANGE', cell.key, offset + piece[1] * WIDE, piece[2])
    end
    redis.call('PEXPIRE', cell.key, life)
  else
    redis.call('SET', cell.key, head .. body(cell), 'PX', life)
  end
end

-- Whether a give-back is met for the first time. They come over several connections, so not always in order, and
-- their numbers begin anew after 2^32.
local function first_met(entry, number)
  local last, met = entry[3], entry[4]
  local ahead = (number - last) % 4294967296
  if last == 0 or (ahead > 0 and ahead < 2147483648) then
    entry[3], entry[4] = number, 0
    if last ~= 0 and ahead <= BACKS then
      entry[4] = (met * 2 ^ ahead + 2 ^ (ahead - 1)) % 2 ^ BACKS
    end
    return true
  end
  local bit = 2 ^ ((last - number) % 4294967296 - 1)
  if ahead == 0 or bit >= 2 ^ BACKS or floor(met / bit) % 2 == 1 then return false end
  entry[4] = met + bit
  return true
end

-- Units that were granted here once and came back unused, each give-back once.
local function give_back(cell)
  if not first_met(mine(cell), cell.back) then return end
  if cell.kind == LOG then
    local tick, text = cell.back_at / cell.tick, stamps(cell, 0)
    local units, place = cell.cost, #text / WIDE
    while place >= 1 and units > 0 do
      local value = stamp(cell, place - 1)
      if value < tick then break end
      if value == tick then
        text = text:sub(1, (place - 1) * WIDE) .. text:sub(place * WIDE + 1)
        units = units - 1
      end
      place = place - 1
    end
    relay(cell, text, cell.room)
  elseif cell.kind == RINGS then
    for _, ring in ipairs(cell.rings) do
      local number = floor(cell.back_at / ring.length)
      if number <= ring.current and number > ring.current - ring.kept then
        local slot = number % ring.kept + 1
        ring[slot] = max(0, ring[slot] - cell.cost)
      end
    end
  else
    for _, window in ipairs(cell.windows) do
      if cell.kind == FIXED then
        if window.number == floor((cell.back_at + window.first) / window.length) then
          window.units = max(0, window.units - cell.cost)
        end
      else
        window.arrival = window.arrival - cell.cost * window.first
      end
    end
  end
end

-- Says what a cell says, as Cell::eval does.
local function rank(a)
  if a.standing == NEVER then return 3, 0 end
  if a.standing == REFUSED then return 2, a.wait end
  if a.standing == OVER then return 1, 0 end
  return 0, -a.remaining
end
local function speaks_before(a, b)
  local one, two = rank(a)
  local three, four = rank(b)
  return one > three or (one == three and two >= four)
end

local function evaluate(cell)
  local over, delay, room, best = false, 0, 4294967295, nil
  for index, window in ipairs(cell.windows) do
    local total = used[cell.kind](cell, window)
    local said = { standing = WITHIN, window = index, remaining = max(0, window.base - total), wait = 0 }
    if cell.cost > window.ceiling then
      said.standing = NEVER
    elseif total + cell.cost > window.ceiling then
      said.standing = REFUSED
      said.wait = wait[cell.kind](cell, window, total + cell.cost - window.ceiling)
    else
      over = over or total + cell.cost > window.base
      room = min(room, window.ceiling - total)
      if cell.kind == LEAKY then delay = max(delay, window.arrival - now) end
    end
    if not best or speaks_before(said, best) then best = said end
  end
  -- When little is left, all gateways get of it.
  best.granted, best.delay, best.lent = max(cell.cost, min(cell.want, floor(room / cell.spread))), 0, false
  if best.standing == WITHIN then
    best.delay = delay
    if over then best.standing = OVER end
  elseif best.standing == REFUSED and cell.interval > 0 then
    local level = lent_level(cell) + cell.cost - 1
    local later = max(0, ceil((level - cell.lent_room) * cell.interval))
    best.wait = min(best.wait, later)
    if later == 0 then best.standing, best.lent, best.granted = OVER, true, cell.cost end
  end
  cell.said = best
end

local function admits(cell) return cell.said.standing == WITHIN or cell.said.standing == OVER end

local function take(cell)
  local units = cell.said.granted
  if units > 0 then
    if cell.said.lent then
      local level = lent_level(cell)
      cell.lent_last, cell.lent_level = max(now, cell.lent_last), level + units
    else
      apply[cell.kind](cell, units)
      if cell.kind ~= LOG then cell.newest = now end
      local entry = mine(cell)
      entry[2] = entry[2] + units
      cell.said.remaining = max(0, cell.said.remaining - units)
    end
    cell.dirty = true
  end
  cell.took = units
end

-- What a gateway was granted and this store does not know of, lost in a failover or counted while it was
-- away, counts from now. A total that was met already adds nothing.
for _, cell in ipairs(cells) do
  if taking == FORGET then
    cell.cost, cell.want, cell.total = 0, 0, 0
  elseif taking ~= NOTHING then
    if cell.back > 0 then
      give_back(cell)
      cell.cost, cell.want, cell.dirty = 0, 0, true
    end
    if cell.total > 0 then
      local entry = mine(cell)
      local missing = min(cell.total - entry[2], cell.within)
      if missing > 0 then apply[cell.kind](cell, missing) end
      if cell.total > entry[2] then
        entry[2], cell.dirty = cell.total, true
      end
    end
  end
end

local admitted = taking < SHADOWS
for _, cell in ipairs(cells) do
  evaluate(cell)
  cell.took = 0
  if not admits(cell) and not cell.shadow then admitted = false end
end
-- A network around a key is charged what the key is granted, and the key gets no more than that.
for _, cell in ipairs(cells) do
  local of = cells[cell.of]
  if of then
    of.said.granted = min(of.said.granted, cell.said.granted)
    of.blocked = of.blocked or not admits(cell)
  end
end
for _, cell in ipairs(cells) do
  local of = cells[cell.of]
  if of then cell.said.granted = of.said.granted end
  local alone = cell.shadow and admits(cell) and not cell.blocked
  if alone and of then alone = admits(of) and not of.blocked end
  if taking ~= NOTHING and (alone or (admitted and admits(cell) and not cell.shadow)) then take(cell) end
end

local reply = { pack('<dd', admitted and 1 or 0, now) }
for _, cell in ipairs(cells) do
  local said = cell.said
  local window = cell.windows[said.window]
  local total, reset = used[cell.kind](cell, window), 0
  if total > 0 then reset = wait[cell.kind](cell, window, max(1, total + 1 - window.base)) end
  local stamped = now
  if cell.kind == LOG and cell.took > 0 then stamped = cell.newest * cell.tick end
  reply[#reply + 1] = pack('<ddddddddd', said.standing, said.window - 1, said.remaining, said.wait, reset,
    said.delay, cell.known and 1 or cell.took, cell.mine and cell.mine[2] or 0, stamped)
  for _, each in ipairs(cell.windows) do reply[#reply + 1] = pack('<d', used[cell.kind](cell, each)) end
  if cell.dirty then save(cell) end
end
return table.concat(reply)
