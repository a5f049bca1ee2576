-- The second half of the script; the first is cell.lua.

local function read_body(cell, text)
  if cell.lends then
    cell.lent_last, cell.lent_level = 0, 0
    if #text >= 16 then cell.lent_last, cell.lent_level = unpack('<dd', text) end
    if cell.lent_last > now then cell.lent_last, cell.dirty, cell.whole = now, true, true end
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
      window.number, window.units, window.arrival, window.paced = one, two, one, two
    end
  end
  -- Kept at once, or it would count as of now again with each call.
  if rewind[cell.kind](cell) then cell.dirty, cell.whole = true, true end
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
        list[#list + 1] = pack('<dd', window.arrival, window.pace)
      end
    end
  end
  return table.concat(list)
end

-- The place of a gateway's entry in the text of all.
local function entry_at(text, id)
  local tag, from = pack('<I4', id), 1
  while true do
    local place = text:find(tag, from, true)
    if not place or (place - 1) % EACH == 0 then return place end
    from = place + 1
  end
end

-- What the parts ask, and what is there.
local gateway, fleet, taking, count = number(), number(), number(), number()
-- Some processes end and others begin, and each may tell under two numbers.
local most_gateways = min(max(64, 3 * fleet), 1024)
local cells = {}
for index = 1, count do
  local cell = { key = KEYS[index + 1], gateways = '' }
  cell.kind, cell.room, cell.tick = number(), number(), number()
  cell.shadow, cell.of = number() == 1, number()
  cell.cost, cell.want, cell.spread = number(), number(), number()
  cell.total, cell.told, cell.within = number(), number(), number()
  cell.back, cell.back_at = number(), number()
  cell.lends, cell.interval, cell.lent_room, cell.forgotten = number() == 1, number(), number(), number()
  cell.kept = number()
  cell.windows, cell.rings = {}, {}
  for place = 1, number() do
    local window = { length = number(), base = number(), ceiling = number(), first = number(), second = number() }
    window.pace, window.most = number(), number()
    cell.windows[place] = window
    cell.longest = cell.windows[place].length
  end
  for place = 1, number() do cell.rings[place] = { length = number(), kept = number() } end
  local value = redis.call('GET', cell.key)
  cell.newest, cell.next, cell.len, cell.stored_room, cell.stored = 0, 0, 0, 0, value and #value or 0
  local text, many = '', nil
  if value then
    cell.newest, cell.next, cell.len, cell.stored_room, many = unpack('<dI4I4I4I4', value)
    cell.gateways = value:sub(HEAD + 1, HEAD + many * EACH)
    cell.place = entry_at(cell.gateways, gateway)
    if cell.place then
      local id, total, back, backs = unpack('<I4dI4d', cell.gateways, cell.place)
      cell.mine = { id, total, back, backs }
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

-- The gateway's own entry. One that was forgotten has told before what it says that it told.
local function mine(cell)
  cell.heard = true
  if not cell.mine then
    local forgotten = cell.gateways ~= '' and unpack('<I4', cell.gateways) == 0
    cell.mine = { gateway, forgotten and cell.told or 0, 0, 0 }
  end
  return cell.mine
end

-- Writes the entry back: in the older half it moves to the end, for of many the one that was heard of first makes
-- room, and of that gateway 0 reminds.
local function note_gateway(cell)
  local list, entry = cell.gateways, pack('<I4dI4d', table_unpack(cell.mine))
  if cell.place and (cell.place - 1) * 2 >= #list - EACH then
    cell.gateways = list:sub(1, cell.place - 1) .. entry .. list:sub(cell.place + EACH)
    return
  end
  if cell.place then
    list = list:sub(1, cell.place - 1) .. list:sub(cell.place + EACH)
  elseif #list >= most_gateways * EACH then
    if unpack('<I4', list) ~= 0 then list = pack('<I4dI4d', 0, 0, 0, 0) .. list end
    list = list:sub(1, EACH) .. list:sub(#list - (most_gateways - 2) * EACH + 1)
  end
  cell.whole = cell.whole or not cell.place
  cell.gateways, cell.moved = list .. entry, true
end

local function save(cell)
  if cell.heard then note_gateway(cell) end
  local many = #cell.gateways / EACH
  local head = pack('<dI4I4I4I4', cell.newest, cell.next, cell.len, cell.kind == LOG and cell.room or 0, many)
  local start, life = HEAD + #cell.gateways, ceil(cell.kept / 1000) + 1000
  local lent = cell.lends and pack('<dd', cell.lent_last, cell.lent_level) or ''
  local pieces = nil
  if cell.kind == LOG and not cell.whole and start + #lent + #cell.body <= cell.stored then
    pieces = cell.writes or {}
    for _, piece in ipairs(pieces) do piece[1] = start + #lent + piece[1] * WIDE end
    pieces[#pieces + 1] = { start, lent }
  elseif cell.kind ~= LOG and not cell.whole and #cell.gateways > SMALL then
    local text = body(cell)
    if start + #text == cell.stored then pieces = { { start, text } } end
  end
  if not pieces then
    redis.call('SET', cell.key, head .. cell.gateways .. body(cell), 'PX', life)
    return
  end
  if cell.moved or #cell.gateways <= SMALL then
    pieces[#pieces + 1] = { 0, head .. cell.gateways }
  else
    pieces[#pieces + 1] = { 0, head }
    if cell.heard then
      local entry = cell.gateways:sub(cell.place, cell.place + EACH - 1)
      pieces[#pieces + 1] = { HEAD + cell.place - 1, entry }
    end
  end
  for _, piece in ipairs(pieces) do
    if piece[2] ~= '' then redis.call('SETRANGE', cell.key, piece[1], piece[2]) end
  end
  redis.call('PEXPIRE', cell.key, life)
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
  local entry = mine(cell)
  if not first_met(entry, cell.back) then return end
  -- What a master granted that this one has replaced is not here.
  cell.cost = max(0, cell.cost - max(0, cell.total - entry[2]))
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
      cell.cost, cell.want, cell.total, cell.dirty = 0, 0, 0, true
    end
    if cell.total > 0 then
      local entry = mine(cell)
      local missing = min(cell.total - entry[2], cell.within)
      if missing > 0 then
        apply[cell.kind](cell, missing)
        if cell.kind ~= LOG then cell.newest = now end
        if bound[cell.kind] then bound[cell.kind](cell) end
      end
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
