# Checks the names of items and files, and measures functions, in the Rust sources given as arguments. Used by
# scripts/check. It reads the code without a parser: comments and literals are removed, braces are counted.
#
# mode=names prints each violation as "FILE:LINE NAME: REASON"; `allowed` is the file with the exceptions:
#   a type name is defined once per crate; a function's name says what it does; no name contains a banned word.
# mode=paths checks the words in paths of files, read line by line, without exceptions.
# mode=functions prints the length and place of each function.

BEGIN {
  # Words of earlier releases that said nothing to a new reader, in the forms they may take.
  split("shelf shelves crowd desk relic filer afloat bell scribe pen parcel sheet stretch hurry hurries hurried bury " \
    "buries buried ripen heir keeper threshold hall doorman courier letter", list)
  for (i in list) banned[list[i]] = 1
  # Words that the glossary replaces by others. The crates wire and simulator speak the provider's language.
  split("captcha job ticket dedup tenant vendor solver coalesce prefetch frontend gc", list)
  for (i in list) replaced[list[i]] = 1
  split("tell told ask asked look shown", list)
  for (i in list) vague[list[i]] = 1
  # Each module may have its own private type of these names.
  split("Inner State Error", list)
  for (i in list) per_module[list[i]] = 1
  split("struct enum union trait type fn mod const static macro_rules!", list)
  for (i in list) introduces[list[i]] = 1
  split("struct enum union trait type", list)
  for (i in list) is_type[list[i]] = 1
  split("fn mut unsafe async _", list)
  for (i in list) no_name[list[i]] = 1
  while (allowed != "" && (getline line < allowed) > 0) {
    n = split(line, field)
    if (n == 0 || field[1] ~ /^#/) continue
    if (n < 3) fail(allowed " " field[1] ": an exception needs a reason")
    exception[field[1]] = 1
  }
}

mode == "paths" { check_path($0); next }
FNR == 1 { end_file(); begin_file() }
{ read_line($0) }

END {
  end_file()
  if (mode != "names") exit
  report_duplicate_types()
  for (name in exception) if (!(name in used)) fail(allowed " " name ": no item of this name needs an exception")
}

# Unequal braces mean that a literal or comment was misread: then nothing found in this file can be trusted.
function end_file() {
  if (depth != 0 || state != "") fail(current " : scripts/names.awk cannot follow the braces of this file")
  current = FILENAME
}

# Directories and files, without their endings.
function check_path(path,   part, n, i) {
  n = split(path, part, "/")
  crate = part[2]
  for (i = 3; i <= n; i++) {
    sub(/\..*/, "", part[i])
    check_words(part[i], path)
  }
}

function begin_file(   part) {
  state = ""; depth = 0; parens = 0; pending = ""; before = ""; before_that = ""
  kind[0] = ""; local[0] = 0; start[0] = 0
  split(FILENAME, part, "/")
  crate = part[2]
  in_test[0] = part[3] != "src"
  pending_test = 0
}

# Removes comments and literals, which may span lines, and hands over the code.
function read_line(rest,   code, hit, close_at) {
  code = ""
  while (rest != "") {
    if (state == "comment") {
      if (!match(rest, /\*\//)) break
      rest = substr(rest, RSTART + 2)
      state = ""
    } else if (state == "text") {
      if (!match(rest, /^([^"\\]|\\.)*"/)) break
      rest = substr(rest, RLENGTH + 1)
      state = ""
    } else if (state != "") { # a raw string; the state is its closing delimiter
      close_at = index(rest, state)
      if (!close_at) break
      rest = substr(rest, close_at + length(state))
      state = ""
    } else if (match(rest, /\/\/|\/\*|r#*"|"|'/)) {
      hit = substr(rest, RSTART, RLENGTH)
      code = code substr(rest, 1, RSTART - 1) " "
      rest = substr(rest, RSTART + RLENGTH)
      if (hit == "//") break
      else if (hit == "/*") state = "comment"
      else if (hit == "\"") state = "text"
      else if (hit != "'") state = "\"" substr(hit, 2, length(hit) - 2)
      else if (match(rest, /^(\\.[^']*|[ -~]|[^ -~]+)'/)) rest = substr(rest, RLENGTH + 1)
      else if (match(rest, /^[a-z_]+/)) rest = substr(rest, RLENGTH + 1) # a lifetime
    } else {
      code = code rest
      break
    }
  }
  read_code(code)
}

function read_code(code,   token) {
  if (code ~ /#!?\[cfg\(/ && code ~ /[(, ]test[),]/ && code !~ /not\(test/) {
    if (code ~ /#!/) in_test[0] = 1
    else pending_test = 1
  }
  while (match(code, /[$]?[A-Za-z_][A-Za-z0-9_]*!?|[][{}();,]/)) {
    token = substr(code, RSTART, RLENGTH)
    code = substr(code, RSTART + RLENGTH)
    read_token(token)
    before_that = before
    before = token
  }
}

function read_token(token) {
  if (token == "{") open_block()
  else if (token == "}") close_block()
  else if (token == "(" || token == "[") parens++
  else if (token == ")" || token == "]") parens--
  else if (token == ";" && parens == 0) {
    if (pending_test && pending == "mod") test_module[module_path(named)] = 1
    pending = ""
    pending_test = 0
  } else if (token == "," && parens == 0 && pending == "") pending_test = 0
  else if (token == "impl" && pending == "") pending = "impl"
  else if (before in introduces && token ~ /^[A-Za-z_]/ && !(token in no_name)) item(before, token)
}

function open_block() {
  depth++
  kind[depth] = pending
  start[depth] = pending == "fn" ? started : 0
  local[depth] = local[depth - 1] || pending == "fn"
  in_test[depth] = in_test[depth - 1] || pending_test
  outer_parens[depth] = parens
  parens = 0
  pending = ""
  pending_test = 0
}

function close_block() {
  if (mode == "functions" && start[depth]) {
    print FNR - start[depth] + 1, FILENAME ":" start[depth] (in_test[depth] ? " tests" : "")
  }
  parens = outer_parens[depth]
  if (depth > 0) depth--
}

function item(keyword, name,   where) {
  if (keyword == "trait") pending = "impl"
  else pending = keyword
  named = name
  started = FNR
  if (mode == "functions") return
  where = FILENAME ":" FNR
  check_words(name, where)
  if (keyword == "fn" && name in vague && !is_allowed(name)) {
    fail(where " " name ": a function's name says what it does: respond, record, notify, report, query, find")
  }
  if (keyword in is_type && !local[depth] && !in_test[depth] && !pending_test && kind[depth] != "impl") {
    if (name in per_module && before_that != "pub") return
    types++
    type_name[types] = name
    type_crate[types] = crate
    type_file[types] = FILENAME
    type_line[types] = FNR
  }
}

function check_words(name, where,   words, word, n, i) {
  words = name
  if (words ~ /[a-z]/) {
    while (match(words, /[a-z0-9][A-Z]/)) {
      words = substr(words, 1, RSTART) "_" substr(words, RSTART + 1)
    }
  }
  n = split(tolower(words), word, /[_-]/)
  for (i = 1; i <= n; i++) {
    if (is_banned(word[i], word[i - 1]) && !is_allowed(name)) {
      fail(where " " name ": \"" word[i] "\" is a banned word; use the one that the industry uses")
      return
    }
  }
}

# Dead letters are an ordinary term.
function is_banned(word, previous) {
  if (!(word in banned) && !(word in replaced)) sub(/(s|es|ed|ing)$/, "", word)
  if (word == "letter") return previous != "dead"
  return word in banned || (word in replaced && crate != "wire" && crate != "simulator")
}

function is_allowed(name,   key) {
  key = crate "::" name
  if (key in exception) used[key] = 1
  return key in exception
}

# The path of a module declared in this file, without its ending.
function module_path(name,   path) {
  path = FILENAME
  sub(/\.rs$/, "", path)
  sub(/\/(mod|lib|main)$/, "", path)
  return path "/" name
}

function is_test_file(file,   path) {
  path = file
  sub(/\.rs$/, "", path)
  while (path ~ /\//) {
    if (path in test_module) return 1
    sub(/\/[^\/]*$/, "", path)
  }
  return 0
}

function report_duplicate_types(   i, key) {
  for (i = 1; i <= types; i++) {
    if (is_test_file(type_file[i])) continue
    crate = type_crate[i]
    key = crate "::" type_name[i]
    if (!(key in first)) first[key] = type_file[i] ":" type_line[i]
    else if (!is_allowed(type_name[i])) {
      fail(type_file[i] ":" type_line[i] " " type_name[i] ": a type of this name is already defined at " first[key])
    }
  }
}

function fail(message) {
  print message
}
