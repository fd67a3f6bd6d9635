-- Opens the data, or begins a new incarnation after writes were lost. Returns the metadata that is valid from now on.
-- KEYS: the metadata, the writer's last sequence number.
-- ARGV: format, shards, a random name, the incarnation known ('' for none), the commits known, whether commits of this gateway
--       are missing, and the names of the sorted sets.
for i = 7, #ARGV do
  local kind = redis.call('TYPE', ARGV[i]).ok
  if kind ~= 'zset' and kind ~= 'none' then
    return redis.error_reply('WRONGTYPE the key ' .. ARGV[i] .. ' is a ' .. kind)
  end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local meta = redis.call('HMGET', KEYS[1], 'format', 'shards', 'incarnation', 'count')
if meta[1] and (meta[1] ~= ARGV[1] or meta[2] ~= ARGV[2]) then return {'other', meta[1], meta[2] or ''} end

-- An incarnation is a number and a name. The number only grows: a lower one than the one known, or the same one with another
-- name, is a rollback, too.
local function number_of(incarnation) return tonumber(string.match(incarnation or '', '^%d+') or '0') end
local known, there = number_of(ARGV[4]), number_of(meta[3])
local lost = known > 0 and (there < known
  or (there == known and (meta[3] ~= ARGV[4] or tonumber(meta[4]) < tonumber(ARGV[5]) or ARGV[6] == '1')))
if lost then
  local incarnation_name = math.max(known, there) + 1 .. '-' .. ARGV[3]
  redis.call('HSET', KEYS[1], 'format', ARGV[1], 'shards', ARGV[2], 'incarnation', incarnation_name, 'since', now, 'stock', 'doubtful')
  redis.call('HSETNX', KEYS[1], 'count', 0)
elseif not meta[1] then
  redis.call('HSET', KEYS[1], 'format', ARGV[1], 'shards', ARGV[2], 'incarnation', '1-' .. ARGV[3], 'since', 0, 'count', 0)
end
redis.call('EXPIRE', KEYS[1], 34732800)
redis.call('DEL', KEYS[2])
meta = redis.call('HMGET', KEYS[1], 'incarnation', 'count', 'since', 'stock')
return {'open', meta[1], tonumber(meta[2]), tonumber(meta[3]), meta[4] or '', now}
