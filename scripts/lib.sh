# Shared by the scripts: stages that say how long they took, and the programs that tests need. Sourced, not run.

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

# Sees to it that the programs of Redis are there. Tests start servers of their own; no service is wanted, and one that
# runs already is left alone.
need_redis() {
  if command -v redis-server >/dev/null && command -v redis-cli >/dev/null; then return 0; fi
  if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
    echo "redis-server or redis-cli is missing, and only root on Debian can have them installed from here." >&2
    echo "Install Redis 7 (on Debian: apt-get install redis-server), then run this again." >&2
    return 1
  fi
  # A fresh machine has no package lists yet.
  install_quietly redis-server || { apt-get update && install_quietly redis-server; }
}

# install_quietly PACKAGE — without questions, and without the service that Debian starts with it. Where the machine has
# a policy about services of its own, that one stands.
install_quietly() (
  policy=/usr/sbin/policy-rc.d
  if [[ ! -e $policy ]]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy" || exit 1
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$1"
)
