# Shared by the scripts: stages that print their duration, test programs that run side by side, and a summary.
# Sourced, not run. Programs that tests need are installed by scripts/install.sh.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

STAGES=()   # a line for each finished stage
FAILURES=() # names of failed tests and stages
PASSED=0
LOGS=$(mktemp -d)
CHILDREN=() # processes that must not outlive the script

on_exit() {
  local status=$? child
  trap - EXIT
  for child in "${CHILDREN[@]}"; do
    kill -- "-$child" 2>/dev/null || true
  done
  rm -rf "$LOGS"
  exit "$status"
}
trap on_exit EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# finish_stage NAME SECONDS STATUS — records how a stage ended.
finish_stage() {
  local mark=ok
  if (($3 != 0)); then mark=FAILED; fi
  printf -- '--- %s: %s, %s s\n' "$1" "$mark" "$2"
  STAGES+=("$(printf '%6s s  %-6s  %s' "$2" "$mark" "$1")")
}

# stage NAME COMMAND… — runs a command and goes on whether or not it succeeds. Returns its status.
stage() {
  local name=$1 started=$SECONDS status=0 before=${#FAILURES[@]}
  shift
  printf '\n=== %s\n' "$name"
  "$@" || status=$?
  finish_stage "$name" "$((SECONDS - started))" "$status"
  # A stage that named what failed is not counted once more.
  if ((status != 0 && ${#FAILURES[@]} == before)); then FAILURES+=("stage: $name"); fi
  return "$status"
}

# begin NAME COMMAND… — starts a command in the background, where it takes only the time that the other stages leave over;
# `end NAME` waits for it and shows its output.
begin() {
  local name=$1 log=$LOGS/${1// /-}
  shift
  printf '\n=== %s (in the background)\n' "$name"
  set -m
  (
    started=$SECONDS status=0
    trap - EXIT
    renice -n 10 -p "$BASHPID" >/dev/null
    "$@" >"$log" 2>&1 || status=$?
    echo "$((SECONDS - started)) $status" >"$log.end"
  ) &
  set +m
  CHILDREN+=("$!")
  echo "$!" >"$log.pid"
}

end() {
  local name=$1 log=$LOGS/${1// /-} seconds status
  wait "$(cat "$log.pid")" || true
  read -r seconds status <"$log.end" 2>/dev/null || { seconds=0 && status=1; }
  printf '\n=== %s\n' "$name"
  cat "$log"
  finish_stage "$name" "$seconds" "$status"
  if ((status != 0)); then FAILURES+=("stage: $name"); fi
  return "$status"
}

# count_tests PROGRAM STATUS LOG — adds up the results that libtest printed. A program that fails without naming a
# failed test (it crashed, or ran into its time limit) is itself a failure.
count_tests() {
  local program=$1 status=$2 log=$3 name failed=0 passed
  passed=$(awk '/^test result: / { for (i = 2; i <= NF; i++) if ($i ~ /^passed/) sum += $(i - 1) } END { print sum + 0 }' "$log")
  PASSED=$((PASSED + passed))
  while IFS= read -r name; do
    FAILURES+=("$program: $name")
    failed=1
  done < <(sed -nE 's/^test (.*[^ ]) +\.\.\. FAILED$/\1/p' "$log")
  if ((status != 0 && failed == 0)); then
    FAILURES+=("$program: ended with status $status$(((status == 124)) && echo ', its time limit' || true)")
    failed=1
  fi
  if ((failed != 0)); then
    printf '\n*** %s failed:\n' "$program"
    sed -n '/^failures:$/,$p' "$log" | grep . || tail -n 200 "$log"
  fi
  return "$failed"
}

# report — lists the stages, then every failure by name. Its status is the run's.
report() {
  printf '\n=== summary\n'
  printf '%s\n' "${STAGES[@]}"
  printf '%6s s          together\n' "$SECONDS"
  if ((${#FAILURES[@]} > 0)); then
    printf '\nfailed:\n'
    printf '  %s\n' "${FAILURES[@]}"
    return 1
  fi
}
