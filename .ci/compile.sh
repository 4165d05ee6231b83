#!/bin/sh
# Makes dist/ateenvd and dist/ateenv, executables that carry Deno and exactly the permissions that
# src/start.sh derives from the settings below; start.sh comes along and starts the agent.
#
# ATEENV_COMPILE_POLICY    full (default): all programs; build: those of ATEENV_COMPILE_ALLOW_RUN;
#                          files: no programs at all
# ATEENV_COMPILE_ALLOW_RUN programs of the policy `build`, ',' between
# ATEENV_COMPILE_WORKSPACE /workspace     ATEENV_COMPILE_STATE_DIR /var/lib/ateenv
# ATEENV_COMPILE_LISTEN    127.0.0.1:8080
# ATEENV_COMPILE_ROOT, _READ_PATHS, _UNIX, _TOKEN_FILE, _TLS_CERT, _TLS_KEY, _TLS_CLIENT_CA: as without _COMPILE
# ATEENV_COMPILE_TARGET    x64, arm64 or both (default: this machine's)
# ATEENV_COMPILE_COMMIT    what --version says (default: git's)
# ATEENV_COMPILE_OUT       where to put it (default: dist)
# DENORT_BIN               a denort of this Deno's version, where Deno cannot download it
set -eu
cd "$(dirname "$0")/.."

fail() {
  printf 'compile: %s\n' "$1" >&2
  exit 2
}

policy=${ATEENV_COMPILE_POLICY:-full}
workspace=${ATEENV_COMPILE_WORKSPACE:-/workspace}
state=${ATEENV_COMPILE_STATE_DIR:-/var/lib/ateenv}
listen=${ATEENV_COMPILE_LISTEN:-127.0.0.1:8080}
enable_process=true allow_run=''
case $policy in
  full) ;;
  build)
    allow_run=${ATEENV_COMPILE_ALLOW_RUN:-}
    [ -n "$allow_run" ] ||
      fail "the policy build needs ATEENV_COMPILE_ALLOW_RUN (sh,cat,grep for kills; git,make,...)"
    ;;
  files) enable_process=false ;;
  *) fail "ATEENV_COMPILE_POLICY=$policy: want full, build or files" ;;
esac
[ "$policy" = build ] || [ -z "${ATEENV_COMPILE_ALLOW_RUN:-}" ] ||
  fail "ATEENV_COMPILE_ALLOW_RUN needs ATEENV_COMPILE_POLICY=build"
case ${ATEENV_COMPILE_TARGET:-} in
  '') targets=native ;;
  x64 | arm64) targets=$ATEENV_COMPILE_TARGET ;;
  both) targets='x64 arm64' ;;
  *) fail "ATEENV_COMPILE_TARGET=$ATEENV_COMPILE_TARGET: want x64, arm64 or both" ;;
esac

# --- the permissions, and V8's flags: start.sh decides, as it does for a start -------------------------

set -- --workspace "$workspace" --state-dir "$state" --listen "$listen" --enable-process "$enable_process"
[ -z "$allow_run" ] || set -- "$@" --allow-run "$allow_run"
permissions=$(env -i PATH="$PATH" ATEENVD_COMPILE=1 \
  ATEENV_ROOT="${ATEENV_COMPILE_ROOT:-}" ATEENV_READ_PATHS="${ATEENV_COMPILE_READ_PATHS:-}" \
  ATEENV_UNIX="${ATEENV_COMPILE_UNIX:-}" ATEENV_TOKEN_FILE="${ATEENV_COMPILE_TOKEN_FILE:-}" \
  ATEENV_TLS_CERT="${ATEENV_COMPILE_TLS_CERT:-}" ATEENV_TLS_KEY="${ATEENV_COMPILE_TLS_KEY:-}" \
  ATEENV_TLS_CLIENT_CA="${ATEENV_COMPILE_TLS_CLIENT_CA:-}" \
  sh src/start.sh "$@")

# quote TEXT: as a word of the shell.
quote() {
  printf "'%s'" "$(printf '%s' "$1" | sed "s/'/'\\\\''/g")"
}
permission() {
  printf '%s\n' "$permissions" | sed -n "s/^--allow-$1=//p"
}
baked() {
  cat <<END
# What the agent beside this file was compiled with: defaults of settings, and its permissions.
baked_listen=$(quote "$listen") baked_workspace=$(quote "$workspace") baked_state=$(quote "$state")
baked_enable_process=$enable_process baked_allow_run=$(quote "$allow_run")
baked_root=$(quote "${ATEENV_COMPILE_ROOT:-}") baked_read_paths=$(quote "${ATEENV_COMPILE_READ_PATHS:-}")
baked_unix=$(quote "${ATEENV_COMPILE_UNIX:-}") baked_token_file=$(quote "${ATEENV_COMPILE_TOKEN_FILE:-}")
baked_tls_cert=$(quote "${ATEENV_COMPILE_TLS_CERT:-}") baked_tls_key=$(quote "${ATEENV_COMPILE_TLS_KEY:-}")
baked_tls_client_ca=$(quote "${ATEENV_COMPILE_TLS_CLIENT_CA:-}")
baked_read=$(quote "$(permission read)")
baked_write=$(quote "$(permission write)")
baked_net=$(quote "$(permission net)")
baked_run=$(quote "$(printf '%s\n' "$permissions" | grep '^--allow-run' || true)")
END
}

# --- the sources, with the commit in their version ---------------------------------------------------

commit=${ATEENV_COMPILE_COMMIT-$(git rev-parse --short=12 HEAD 2>/dev/null || true)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R src gen deno.json deno.lock "$work/"
[ -z "$commit" ] || sed -i "s/^  \"version\": \"\(.*\)\",\$/  \"version\": \"\1+$commit\",/" "$work/deno.json"

# compile_one OUTPUT SOURCE FLAG...: bundled, so that only what is imported is embedded.
compile_one() {
  output=$1 source=$2
  shift 2
  (cd "$work" && deno compile --quiet --frozen --no-check --bundle --no-prompt "$@" --output "$output" "$source")
}

cli_permissions=$(ATEENVD_COMPILE=1 sh src/ateenv.sh)

out=${ATEENV_COMPILE_OUT:-$PWD/dist}
mkdir -p "$out"
for target in $targets; do
  dir=$out set_target=''
  if [ "$target" != native ]; then
    case $target in x64) triple=x86_64 ;; arm64) triple=aarch64 ;; esac
    dir=$out/linux-$target set_target=--target=$triple-unknown-linux-gnu
    mkdir -p "$dir"
  fi
  # One permission a line; none of them has a line break in it.
  saved_ifs=$IFS
  IFS='
'
  set -f
  compile_one "$dir/ateenvd" src/main.ts $permissions $set_target
  set +f
  IFS=$saved_ifs
  compile_one "$dir/ateenv" src/cli.ts $cli_permissions $set_target
  cp src/start.sh "$dir/start.sh"
  baked >"$dir/ateenvd.baked"
  for file in ateenvd ateenv; do
    printf '%s  %s MiB  policy %s\n' "$dir/$file" "$(($(wc -c <"$dir/$file") / 1048576))" "$policy"
  done
done
