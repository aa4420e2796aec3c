-- Takes and gives back many locks that are most likely free or held alone, each in two commands.
--   ARGV[1] has a letter for each, and the rest follows in their order:
--   e  to take one: KEYS lock, tickets; ARGV mark, holding ms, guessed ticket
--   r  the same, and remember tickets for longer: one more ARGV, in ms
--   l  to give one back: KEYS lock; ARGV what its mark begins with
-- Answers for each what became of it, or -1 if it is not that simple: then the verb's own script follows, which finds a mark
-- that may be there, and takes no notice of it. Nothing that happens to one keeps another from being done and answered for.
local pcall, byte, find, verbs, key, arg, answers = redis.pcall, string.byte, string.find, ARGV[1], 1, 2, {}
local LEAVE, REMEMBER = byte('lr', 1, 2)
for nth = 1, #verbs do
  local verb, lock, answer = byte(verbs, nth), KEYS[key], -1
  if verb == LEAVE then
    local mark = pcall('GET', lock)
    if type(mark) == 'string' and find(mark, ARGV[arg], 1, true) == 1 and pcall('DEL', lock) == 1 then answer = 2 end
    key, arg = key + 1, arg + 1
  else
    local tickets, set = KEYS[key + 1], pcall('SET', lock, ARGV[arg], 'NX', 'PX', ARGV[arg + 1])
    if set and set.ok and pcall('ZADD', tickets, 'GT', 'CH', ARGV[arg + 2], 't') == 1 then answer = 1 end
    key, arg = key + 2, arg + 3
    if verb == REMEMBER then
      if answer == 1 then pcall('PEXPIRE', tickets, ARGV[arg]) end
      arg = arg + 1
    end
  end
  answers[nth] = answer
end
return answers
