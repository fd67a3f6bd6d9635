-- Opens the data, or opens it anew after writes were lost. The result is what holds from now on.
-- KEYS: the head, the gateway's last turn.
-- ARGV: format, shards, a fresh name, the incarnation known ('' for none), the count known, whether writes of this gateway
--       are missing.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local head = redis.call('HMGET', KEYS[1], 'format', 'shards', 'incarnation', 'count')
if head[1] and (head[1] ~= ARGV[1] or head[2] ~= ARGV[2]) then return {'other', head[1], head[2] or ''} end

-- An incarnation is the number of the data's life and a name. Lives only rise: one that is lower than the one known, or
-- of the same number and another name, is a roll-back too.
local function life(incarnation) return tonumber(string.match(incarnation or '', '^%d+') or '0') end
local known, there = life(ARGV[4]), life(head[3])
local lost = known > 0 and (there < known
  or (there == known and (head[3] ~= ARGV[4] or tonumber(head[4]) < tonumber(ARGV[5]) or ARGV[6] == '1')))
if lost then
  local fresh = math.max(known, there) + 1 .. '-' .. ARGV[3]
  redis.call('HSET', KEYS[1], 'format', ARGV[1], 'shards', ARGV[2], 'incarnation', fresh, 'since', now, 'stock', 'doubtful')
  redis.call('HSETNX', KEYS[1], 'count', 0)
elseif not head[1] then
  redis.call('HSET', KEYS[1], 'format', ARGV[1], 'shards', ARGV[2], 'incarnation', '1-' .. ARGV[3], 'since', 0, 'count', 0)
end
redis.call('EXPIRE', KEYS[1], 34732800)
redis.call('DEL', KEYS[2])
head = redis.call('HMGET', KEYS[1], 'incarnation', 'count', 'since', 'stock')
return {'open', head[1], tonumber(head[2]), tonumber(head[3]), head[4] or '', now}
