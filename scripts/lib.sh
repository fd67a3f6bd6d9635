# Shared by the scripts: stages that say how long they took. Sourced, not run.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

SUMMARY=()

# stage NAME COMMAND… — runs it, says how long it took, stops the script when it fails.
stage() {
  local name=$1 started=$SECONDS
  shift
  printf '\n=== %s\n' "$name"
  if ! "$@"; then
    printf '\n=== %s FAILED after %s s\n' "$name" "$((SECONDS - started))" >&2
    exit 1
  fi
  SUMMARY+=("$(printf '%6s s  %s' "$((SECONDS - started))" "$name")")
}

# Prints what ran and how long it took.
summary() {
  printf '\n=== all of it passed\n'
  printf '%s\n' "${SUMMARY[@]}"
  printf '%6s s  together\n' "$SECONDS"
}
