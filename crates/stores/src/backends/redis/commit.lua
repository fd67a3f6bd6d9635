-- One commit of one gateway: compares the read set, then applies all writes or none.
-- KEYS: the metadata, the writer's last sequence number. All other keys have the same hash tag, so they are in the same slot.
-- ARGV: incarnation, commits seen, sequence number (0: only compare), last number acknowledged, whether this call may have been
--       sent before, whether to extend the expiry of the indexes, then the read set and the writes, each list with its length
--       in front.
local at = 6
local function arg()
  at = at + 1
  return ARGV[at]
end
local function number() return tonumber(arg()) end

-- Passes the next arguments to a command, after an optional key, in chunks that fit on Lua's stack.
local MOST = 4000
local function pass(count, command, key)
  local last, sum = at + count, 0
  while at < last do
    local to = math.min(at + MOST, last)
    if key then
      sum = sum + redis.call(command, key, unpack(ARGV, at + 1, to))
    else
      sum = sum + redis.call(command, unpack(ARGV, at + 1, to))
    end
    at = to
  end
  return sum
end

local meta = redis.call('HMGET', KEYS[1], 'incarnation', 'count', 'since')
local count = tonumber(meta[2] or '0')
if meta[1] ~= ARGV[1] or count < tonumber(ARGV[2]) then return {'lost'} end

-- A negative number: that call found a conflict. A delayed copy of a call finds its own number or a later one here, and changes
-- nothing.
local seq = tonumber(ARGV[3])
local recorded = tonumber(redis.call('GET', KEYS[2]) or '0')
local last = math.abs(recorded)
if last < tonumber(ARGV[4]) then return {'lost'} end
if seq > 0 then
  if recorded == seq then return {'done', count, meta[3]} end
  if recorded == -seq then return {'conflict before'} end
  if last > seq then return {'late'} end
end

local changed_rows, changed_ranges = {}, {}
local position = 0

-- Rows that must not exist.
local absent = number()
local names = at
if pass(absent, 'EXISTS') > 0 then
  for i = 1, absent do
    local row = redis.call('GET', ARGV[names + i])
    if row then changed_rows[#changed_rows + 1] = {i, row} end
  end
end
position = absent

-- Rows by their version, which is their first eight bytes. Small rows are read whole, of large ones only the version.
local small = number()
for from = 1, small, MOST do
  local to = math.min(from + MOST - 1, small)
  local rows = redis.call('MGET', unpack(ARGV, at + from, at + to))
  for i = from, to do
    local row = rows[i - from + 1]
    if not row or string.sub(row, 1, 8) ~= ARGV[at + small + i] then
      changed_rows[#changed_rows + 1] = {position + i, row}
    end
  end
end
at = at + 2 * small
position = position + small

for i = 1, number() do
  local key, version = arg(), arg()
  if redis.call('GETRANGE', key, 0, 7) ~= version then
    changed_rows[#changed_rows + 1] = {position + i, redis.call('GET', key)}
  end
end

-- The members of an index in order, each with its row. A member whose row has expired is removed.
local function first_of(index, command, from, to, limit, stem)
  local members = redis.call(command, index, from, to, 'LIMIT', 0, limit)
  local found = {}
  for start = 1, #members, MOST do
    local stop = math.min(start + MOST - 1, #members)
    local rows
    if stem ~= '' then
      local keys = {}
      for i = start, stop do keys[#keys + 1] = stem .. members[i] end
      rows = redis.call('MGET', unpack(keys))
    end
    for i = start, stop do
      local row = ''
      if rows then row = rows[i - start + 1] end
      if row then
        found[#found + 1] = members[i]
        found[#found + 1] = row
      else
        redis.call('ZREM', index, members[i])
      end
    end
  end
  local more = 0
  if #members == limit then more = 1 end
  return found, more
end

for i = 1, number() do
  local index, command, from, to, last, limit, stem = arg(), arg(), arg(), arg(), arg(), number(), arg()
  local expected = number()
  local members = redis.call(command, index, from, last, 'LIMIT', 0, expected + 1)
  local same = #members == expected
  for j = 1, expected do
    if ARGV[at + j] ~= members[j] then same = false end
  end
  at = at + expected
  if not same then
    local found, more = first_of(index, command, from, to, limit, stem)
    changed_ranges[#changed_ranges + 1] = {i, more, found}
  end
end

if #changed_rows > 0 or #changed_ranges > 0 then
  if ARGV[5] == '1' then redis.call('SET', KEYS[2], -seq, 'EX', 2592000) end
  return {'conflict', count, meta[3], changed_rows, changed_ranges}
end
if seq == 0 then return {'done', count, meta[3]} end

-- An error half way would leave a part of the commit, without its number. Only a key of another program can cause one, so the
-- sorted sets that follow the rows are looked at first.
local writes = at
local puts = number()
at = at + 3 * puts
local deletes = number()
at = at + deletes
for _ = 1, number() do
  local index = arg()
  at = at + 1
  local added = number()
  at = at + 2 * added
  local gone = number()
  at = at + gone
  local kind = redis.call('TYPE', index).ok
  if kind ~= 'zset' and kind ~= 'none' then
    return redis.error_reply('WRONGTYPE the key ' .. index .. ' is a ' .. kind)
  end
end
at = writes

for _ = 1, number() do
  redis.call('SETEX', ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
  at = at + 3
end
pass(number(), 'DEL')
for _ = 1, number() do
  local index, seconds = arg(), arg()
  local added = pass(2 * number(), 'ZADD', index)
  pass(number(), 'ZREM', index)
  -- An index that was empty is new and has no expiry yet.
  if ARGV[6] == '1' or (added > 0 and redis.call('ZCARD', index) <= added) then
    redis.call('EXPIRE', index, seconds)
  end
end
redis.call('SETEX', KEYS[2], 2592000, seq)
if ARGV[6] == '1' then redis.call('EXPIRE', KEYS[1], 34732800) end
return {'done', redis.call('HINCRBY', KEYS[1], 'count', 1), meta[3]}
