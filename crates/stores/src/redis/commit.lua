-- One commit of one gateway: compares what its decisions assumed, then writes all they want or nothing.
-- KEYS: the head, the gateway's last turn. All other keys bear the same hash tag, so they lie in the same slot.
-- ARGV: incarnation, count seen, turn (0: only a look), last turn acknowledged, whether this turn was sent before,
--       whether lives are to be lengthened, then the assumptions and the writes, each kind with its number in front.
local at = 6
local function arg()
  at = at + 1
  return ARGV[at]
end
local function number() return tonumber(arg()) end

-- Hands the next arguments to a command, before them perhaps a key; as many at once as fit on Lua's stack.
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

local head = redis.call('HMGET', KEYS[1], 'incarnation', 'count', 'since')
local count = tonumber(head[2] or '0')
if head[1] ~= ARGV[1] or count < tonumber(ARGV[2]) then return {'lost'} end

-- The sign says how the turn ended: a copy of it that comes late finds it here, and changes nothing.
local turn = tonumber(ARGV[3])
local mine = tonumber(redis.call('GET', KEYS[2]) or '0')
local last = math.abs(mine)
if last < tonumber(ARGV[4]) then return {'lost'} end
if turn > 0 then
  if mine == turn then return {'done', count, head[3]} end
  if mine == -turn then return {'refused'} end
  if last > turn then return {'late'} end
end

local wrong_rows, wrong_spans = {}, {}
local asked = 0

-- Rows that are not there.
local absent = number()
local names = at
if pass(absent, 'EXISTS') > 0 then
  for i = 1, absent do
    local row = redis.call('GET', ARGV[names + i])
    if row then wrong_rows[#wrong_rows + 1] = {i, row} end
  end
end
asked = absent

-- Rows by their version, the first eight bytes: small ones are read together, others only as far as needed.
local small = number()
for from = 1, small, MOST do
  local to = math.min(from + MOST - 1, small)
  local rows = redis.call('MGET', unpack(ARGV, at + from, at + to))
  for i = from, to do
    local row = rows[i - from + 1]
    if not row or string.sub(row, 1, 8) ~= ARGV[at + small + i] then
      wrong_rows[#wrong_rows + 1] = {asked + i, row}
    end
  end
end
at = at + 2 * small
asked = asked + small

for i = 1, number() do
  local key, stamp = arg(), arg()
  if redis.call('GETRANGE', key, 0, 7) ~= stamp then
    wrong_rows[#wrong_rows + 1] = {asked + i, redis.call('GET', key)}
  end
end

-- The members in their order, each with its row; a member whose row has expired is dropped.
local function first_of(index, falling, from, to, limit, stem)
  local members = redis.call(falling, index, from, to, 'LIMIT', 0, limit)
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
  local index, falling, from, to, last, limit, stem = arg(), arg(), arg(), arg(), arg(), number(), arg()
  local expected = number()
  local members = redis.call(falling, index, from, last, 'LIMIT', 0, expected + 1)
  local same = #members == expected
  for j = 1, expected do
    if ARGV[at + j] ~= members[j] then same = false end
  end
  at = at + expected
  if not same then
    local found, more = first_of(index, falling, from, to, limit, stem)
    wrong_spans[#wrong_spans + 1] = {i, more, found}
  end
end

if #wrong_rows > 0 or #wrong_spans > 0 then
  if ARGV[5] == '1' then redis.call('SET', KEYS[2], -turn, 'EX', 2592000) end
  return {'stale', count, head[3], wrong_rows, wrong_spans}
end
if turn == 0 then return {'done', count, head[3]} end

for _ = 1, number() do
  redis.call('SETEX', ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
  at = at + 3
end
pass(number(), 'DEL')
for _ = 1, number() do
  local index, seconds = arg(), arg()
  local added = pass(2 * number(), 'ZADD', index)
  pass(number(), 'ZREM', index)
  -- A set that was empty is a new one.
  if ARGV[6] == '1' or (added > 0 and redis.call('ZCARD', index) <= added) then
    redis.call('EXPIRE', index, seconds)
  end
end
redis.call('SETEX', KEYS[2], 2592000, turn)
if ARGV[6] == '1' then redis.call('EXPIRE', KEYS[1], 34732800) end
return {'done', redis.call('HINCRBY', KEYS[1], 'count', 1), head[3]}
