# Builds the test programs and runs them side by side. Sourced by scripts/test after lib.sh.
#
# cargo runs one program after the other, and most of ours wait for servers, timers and processes; two cores are busy
# only when several run at once. cargo-nextest would run each test in its own process, and start a
# PostgreSQL for each.

# One that waits most of the time and one that computes.
SIDE_BY_SIDE=2
TIME_LIMIT=1200 # seconds for one program
RUN_UNDER=()    # a command, with its first arguments, that runs each program

# build_programs CARGO-OPTION… — builds everything and writes "NAME<tab>DIRECTORY<tab>PROGRAM" for each into $PROGRAMS.
PROGRAMS=$LOGS/programs
build_programs() {
  cargo test --no-run --locked --message-format=json-render-diagnostics "$@" >"$LOGS/messages" || return 1
  # Unit tests are called CRATE/lib, integration tests CRATE/NAME.
  grep '"test":true}' "$LOGS/messages" |
    sed -nE 's|.*"manifest_path":"([^"]*)/([^"/]*)/Cargo.toml".*"kind":\["([^"]*)".*"executable":"([^"]*/([^"/]*)-[0-9a-f]+)".*|\3\t\2\t\5\t\1/\2\t\4|p' |
    awk -F'\t' -v OFS='\t' '{ print $2 "/" ($1 == "test" ? $3 : $1), $4, $5 }' | sort -u >"$PROGRAMS"
  [[ -s $PROGRAMS ]] || { echo "cargo built no test program" >&2 && return 1; }
}

# How many tests of a program run at once: more than cores where tests wait, no more where they compute.
threads_of() {
  case $1 in
    solvegate/all) echo 12 ;;
    doors/http | upstream/upstream) echo 8 ;;
    store-tests/*) echo 4 ;;
    *) echo 2 ;;
  esac
}

# The longest first, so that none of them is left alone at the end.
LONGEST="solvegate/all store-tests/backends simulation/simulation store-tests/conformance"

# run_programs PATTERN — runs the programs whose names match, and reports each as it ends. Every one is run, whatever
# happened to the others.
run_programs() {
  local name directory program log pid running=0 failed=0
  local -A name_of=() started=()
  while IFS=$'\t' read -r name directory program; do
    if ((running >= SIDE_BY_SIDE)); then next_to_end || failed=1; fi
    log=$LOGS/${name//\//-}
    set -m
    (
      trap - EXIT
      cd "$directory"
      # Amazon's SDK reads these in the test process itself, where no test can clear them.
      unset ${!AWS_@}
      CARGO_MANIFEST_DIR=$directory exec timeout --kill-after=10 "$TIME_LIMIT" \
        "${RUN_UNDER[@]}" "$program" --test-threads="$(threads_of "$name")" $(filters_of "$name") </dev/null >"$log" 2>&1
    ) &
    set +m
    pid=$!
    CHILDREN+=("$pid")
    name_of[$pid]=$name started[$pid]=$SECONDS running=$((running + 1))
  done < <(in_order | grep -P "$1")
  while ((running > 0)); do next_to_end || failed=1; done
  return "$failed"
}

# Waits for one of the programs of run_programs and counts its tests.
next_to_end() {
  local pid status=0 result name log bad=0
  wait -n -p pid "${!name_of[@]}" || status=$?
  name=${name_of[$pid]} log=$LOGS/${name_of[$pid]//\//-}
  result=$(sed -nE 's/^test result: [^.]*\. ([0-9]+ passed; [0-9]+ failed).*/\1/p' "$log" | tail -n 1)
  printf '%6s s  %-28s %s\n' "$((SECONDS - started[$pid]))" "$name" "${result:-no result}"
  grep -E '^simulation: random seeds' "$log" || true
  count_tests "$name" "$status" "$log" || bad=1
  unset "name_of[$pid]"
  running=$((running - 1))
  return "$bad"
}

in_order() {
  local name
  for name in $LONGEST; do grep -P "^$name\t" "$PROGRAMS" || true; done
  grep -vE "^($(tr ' ' '|' <<<"$LONGEST"))	" "$PROGRAMS" || true
}

# With --fast the conformance suite runs on the two stores that need no server.
filters_of() {
  if [[ $MODE == fast && $1 == store-tests/conformance ]]; then echo "--skip redis --skip postgres --skip dynamodb"; fi
}
