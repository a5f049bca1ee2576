-- The second half of the script, after cell.lua: it reads the counters, gives units back, counts reports, decides, takes
-- units, and writes what has changed.

-- Decodes a value's body into its cell.
local function decode_body(cell, text)
  if cell.lends then
    cell.lent_at, cell.lent_level = 0, 0
    if #text >= 16 then cell.lent_at, cell.lent_level = unpack('<dd', text) end
    if cell.lent_at > now then cell.lent_at, cell.dirty, cell.rewrites_all = now, true, true end
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
    local position = 1
    for index, ring in ipairs(cell.rings) do
      local read = { current = 0, length = ring.length, bucket_count = ring.bucket_count }
      if #text >= position + 7 + ring.bucket_count * 4 then
        read = { unpack('<' .. ('I4'):rep(ring.bucket_count), text, position + 8) }
        read[ring.bucket_count + 1] = nil
        read.current = unpack('<d', text, position)
        read.length, read.bucket_count = ring.length, ring.bucket_count
        position = position + 8 + ring.bucket_count * 4
      else
        for slot = 1, ring.bucket_count do read[slot] = 0 end
      end
      cell.rings[index] = read
    end
  elseif cell.kind == CALENDAR then
    for index, window in ipairs(cell.windows) do
      window.start, window.finish, window.units = 0, 0, 0
      if #text >= index * 24 then window.start, window.finish, window.units = unpack('<ddd', text, index * 24 - 23) end
    end
  else
    for index, window in ipairs(cell.windows) do
      local first, second = 0, 0
      if #text >= index * 16 then first, second = unpack('<dd', text, index * 16 - 15) end
      window.number, window.units, window.tat, window.stored_interval = first, second, first, second
    end
  end
  -- Written at once, or the units would count from now again with each call.
  if rewind[cell.kind](cell) then cell.dirty, cell.rewrites_all = true, true end
end

local function encode_body(cell)
  local list = {}
  if cell.lends then list[1] = pack('<dd', cell.lent_at, cell.lent_level) end
  if cell.kind == LOG then
    -- Grown in steps, because a string that grows in place takes twice the memory of its contents.
    local live = cell.next_slot >= cell.stamp_count and cell.next_slot or cell.room
    local wanted = min(cell.room, live + max(4, floor(live / 8)))
    list[#list + 1] = (cell.body .. ('\0'):rep(wanted * STAMP_BYTES - #cell.body)):sub(1, wanted * STAMP_BYTES)
  elseif cell.kind == RINGS then
    for _, ring in ipairs(cell.rings) do
      list[#list + 1] = pack('<d' .. ('I4'):rep(ring.bucket_count), ring.current, table_unpack(ring, 1, ring.bucket_count))
    end
  else
    for _, window in ipairs(cell.windows) do
      if cell.kind == FIXED then
        list[#list + 1] = pack('<dd', window.number, window.units)
      elseif cell.kind == CALENDAR then
        list[#list + 1] = pack('<ddd', window.start, window.finish, window.units)
      else
        list[#list + 1] = pack('<dd', window.tat, window.plain_interval)
      end
    end
  end
  return table.concat(list)
end

-- The position of a gateway's entry in the list.
local function find_entry(text, id)
  local tag, search_from = pack('<I4', id), 1
  while true do
    local place = text:find(tag, search_from, true)
    if not place or (place - 1) % ENTRY_BYTES == 0 then return place end
    search_from = place + 1
  end
end

-- Decodes the call, and reads the counters of its parts. The fields are those of CallPart in src/store/shared/call.rs;
-- wanted is wanted_units there. They are followed by the numbers of LimitSpec in src/limit/spec.rs.
-- A tat is the theoretical arrival time of GCRA.
local gateway, live_gateways, taking, count = read_number(), read_number(), read_number(), read_number()
-- Some processes end and others begin, and each may report under two numbers.
local max_gateways = min(max(64, 3 * live_gateways), 1024)
local cells = {}
for index = 1, count do
  local cell = { key = KEYS[index + 1], gateways = '' }
  cell.kind, cell.room, cell.tick = read_number(), read_number(), read_number()
  cell.shadow, cell.key_index = read_number() == 1, read_number()
  cell.cost, cell.wanted, cell.free_units_divisor = read_number(), read_number(), read_number()
  cell.gateway_total, cell.acknowledged_total, cell.units_in_window = read_number(), read_number(), read_number()
  cell.give_back_number, cell.give_back_stamp = read_number(), read_number()
  cell.lends, cell.interval, cell.lent_room, cell.forget_after = read_number() == 1, read_number(), read_number(), read_number()
  cell.lifetime = read_number()
  cell.windows, cell.rings = {}, {}
  for place = 1, read_number() do
    local window = { length = read_number(), base = read_number(), ceiling = read_number(), parameter = read_number(), early_slack = read_number() }
    window.plain_interval, window.max_lead = read_number(), read_number()
    if cell.kind == CALENDAR then
      window.bounds = { window.parameter, window.early_slack, window.plain_interval, window.max_lead }
    end
    cell.windows[place] = window
    cell.longest = cell.windows[place].length
  end
  for place = 1, read_number() do cell.rings[place] = { length = read_number(), bucket_count = read_number() } end
  local value = redis.call('GET', cell.key)
  cell.newest, cell.next_slot, cell.stamp_count, cell.stored_room, cell.stored = 0, 0, 0, 0, value and #value or 0
  local text, gateway_count = '', nil
  if value then
    cell.newest, cell.next_slot, cell.stamp_count, cell.stored_room, gateway_count = unpack('<dI4I4I4I4', value)
    cell.gateways = value:sub(HEAD_BYTES + 1, HEAD_BYTES + gateway_count * ENTRY_BYTES)
    cell.own_place = find_entry(cell.gateways, gateway)
    if cell.own_place then
      local id, total, last_give_back, applied_bits = unpack('<I4dI4d', cell.gateways, cell.own_place)
      cell.own = { id, total, last_give_back, applied_bits }
    end
    text = value:sub(HEAD_BYTES + gateway_count * ENTRY_BYTES + 1)
  end
  -- The gateways stay: a total that was counted must not count again.
  if taking == FORGET and value then
    text, cell.newest, cell.next_slot, cell.stamp_count, cell.stored_room = '', 0, 0, 0, 0
    cell.existed, cell.rewrites_all, cell.dirty = true, true, true
  end
  decode_body(cell, text)
  -- What takes nothing now goes on with the stored window, or a report would keep the gateway from all limits.
  if cell.is_off_calendar and cell.give_back_number == 0 and cell.cost > 0 then return pack('<d', -2) end
  cells[index] = cell
end

-- The calling gateway's entry. If its entry was dropped, the acknowledged total of the call counts as known.
local function own_entry(cell)
  cell.has_own_entry = true
  if not cell.own then
    local forgotten = cell.gateways ~= '' and unpack('<I4', cell.gateways) == 0
    cell.own = { gateway, forgotten and cell.acknowledged_total or 0, 0, 0 }
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
  local head = pack('<dI4I4I4I4', cell.newest, cell.next_slot, cell.stamp_count, cell.kind == LOG and cell.room or 0, gateway_count)
  local start, life_millis = HEAD_BYTES + #cell.gateways, ceil(cell.lifetime / 1000) + 1000
  local lent = cell.lends and pack('<dd', cell.lent_at, cell.lent_level) or ''
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
    redis.call('SET', cell.key, head .. cell.gateways .. encode_body(cell), 'PX', life_millis)
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
  redis.call('PEXPIRE', cell.key, life_millis)
end

-- Give-backs are numbered modulo 2^32. A number that is ahead by less than half of that is a later one.
local NUMBER_COUNT, HALF_NUMBER_COUNT = 4294967296, 2147483648

-- Whether a give-back comes for the first time. Give-backs come over several connections, so not always in order, and
-- their numbers wrap around.
local function is_new_give_back(entry, number)
  local last, applied = entry[LAST_GIVE_BACK], entry[APPLIED_BITS]
  local ahead = (number - last) % NUMBER_COUNT
  if last == 0 or (ahead > 0 and ahead < HALF_NUMBER_COUNT) then
    entry[LAST_GIVE_BACK], entry[APPLIED_BITS] = number, 0
    if last ~= 0 and ahead <= GIVE_BACK_BITS then
      entry[APPLIED_BITS] = (applied * 2 ^ ahead + 2 ^ (ahead - 1)) % 2 ^ GIVE_BACK_BITS
    end
    return true
  end
  local bit = 2 ^ ((last - number) % NUMBER_COUNT - 1)
  if ahead == 0 or bit >= 2 ^ GIVE_BACK_BITS or floor(applied / bit) % 2 == 1 then return false end
  entry[APPLIED_BITS] = applied + bit
  return true
end

-- Subtracts units that were granted here and are given back unused; each give-back once.
local function give_back(cell)
  local entry = own_entry(cell)
  if not is_new_give_back(entry, cell.give_back_number) then return end
  -- Units that a former master granted may be missing here.
  cell.cost = max(0, cell.cost - max(0, cell.gateway_total - entry[TOTAL]))
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
      if number <= ring.current and number > ring.current - ring.bucket_count then
        local slot = number % ring.bucket_count + 1
        ring[slot] = max(0, ring[slot] - cell.cost)
      end
    end
  else
    for _, window in ipairs(cell.windows) do
      if cell.kind == FIXED then
        if window.number == floor((cell.give_back_stamp + window.parameter) / window.length) then
          window.units = max(0, window.units - cell.cost)
        end
      elseif cell.kind == CALENDAR then
        if cell.give_back_stamp >= window.start and cell.give_back_stamp < window.finish then
          window.units = max(0, window.units - cell.cost)
        end
      else
        window.tat = window.tat - cell.cost * window.parameter
      end
    end
  end
end

-- The rank by which one window of a limit decides, as in src/limit/key_state.rs.
local function rank(reply)
  if reply.standing == NEVER then return 3, 0 end
  if reply.standing == REFUSED then return 2, reply.wait end
  if reply.standing == OVER then return 1, 0 end
  return 0, -reply.remaining
end
local function outranks(reply, other)
  local class, order = rank(reply)
  local other_class, other_order = rank(other)
  return class > other_class or (class == other_class and order >= other_order)
end

-- Decides about one cell's cost, without taking units.
local function evaluate(cell)
  local over, delay, free_units, best = false, 0, 4294967295, nil
  for index, window in ipairs(cell.windows) do
    local used_units = used[cell.kind](cell, window)
    local reply = { standing = WITHIN, window = index, remaining = max(0, window.base - used_units), wait = 0 }
    if cell.cost > window.ceiling then
      reply.standing = NEVER
    elseif used_units + cell.cost > window.ceiling then
      reply.standing = REFUSED
      reply.wait = wait[cell.kind](cell, window, used_units + cell.cost - window.ceiling)
    else
      over = over or used_units + cell.cost > window.base
      free_units = min(free_units, window.ceiling - used_units)
      if cell.kind == LEAKY then delay = max(delay, window.tat - now) end
    end
    if not best or outranks(reply, best) then best = reply end
  end
  -- When few units are free, each gateway gets some of them.
  best.granted, best.delay, best.lent = max(cell.cost, min(cell.wanted, floor(free_units / cell.free_units_divisor))), 0, false
  if best.standing == WITHIN then
    best.delay = delay
    if over then best.standing = OVER end
  elseif best.standing == REFUSED and cell.interval > 0 then
    local level = lent_level(cell) + cell.cost - 1
    local loan_wait = max(0, ceil((level - cell.lent_room) * cell.interval))
    best.wait = min(best.wait, loan_wait)
    if loan_wait == 0 then best.standing, best.lent, best.granted = OVER, true, cell.cost end
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
      cell.lent_at, cell.lent_level = max(now, cell.lent_at), level + units
    else
      apply[cell.kind](cell, units)
      if cell.kind ~= LOG then cell.newest = now end
      local entry = own_entry(cell)
      entry[TOTAL] = entry[TOTAL] + units
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
    cell.cost, cell.wanted, cell.gateway_total = 0, 0, 0
  elseif taking ~= NOTHING then
    if cell.give_back_number > 0 then
      give_back(cell)
      cell.cost, cell.wanted, cell.gateway_total, cell.dirty = 0, 0, 0, true
    end
    if cell.gateway_total > 0 then
      local entry = own_entry(cell)
      local missing = min(cell.gateway_total - entry[TOTAL], cell.units_in_window)
      if missing > 0 then
        apply[cell.kind](cell, missing)
        if cell.kind ~= LOG then cell.newest = now end
        if bound[cell.kind] then bound[cell.kind](cell) end
      end
      if cell.gateway_total > entry[TOTAL] then
        entry[TOTAL], cell.dirty = cell.gateway_total, true
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
  local takes_alone = cell.shadow and admits(cell) and not cell.blocked
  if takes_alone and key_cell then takes_alone = admits(key_cell) and not key_cell.blocked end
  if taking ~= NOTHING and (takes_alone or (admitted and admits(cell) and not cell.shadow)) then take(cell) end
end

local output = { pack('<dd', admitted and 1 or 0, now) }
for _, cell in ipairs(cells) do
  local reply = cell.reply
  local window = cell.windows[reply.window]
  local used_units, reset = used[cell.kind](cell, window), 0
  if used_units > 0 then reset = wait[cell.kind](cell, window, max(1, used_units + 1 - window.base)) end
  local granted_at = now
  if cell.kind == LOG and cell.taken > 0 then granted_at = cell.newest * cell.tick end
  output[#output + 1] = pack('<ddddddddd', reply.standing, reply.window - 1, reply.remaining, reply.wait, reset,
    reply.delay, cell.existed and 1 or cell.taken, cell.own and cell.own[TOTAL] or 0, granted_at)
  for _, counted in ipairs(cell.windows) do output[#output + 1] = pack('<d', used[cell.kind](cell, counted)) end
  if cell.dirty then store(cell) end
end
return table.concat(output)
