#!/bin/sh
# Starts the agent with exactly the Deno permissions that its settings need, then gets out of the way
# (as PID 1 it stays, as init). Reads only what makes permissions; everything else is the agent's to judge.
#
# ATEENVD_BIN names a compiled agent to start instead of `deno run src/main.ts`.
set -eu

fail() {
  printf 'ateenvd: %s\n' "$1" >&2
  exit 2
}

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd -P)

# --- settings: flags first, then variables -------------------------------------------------------

listen='' unix='' workspace='' root='' read_paths='' state='' allow_run='' token_file=''
tls_cert='' tls_key='' tls_client_ca='' enable_process='' cgroup=''
has_allow_run=''

# set_once NAME FLAG VALUE: the same flag twice may only repeat itself.
set_once() {
  eval "old=\$$1"
  if [ -n "$old" ] && [ "$old" != "$3" ]; then
    fail "$2 $3 disagrees with $old; give one"
  fi
  eval "$1=\$3"
}

newline='
'
count=$#
while [ "$count" -gt 0 ]; do
  arg=$1
  shift
  count=$((count - 1))
  case $arg in
    --help | --version) exec_help=1; set -- "$@" "$arg"; continue ;;
    --*=*) flag=${arg%%=*} value=${arg#*=} given=1 ;;
    --*)
      flag=$arg value='' given=''
      case ${1-} in
        --* | '') ;;
        *) [ "$count" -gt 0 ] && value=$1 given=2 ;;
      esac
      ;;
    *) set -- "$@" "$arg"; continue ;;
  esac
  name=''
  case $flag in
    --listen) name=listen ;;
    --unix) name=unix ;;
    --workspace) name=workspace ;;
    --root) name=root ;;
    --state-dir | --log-dir) name=state ;;
    --allow-run) name=allow_run ;;
    --token-file) name=token_file ;;
    --tls-cert) name=tls_cert ;;
    --tls-key) name=tls_key ;;
    --tls-client-ca) name=tls_client_ca ;;
    --enable-process) name=enable_process ;;
    --cgroup) name=cgroup ;;
    --read-path)
      [ -n "$given" ] && [ -n "$value" ] && read_paths="$read_paths$value$newline" && name=-
      ;;
  esac
  if [ -z "$name" ] || [ -z "$given" ]; then
    # Not ours, or without its value: the agent has the words for it.
    set -- "$@" "$arg"
    continue
  fi
  [ "$name" = - ] || set_once "$name" "$flag" "$value"
  [ "$name" = allow_run ] && has_allow_run=1
  if [ "$given" = 2 ]; then
    shift
    count=$((count - 1))
  fi
done

: "${listen:=${ATEENV_LISTEN:-}}"
[ -n "$listen" ] || [ -z "${PORT:-}" ] || listen="0.0.0.0:$PORT"
: "${listen:=127.0.0.1:8080}"
: "${unix:=${ATEENV_UNIX:-}}"
: "${workspace:=${ATEENV_WORKSPACE:-${WORKSPACE:-${WORKDIR:-}}}}"
: "${root:=${ATEENV_ROOT:-}}"
: "${state:=${ATEENV_STATE_DIR:-${LOG_DIR:-}}}"
: "${token_file:=${ATEENV_TOKEN_FILE:-}}"
: "${tls_cert:=${ATEENV_TLS_CERT:-}}"
: "${tls_key:=${ATEENV_TLS_KEY:-}}"
: "${tls_client_ca:=${ATEENV_TLS_CLIENT_CA:-}}"
: "${enable_process:=${ATEENV_ENABLE_PROCESS:-true}}"
: "${cgroup:=${ATEENV_CGROUP:-}}"
if [ -z "$has_allow_run" ] && [ -n "${ATEENV_ALLOW_RUN:-}" ]; then
  allow_run=$ATEENV_ALLOW_RUN has_allow_run=1
fi
if [ -z "$read_paths" ] && [ -n "${ATEENV_READ_PATHS:-}" ]; then
  read_paths=$(printf '%s' "$ATEENV_READ_PATHS" | tr ':' '\n')$newline
fi

if [ -n "${exec_help:-}" ]; then
  if [ -n "${ATEENVD_BIN:-}" ]; then exec "$ATEENVD_BIN" "$@"; fi
  exec deno run --no-prompt "$here/main.ts" "$@"
fi

# --- directories ---------------------------------------------------------------------------------

# A comma cannot be written in a permission flag.
check_comma() {
  case $2 in *,*) fail "$1 $2: a path with a comma cannot be granted; use another directory" ;; esac
}

# directory FLAG PATH: prints the real path of a directory.
directory() {
  (CDPATH= cd -- "$2" 2>/dev/null && pwd -P) || fail "$1 $2: no such directory, or it cannot be entered"
}

# file FLAG PATH: prints PATH with a real directory; the file itself may be exchanged (mounted secrets).
file() {
  [ -r "$2" ] || fail "$1 $2: no such file, or it cannot be read"
  dir=$(directory "$1" "$(dirname -- "$2")") || exit 2
  printf '%s/%s' "${dir%/}" "$(basename -- "$2")"
}

# The default workspace is ./workspace of the project (of the current directory for a compiled agent).
: "${workspace:=workspace}"
mkdir -p -- "$workspace" 2>/dev/null || fail "--workspace $workspace: cannot be created"
workspace=$(directory --workspace "$workspace")
check_comma --workspace "$workspace"
if [ -n "$root" ]; then
  root=$(directory --root "$root")
  check_comma --root "$root"
else
  root=$workspace
fi

# private_directory DIR: makes it 0700, or takes it only if it is ours, closed to others and no link.
private_directory() {
  (umask 077 && mkdir -- "$1" 2>/dev/null) && return 0
  [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ] || return 1
  case $(ls -ld -- "$1") in drwx------*) return 0 ;; esac
  return 1
}

port=${listen##*:}
state_flags=''
if [ -n "$state" ]; then
  (umask 077 && mkdir -p -- "$state" 2>/dev/null) || fail "--state-dir $state: cannot be created"
elif [ "$port" = 0 ]; then
  state=$(mktemp -d "${TMPDIR:-/tmp}/ateenvd.XXXXXX") || fail "no temporary state directory can be made"
  state_flags='--state-temporary'
elif (umask 077 && mkdir -p /var/lib/ateenv) 2>/dev/null && [ -w /var/lib/ateenv ]; then
  state=/var/lib/ateenv/$port
  (umask 077 && mkdir -p -- "$state") || fail "$state: cannot be created"
elif [ -n "${XDG_STATE_HOME:-}" ] && (umask 077 && mkdir -p -- "$XDG_STATE_HOME/ateenv/$port") 2>/dev/null; then
  state=$XDG_STATE_HOME/ateenv/$port
else
  base=${TMPDIR:-/tmp}/ateenv-$(id -u)
  private_directory "$base" && private_directory "$base/$port" ||
    fail "$base: must be a directory of this user with mode 0700 and no link; remove it or give --state-dir"
  state=$base/$port
  state_flags='--state-shared'
fi
state=$(directory --state-dir "$state")
check_comma --state-dir "$state"

# The pinning link: through it the kernel resolves names from an open directory (src/workspace/).
if [ ! -L "$state/proc" ]; then
  ln -s /proc "$state/proc" || fail "$state/proc: the link to /proc cannot be made"
fi

# --- permissions ---------------------------------------------------------------------------------

read=$root,$state,/dev/urandom
write=$root,$state
case $workspace/ in "${root%/}"/*) ;; *) read=$read,$workspace write=$write,$workspace ;; esac

set -- "$@" --listen "$listen" --workspace "$workspace" --root "$root" --state-dir "$state"
[ -z "$state_flags" ] || set -- "$@" "$state_flags"

saved_ifs=$IFS
IFS=$newline
set -f
for path in $read_paths; do
  IFS=$saved_ifs
  path=$(directory --read-path "$path")
  check_comma --read-path "$path"
  read=$read,$path
  set -- "$@" --read-path "$path"
done
IFS=$saved_ifs
set +f

net=$listen
if [ -n "$unix" ]; then
  unix_dir=$(directory --unix "$(dirname -- "$unix")")
  unix=${unix_dir%/}/$(basename -- "$unix")
  check_comma --unix "$unix"
  net=$net,unix:$unix read=$read,$unix write=$write,$unix
  set -- "$@" --unix "$unix"
fi
grant_file() {
  granted=$(file "$1" "$2") || exit 2
  check_comma "$1" "$granted"
  read=$read,$granted
}
if [ -n "$token_file" ]; then
  grant_file --token-file "$token_file"
  set -- "$@" --token-file "$granted"
fi
if [ -n "$tls_cert" ]; then
  grant_file --tls-cert "$tls_cert"
  set -- "$@" --tls-cert "$granted"
fi
if [ -n "$tls_key" ]; then
  grant_file --tls-key "$tls_key"
  set -- "$@" --tls-key "$granted"
fi
if [ -n "$tls_client_ca" ]; then
  grant_file --tls-client-ca "$tls_client_ca"
  set -- "$@" --tls-client-ca "$granted"
fi
if [ -n "$cgroup" ]; then
  cgroup=$(directory --cgroup "$cgroup")
  set -- "$@" --cgroup "$cgroup"
fi
set -- "$@" --enable-process "$enable_process"

run=''
case $enable_process in
  false | 0) ;;
  *)
    if [ -n "$has_allow_run" ]; then
      [ -z "$allow_run" ] || run=--allow-run=$allow_run
      set -- "$@" --allow-run "$allow_run"
    else
      run=--allow-run
    fi
    ;;
esac

# Children inherit what is in the agent's environment: these names are taken out of it by the agent,
# which may touch no other variable.
strip=$(env | sed -n 's/^\(\(ATEENV\|DENO\|npm\|LD\)_[A-Za-z0-9_]*\)=.*/\1/p' | tr '\n' ':')
limit=$(ulimit -Hn 2>/dev/null || echo unlimited)
[ "$limit" = unlimited ] || set -- "$@" --descriptors "$limit"
set -- "$@" --strip-env "$strip"

env_names='ATEENV_*,DENO_*,npm_*,LD_*,PORT,WORKSPACE,WORKDIR,LOG_DIR,INIT_CWD,OTEL_DENO'
env_names="$env_names,GRPC_NODE_VERBOSITY,GRPC_VERBOSITY,GRPC_NODE_TRACE,GRPC_TRACE"
env_names="$env_names,GRPC_SSL_CIPHER_SUITES,GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
env_names="$env_names,GRPC_EXPERIMENTAL_ENABLE_OUTLIER_DETECTION,GRPC_NODE_USE_ALTERNATIVE_RESOLVER"
env_names="$env_names,GRPC_NODE_DEBUG_SEND_ERROR_DETAILS"

if [ -n "${ATEENVD_BIN:-}" ]; then
  # A compiled agent carries its permissions.
  set -- "$ATEENVD_BIN" "$@"
else
  set -- "$here/main.ts" "$@"
  [ -z "$run" ] || set -- "$run" "$@"
  set -- deno run --no-prompt --frozen "--allow-read=$read" "--allow-write=$write" \
    "--allow-net=$net" "--allow-env=$env_names" "$@"
fi

[ $$ = 1 ] || exec "$@"

# --- as init: forward the signals that stop a container, reap every orphan ---------------------------

"$@" &
child=$!
signalled=''
trap 'signalled=1; kill -TERM "$child" 2>/dev/null' TERM INT QUIT HUP
code=0
while :; do
  signalled=''
  wait "$child" && code=0 || code=$?
  # A trapped signal ends `wait` early, with a status that is not the agent's.
  [ -n "$signalled" ] || break
done
exit "$code"
