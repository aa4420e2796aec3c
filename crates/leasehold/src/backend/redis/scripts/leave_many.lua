-- Gives back many locks that are most likely held alone, each in two commands.
--   KEYS: the locks   ARGV: for each what its mark begins with, if it was written without a look at the line
-- Answers for each what became of it, or -1 if it is not that simple: then the verb's own script follows. Nothing that happens to
-- one keeps another from being done and answered for.
local pcall, find, answers = redis.pcall, string.find, {}
for nth = 1, #KEYS do
  local lock = KEYS[nth]
  local mark = pcall('GET', lock)
  local alone = type(mark) == 'string' and find(mark, ARGV[nth], 1, true) == 1
  answers[nth] = alone and pcall('DEL', lock) == 1 and 2 or -1
end
return answers
