-- The second half of the script, after cell.lua: it reads the counters, gives units back, counts reports, decides, takes
-- units, and writes what has changed.

-- Decodes a value's body into its cell.
local function decode_body(cell, text)
  if cell.lends then
    cell.lent_last, cell.lent_level = 0, 0
    if #text >= 16 then cell.lent_last, cell.lent_level = unpack('<dd', text) end
    if cell.lent_last > now then cell.lent_last, cell.dirty, cell.rewrites_all = now, true, true end
    text = text:sub(17)
  end
  if cell.kind == LOG then
    cell.body = text
    if cell.stored_room ~= 0 and cell.stored_room ~= cell.room then
      local room, live = cell.room, nil
      cell.room = cell.stored_room
      live = stamps_from(cell, first_inside(cell, cell.longest))
      -- Another multiplier or another gateway's policy asks for less room; stamps that count stay.
      replace_log(cell, live, live == '' and room or max(room, cell.stored_room))
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
  -- Written at once, or the units would count from now again with each call.
  if rewind[cell.kind](cell) then cell.dirty, cell.rewrites_all = true, true end
end

local function encode_body(cell)
  local list = {}
  if cell.lends then list[1] = pack('<dd', cell.lent_last, cell.lent_level) end
  if cell.kind == LOG then
    -- Grown in steps, because a string that grows in place takes twice the memory of its contents.
    local live = cell.next >= cell.len and cell.next or cell.room
    local wanted = min(cell.room, live + max(4, floor(live / 8)))
    list[#list + 1] = (cell.body .. ('\0'):rep(wanted * STAMP_BYTES - #cell.body)):sub(1, wanted * STAMP_BYTES)
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

-- The position of a gateway's entry in the list.
local function find_entry(text, id)
  local tag, from = pack('<I4', id), 1
  while true do
    local place = text:find(tag, from, true)
    if not place or (place - 1) % ENTRY_BYTES == 0 then return place end
    from = place + 1
  end
end

-- Decodes the call, and reads the counters of its parts. The fields are those of CallPart in src/store/shared/call.rs:
-- want is wanted_units, spread is free_units_divisor, acknowledged is acknowledged_total, within is units_in_window.
-- They are followed by the numbers of LimitSpec in src/limit/spec.rs.
local gateway, live_gateways, taking, count = read_number(), read_number(), read_number(), read_number()
-- Some processes end and others begin, and each may report under two numbers.
local max_gateways = min(max(64, 3 * live_gateways), 1024)
local cells = {}
for index = 1, count do
  local cell = { key = KEYS[index + 1], gateways = '' }
  cell.kind, cell.room, cell.tick = read_number(), read_number(), read_number()
  cell.shadow, cell.key_index = read_number() == 1, read_number()
  cell.cost, cell.want, cell.spread = read_number(), read_number(), read_number()
  cell.total, cell.acknowledged, cell.within = read_number(), read_number(), read_number()
  cell.give_back_number, cell.give_back_stamp = read_number(), read_number()
  cell.lends, cell.interval, cell.lent_room, cell.forgotten = read_number() == 1, read_number(), read_number(), read_number()
  cell.kept = read_number()
  cell.windows, cell.rings = {}, {}
  for place = 1, read_number() do
    local window = { length = read_number(), base = read_number(), ceiling = read_number(), first = read_number(), second = read_number() }
    window.pace, window.most = read_number(), read_number()
    cell.windows[place] = window
    cell.longest = cell.windows[place].length
  end
  for place = 1, read_number() do cell.rings[place] = { length = read_number(), kept = read_number() } end
  local value = redis.call('GET', cell.key)
  cell.newest, cell.next, cell.len, cell.stored_room, cell.stored = 0, 0, 0, 0, value and #value or 0
  local text, gateway_count = '', nil
  if value then
    cell.newest, cell.next, cell.len, cell.stored_room, gateway_count = unpack('<dI4I4I4I4', value)
    cell.gateways = value:sub(HEAD_BYTES + 1, HEAD_BYTES + gateway_count * ENTRY_BYTES)
    cell.own_place = find_entry(cell.gateways, gateway)
    if cell.own_place then
      local id, total, back, backs = unpack('<I4dI4d', cell.gateways, cell.own_place)
      cell.own = { id, total, back, backs }
    end
    text = value:sub(HEAD_BYTES + gateway_count * ENTRY_BYTES + 1)
  end
  -- The gateways stay: a total that was counted must not count again.
  if taking == FORGET and value then
    text, cell.newest, cell.next, cell.len, cell.stored_room = '', 0, 0, 0, 0
    cell.existed, cell.rewrites_all, cell.dirty = true, true, true
  end
  decode_body(cell, text)
  cells[index] = cell
end

-- The calling gateway's entry. If its entry was dropped, the acknowledged total of the call counts as known.
local function own_entry(cell)
  cell.has_own_entry = true
  if not cell.own then
    local forgotten = cell.gateways ~= '' and unpack('<I4', cell.gateways) == 0
    cell.own = { gateway, forgotten and cell.acknowledged or 0, 0, 0 }
  end
  return cell.own
end

-- Puts the calling gateway's entry back into the list. From the older half it moves to the end. In a full list it
-- replaces the entry that was active longest ago, and gateway 0 marks that one was dropped.
local function store_own_entry(cell)
  local list, entry = cell.gateways, pack('<I4dI4d', table_unpack(cell.own))
  if cell.own_place and (cell.own_place - 1) * 2 >= #list - ENTRY_BYTES then
    cell.gateways = list:sub(1, cell.own_place - 1) .. entry .. list:sub(cell.own_place + ENTRY_BYTES)
    return
  end
  if cell.own_place then
    list = list:sub(1, cell.own_place - 1) .. list:sub(cell.own_place + ENTRY_BYTES)
  elseif #list >= max_gateways * ENTRY_BYTES then
    if unpack('<I4', list) ~= 0 then list = pack('<I4dI4d', 0, 0, 0, 0) .. list end
    list = list:sub(1, ENTRY_BYTES) .. list:sub(#list - (max_gateways - 2) * ENTRY_BYTES + 1)
  end
  cell.rewrites_all = cell.rewrites_all or not cell.own_place
  cell.gateways, cell.list_changed = list .. entry, true
end

-- Writes a cell: only the pieces that have changed, if the value keeps its form.
local function store(cell)
  if cell.has_own_entry then store_own_entry(cell) end
  local gateway_count = #cell.gateways / ENTRY_BYTES
  local head = pack('<dI4I4I4I4', cell.newest, cell.next, cell.len, cell.kind == LOG and cell.room or 0, gateway_count)
  local start, life = HEAD_BYTES + #cell.gateways, ceil(cell.kept / 1000) + 1000
  local lent = cell.lends and pack('<dd', cell.lent_last, cell.lent_level) or ''
  local pieces = nil
  if cell.kind == LOG and not cell.rewrites_all and start + #lent + #cell.body <= cell.stored then
    pieces = cell.writes or {}
    for _, piece in ipairs(pieces) do piece[1] = start + #lent + piece[1] * STAMP_BYTES end
    pieces[#pieces + 1] = { start, lent }
  elseif cell.kind ~= LOG and not cell.rewrites_all and #cell.gateways > SMALL_LIST_BYTES then
    local text = encode_body(cell)
    if start + #text == cell.stored then pieces = { { start, text } } end
  end
  if not pieces then
    redis.call('SET', cell.key, head .. cell.gateways .. encode_body(cell), 'PX', life)
    return
  end
  if cell.list_changed or #cell.gateways <= SMALL_LIST_BYTES then
    pieces[#pieces + 1] = { 0, head .. cell.gateways }
  else
    pieces[#pieces + 1] = { 0, head }
    if cell.has_own_entry then
      local entry = cell.gateways:sub(cell.own_place, cell.own_place + ENTRY_BYTES - 1)
      pieces[#pieces + 1] = { HEAD_BYTES + cell.own_place - 1, entry }
    end
  end
  for _, piece in ipairs(pieces) do
    if piece[2] ~= '' then redis.call('SETRANGE', cell.key, piece[1], piece[2]) end
  end
  redis.call('PEXPIRE', cell.key, life)
end

-- Whether a give-back comes for the first time. Give-backs come over several connections, so not always in order, and
-- their numbers begin anew after 2^32.
local function is_new_give_back(entry, number)
  local last, met = entry[3], entry[4]
  local ahead = (number - last) % 4294967296
  if last == 0 or (ahead > 0 and ahead < 2147483648) then
    entry[3], entry[4] = number, 0
    if last ~= 0 and ahead <= GIVE_BACK_BITS then
      entry[4] = (met * 2 ^ ahead + 2 ^ (ahead - 1)) % 2 ^ GIVE_BACK_BITS
    end
    return true
  end
  local bit = 2 ^ ((last - number) % 4294967296 - 1)
  if ahead == 0 or bit >= 2 ^ GIVE_BACK_BITS or floor(met / bit) % 2 == 1 then return false end
  entry[4] = met + bit
  return true
end

-- Subtracts units that were granted here and are given back unused; each give-back once.
local function give_back(cell)
  local entry = own_entry(cell)
  if not is_new_give_back(entry, cell.give_back_number) then return end
  -- Units that a former master granted may be missing here.
  cell.cost = max(0, cell.cost - max(0, cell.total - entry[2]))
  if cell.kind == LOG then
    local tick, text = cell.give_back_stamp / cell.tick, stamps_from(cell, 0)
    local units, place = cell.cost, #text / STAMP_BYTES
    while place >= 1 and units > 0 do
      local value = stamp_at(cell, place - 1)
      if value < tick then break end
      if value == tick then
        text = text:sub(1, (place - 1) * STAMP_BYTES) .. text:sub(place * STAMP_BYTES + 1)
        units = units - 1
      end
      place = place - 1
    end
    replace_log(cell, text, cell.room)
  elseif cell.kind == RINGS then
    for _, ring in ipairs(cell.rings) do
      local number = floor(cell.give_back_stamp / ring.length)
      if number <= ring.current and number > ring.current - ring.kept then
        local slot = number % ring.kept + 1
        ring[slot] = max(0, ring[slot] - cell.cost)
      end
    end
  else
    for _, window in ipairs(cell.windows) do
      if cell.kind == FIXED then
        if window.number == floor((cell.give_back_stamp + window.first) / window.length) then
          window.units = max(0, window.units - cell.cost)
        end
      else
        window.arrival = window.arrival - cell.cost * window.first
      end
    end
  end
end

-- The rank by which one window of a limit decides, as in src/limit/key_state.rs.
local function rank(a)
  if a.standing == NEVER then return 3, 0 end
  if a.standing == REFUSED then return 2, a.wait end
  if a.standing == OVER then return 1, 0 end
  return 0, -a.remaining
end
local function outranks(a, b)
  local one, two = rank(a)
  local three, four = rank(b)
  return one > three or (one == three and two >= four)
end

-- Decides about one cell's cost, without taking units.
local function evaluate(cell)
  local over, delay, room, best = false, 0, 4294967295, nil
  for index, window in ipairs(cell.windows) do
    local total = used[cell.kind](cell, window)
    local reply = { standing = WITHIN, window = index, remaining = max(0, window.base - total), wait = 0 }
    if cell.cost > window.ceiling then
      reply.standing = NEVER
    elseif total + cell.cost > window.ceiling then
      reply.standing = REFUSED
      reply.wait = wait[cell.kind](cell, window, total + cell.cost - window.ceiling)
    else
      over = over or total + cell.cost > window.base
      room = min(room, window.ceiling - total)
      if cell.kind == LEAKY then delay = max(delay, window.arrival - now) end
    end
    if not best or outranks(reply, best) then best = reply end
  end
  -- When few units are free, each gateway gets some of them.
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
  cell.reply = best
end

local function admits(cell) return cell.reply.standing == WITHIN or cell.reply.standing == OVER end

-- Takes the granted units.
local function take(cell)
  local units = cell.reply.granted
  if units > 0 then
    if cell.reply.lent then
      local level = lent_level(cell)
      cell.lent_last, cell.lent_level = max(now, cell.lent_last), level + units
    else
      apply[cell.kind](cell, units)
      if cell.kind ~= LOG then cell.newest = now end
      local entry = own_entry(cell)
      entry[2] = entry[2] + units
      cell.reply.remaining = max(0, cell.reply.remaining - units)
    end
    cell.dirty = true
  end
  cell.taken = units
end

-- Gives units back, and counts reports. Units that a failover lost, or that were admitted while the store was away, count
-- from now. A total that is known already adds nothing.
for _, cell in ipairs(cells) do
  if taking == FORGET then
    cell.cost, cell.want, cell.total = 0, 0, 0
  elseif taking ~= NOTHING then
    if cell.give_back_number > 0 then
      give_back(cell)
      cell.cost, cell.want, cell.total, cell.dirty = 0, 0, 0, true
    end
    if cell.total > 0 then
      local entry = own_entry(cell)
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
  cell.taken = 0
  if not admits(cell) and not cell.shadow then admitted = false end
end
-- A key is granted no more than each network around it, and the networks are charged the key's grant.
for _, cell in ipairs(cells) do
  local key_cell = cells[cell.key_index]
  if key_cell then
    key_cell.reply.granted = min(key_cell.reply.granted, cell.reply.granted)
    key_cell.blocked = key_cell.blocked or not admits(cell)
  end
end
for _, cell in ipairs(cells) do
  local key_cell = cells[cell.key_index]
  if key_cell then cell.reply.granted = key_cell.reply.granted end
  local alone = cell.shadow and admits(cell) and not cell.blocked
  if alone and key_cell then alone = admits(key_cell) and not key_cell.blocked end
  if taking ~= NOTHING and (alone or (admitted and admits(cell) and not cell.shadow)) then take(cell) end
end

local output = { pack('<dd', admitted and 1 or 0, now) }
for _, cell in ipairs(cells) do
  local reply = cell.reply
  local window = cell.windows[reply.window]
  local total, reset = used[cell.kind](cell, window), 0
  if total > 0 then reset = wait[cell.kind](cell, window, max(1, total + 1 - window.base)) end
  local stamped = now
  if cell.kind == LOG and cell.taken > 0 then stamped = cell.newest * cell.tick end
  output[#output + 1] = pack('<ddddddddd', reply.standing, reply.window - 1, reply.remaining, reply.wait, reset,
    reply.delay, cell.existed and 1 or cell.taken, cell.own and cell.own[2] or 0, stamped)
  for _, each in ipairs(cell.windows) do output[#output + 1] = pack('<d', used[cell.kind](cell, each)) end
  if cell.dirty then store(cell) end
end
return table.concat(output)
