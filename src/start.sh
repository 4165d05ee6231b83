#!/bin/sh
# Starts the agent with exactly the Deno permissions that its settings need, then gets out of the way
# (as PID 1 it stays, as init). Reads only what makes permissions; everything else is the agent's to judge.
#
# ATEENVD_DENO names the Deno to run; ATEENVD_BIN a compiled agent to start instead (found by itself
# where `deno task compile` put it: beside this script). ATEENVD_COMPILE only prints the permission flags.
set -eu

# No network but the listening port: the runtime must not ask whether there is a newer one.
export DENO_NO_UPDATE_CHECK=1

newline='
'
saved_ifs=$IFS
mistakes=''
# Noted here, reported together with those that the agent finds (`report`).
mistake() {
  mistakes=$mistakes$1$newline
}

fail() {
  printf 'ateenvd: %s\n' "$1" >&2
  exit 2
}

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd -P)

deno=${ATEENVD_DENO:-deno} bin=${ATEENVD_BIN:-} compile=${ATEENVD_COMPILE:-}
unset ATEENVD_DENO ATEENVD_BIN ATEENVD_COMPILE
# The sources, or what the image carries: the same in one file, without configuration and lock file.
main=$here/main.ts main_flags=--frozen
[ -f "$main" ] || main=$here/main.mjs main_flags=--no-config
[ -n "$bin" ] || [ -f "$main" ] || bin=$here/ateenvd
# What .ci/compile.sh wrote: default settings, and the permissions that cannot be widened any more.
baked_listen='' baked_workspace='' baked_root='' baked_state='' baked_allow_run='' baked_enable_process=''
baked_read_paths='' baked_token_file='' baked_tls_cert='' baked_tls_key='' baked_tls_client_ca=''
baked_unix='' baked_read='' baked_write='' baked_net='' baked_run=''
if [ -n "$bin" ] && [ -f "$(dirname -- "$bin")/ateenvd.baked" ]; then
  . "$(dirname -- "$bin")/ateenvd.baked"
fi

# --- settings: flags first, then variables -------------------------------------------------------

listen='' unix='' workspace='' root='' read_paths='' state='' allow_run='' token_file=''
tls_cert='' tls_key='' tls_client_ca='' enable_process='' cgroup=''
has_allow_run=''

# set_once NAME FLAG VALUE: the same flag twice may only repeat itself.
set_once() {
  eval "old=\$$1"
  if [ -n "$old" ] && [ "$old" != "$3" ]; then
    mistake "$2 $3 and $2 $old disagree; give one"
  fi
  eval "$1=\$3"
}

count=$#
while [ "$count" -gt 0 ]; do
  arg=$1
  shift
  count=$((count - 1))
  case $arg in
    --help | --version | -h) exec_help=1; set -- "$@" "$arg"; continue ;;
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
: "${listen:=${baked_listen:-127.0.0.1:8080}}"
: "${unix:=${ATEENV_UNIX:-$baked_unix}}"
: "${workspace:=${ATEENV_WORKSPACE:-${WORKSPACE:-${WORKDIR:-$baked_workspace}}}}"
: "${root:=${ATEENV_ROOT:-$baked_root}}"
: "${state:=${ATEENV_STATE_DIR:-${LOG_DIR:-}}}"
: "${token_file:=${ATEENV_TOKEN_FILE:-$baked_token_file}}"
: "${tls_cert:=${ATEENV_TLS_CERT:-$baked_tls_cert}}"
: "${tls_key:=${ATEENV_TLS_KEY:-$baked_tls_key}}"
: "${tls_client_ca:=${ATEENV_TLS_CLIENT_CA:-$baked_tls_client_ca}}"
: "${enable_process:=${ATEENV_ENABLE_PROCESS:-${baked_enable_process:-true}}}"
: "${cgroup:=${ATEENV_CGROUP:-}}"
if [ -z "$has_allow_run" ]; then
  allow_run=${ATEENV_ALLOW_RUN:-$baked_allow_run}
  [ -z "$allow_run" ] || has_allow_run=1
fi
if [ -z "$read_paths" ]; then
  read_paths=${ATEENV_READ_PATHS:-$baked_read_paths}
  [ -z "$read_paths" ] || read_paths=$(printf '%s' "$read_paths" | tr ':' '\n')$newline
fi

# The Deno of the project where there is npm but no Deno; a start through npx has it on PATH.
if [ -z "$bin" ] && [ -z "$compile" ] && ! command -v "$deno" >/dev/null; then
  command -v npx >/dev/null || fail "no $deno on PATH, and no npx to bring it"
  deno=$(npx -y deno@2.9.6 eval 'console.log(Deno.execPath())') || fail "npx cannot bring Deno"
fi

if [ -n "${exec_help:-}" ]; then
  if [ -n "$bin" ]; then exec "$bin" "$@"; fi
  # A built agent has its commit in its version; in a clone only git knows it.
  commit=$(git -C "$here" rev-parse --short=12 HEAD 2>/dev/null) && set -- "$@" --commit "$commit"
  exec "$deno" run --quiet --no-prompt $main_flags "$main" "$@"
fi

# --- directories ---------------------------------------------------------------------------------

# A comma cannot be written in a permission flag.
check_comma() {
  case $2 in
    *,*) mistake "$1 $2: a path with a comma cannot be granted; use another directory" ;;
    *"$newline"*) mistake "$1: a path with a line break cannot be granted; use another directory" ;;
  esac
}

# real_directory PATH: prints the real path of a directory; that of another machine as it is written.
real_directory() {
  if [ -z "$compile" ]; then
    (CDPATH= cd -- "$1" 2>/dev/null && pwd -P)
  else
    case $1 in /*) printf '%s' "$1" ;; *) return 1 ;; esac
  fi
}

# directory NAME FLAG PATH: NAME becomes the real path.
directory() {
  if resolved=$(real_directory "$3"); then
    check_comma "$2" "$resolved"
    eval "$1=\$resolved"
  elif [ -n "$compile" ]; then
    mistake "$2 $3: a compiled agent needs an absolute path"
  else
    mistake "$2 $3: no such directory, or it cannot be entered"
  fi
}

# file NAME FLAG PATH: NAME becomes PATH with a real directory; the file itself may be exchanged (mounted
# secrets). It may be read.
file() {
  if [ -z "$compile" ] && [ ! -r "$3" ]; then
    mistake "$2 $3: no such file, or it cannot be read"
    return
  fi
  parent=''
  directory parent "$2" "$(dirname -- "$3")"
  granted=${parent%/}/$(basename -- "$3")
  check_comma "$2" "$granted"
  read=$read,$granted
  eval "$1=\$granted"
}

# The default workspace is ./workspace of the project (of the current directory for a compiled agent).
: "${workspace:=workspace}"
case $listen in :*) listen=0.0.0.0$listen ;; esac
port=${listen##*:}
# What the agent will refuse makes no directory, and no flag that Deno would choke on.
is_listen_valid=1
case $port in '' | *[!0-9]* | ??????*) is_listen_valid='' ;; *) [ "$port" -le 65535 ] || is_listen_valid='' ;; esac
case ${listen%:*} in '' | *[!][A-Za-z0-9.:_-]*) is_listen_valid='' ;; esac
given_workspace=$workspace given_root=$root
read='' write=''
if [ -z "$compile" ] && [ -n "$is_listen_valid" ]; then
  mkdir -p -- "$workspace" 2>/dev/null || mistake "--workspace $workspace: cannot be created"
fi
if [ -n "$compile" ] || [ -d "$workspace" ]; then directory workspace --workspace "$workspace"; fi
if [ -n "$root" ]; then directory root --root "$root"; else root=$workspace; fi
if [ -n "$token_file" ]; then file token_file --token-file "$token_file"; fi
if [ -n "$tls_cert" ]; then file tls_cert --tls-cert "$tls_cert"; fi
if [ -n "$tls_key" ]; then file tls_key --tls-key "$tls_key"; fi
if [ -n "$tls_client_ca" ]; then file tls_client_ca --tls-client-ca "$tls_client_ca"; fi
if [ -n "$cgroup" ]; then directory cgroup --cgroup "$cgroup"; fi
if [ -n "$unix" ]; then
  parent=''
  directory parent --unix "$(dirname -- "$unix")"
  unix=${parent%/}/$(basename -- "$unix")
  check_comma --unix "$unix"
fi
real_read_paths=''
IFS=$newline
set -f
for path in $read_paths; do
  IFS=$saved_ifs
  directory path --read-path "$path"
  real_read_paths=$real_read_paths$path$newline
done
IFS=$saved_ifs
set +f

# private_directory DIR: makes it 0700, or takes it only if it is ours, closed to others and no link.
private_directory() {
  (umask 077 && mkdir -- "$1" 2>/dev/null) && return 0
  [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ] || return 1
  case $(ls -ld -- "$1") in drwx------*) return 0 ;; esac
  return 1
}

# find_state: `state` becomes the state directory, made where it is not there yet.
find_state() {
  if [ -n "$compile" ]; then
    : "${state:=/var/lib/ateenv}"
  elif [ -n "$state" ]; then
    (umask 077 && mkdir -p -- "$state" 2>/dev/null) || mistake "--state-dir $state: cannot be created"
  elif [ "$port" = 0 ]; then
    state=$(mktemp -d "${TMPDIR:-/tmp}/ateenvd.XXXXXX") || mistake "no temporary state directory can be made"
    state_flags='--state-temporary'
  elif (umask 077 && mkdir -p /var/lib/ateenv) 2>/dev/null && [ -w /var/lib/ateenv ]; then
    state=/var/lib/ateenv/$port
    (umask 077 && mkdir -p -- "$state") || mistake "$state: cannot be created"
  elif [ -n "${XDG_STATE_HOME:-}" ] && (umask 077 && mkdir -p -- "$XDG_STATE_HOME/ateenv/$port") 2>/dev/null; then
    state=$XDG_STATE_HOME/ateenv/$port
  else
    base=${TMPDIR:-/tmp}/ateenv-$(id -u)
    private_directory "$base" && private_directory "$base/$port" ||
      mistake "$base: must be a directory of this user with mode 0700 and no link; remove it or give --state-dir"
    state=$base/$port
    state_flags='--state-shared'
  fi
  [ -n "$compile" ] || [ -d "$state" ] || return 0
  directory state --state-dir "$state"
  # The pinning link: through it the kernel resolves names from an open directory (src/workspace/).
  if [ -z "$compile" ] && [ ! -L "$state/proc" ]; then
    ln -s /proc "$state/proc" || mistake "$state/proc: the link to /proc cannot be made"
  fi
}

state_flags=''
if [ -n "$is_listen_valid" ] && [ -z "$mistakes" ]; then find_state; fi

# --- the agent's flags, and its permissions ----------------------------------------------------------

set -- "$@" --listen "$listen" --workspace "$workspace" --root "$root" --state-dir "${state:-/}" \
  --enable-process "$enable_process"
# Clients may go on using the absolute name that the user gave, though the real one is another.
case $given_workspace in "$workspace") ;; /*) set -- "$@" --given-workspace "$given_workspace" ;; esac
case $given_root in "$root") ;; /*) set -- "$@" --given-root "$given_root" ;; esac
[ -z "$state_flags" ] || set -- "$@" "$state_flags"
[ -z "$unix" ] || set -- "$@" --unix "$unix"
[ -z "$token_file" ] || set -- "$@" --token-file "$token_file"
[ -z "$tls_cert" ] || set -- "$@" --tls-cert "$tls_cert"
[ -z "$tls_key" ] || set -- "$@" --tls-key "$tls_key"
[ -z "$tls_client_ca" ] || set -- "$@" --tls-client-ca "$tls_client_ca"
[ -z "$cgroup" ] || set -- "$@" --cgroup "$cgroup"

files=$read
read=$root,$state,/dev/urandom
write=$root,$state
case $workspace/ in "${root%/}"/*) ;; *) read=$read,$workspace write=$write,$workspace ;; esac
IFS=$newline
set -f
for path in $real_read_paths; do
  IFS=$saved_ifs
  read=$read,$path
  set -- "$@" --read-path "$path"
done
IFS=$saved_ifs
set +f
net=$listen sys=''
if [ -n "$unix" ]; then
  net=$net,unix:$unix read=$read,$unix write=$write,$unix
  # The socket is born 0600, which takes a umask; Deno has no narrower word for that. Given up once bound.
  sys=--allow-sys
fi
read=$read$files

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

# Deno exports telemetry by itself (OTEL_DENO=true). Its spans of HTTP would carry paths that clients made
# up, and its copy of the console those of the agent; the agent has spans of its own (src/rpc/telemetry.ts).
# Where nobody takes what is sent, the end of the agent would wait 10 s for each kind of it.
own_otel=''
set_otel() {
  export "$1=$2"
  own_otel=$own_otel$1:
}
if [ "${OTEL_DENO:-}" = true ]; then
  set_otel OTEL_DENO_TRACING false
  [ -n "${OTEL_DENO_CONSOLE:-}" ] || set_otel OTEL_DENO_CONSOLE ignore
  [ -n "${OTEL_EXPORTER_OTLP_TIMEOUT:-}" ] || set_otel OTEL_EXPORTER_OTLP_TIMEOUT 1000
fi

# Children inherit what is in the agent's environment: these names are taken out of it by the agent,
# which may touch no other variable.
strip=$(env | sed -n -e 's/^\(ATEENV_[A-Za-z0-9_]*\)=.*/\1/p' -e 's/^\(DENO_[A-Za-z0-9_]*\)=.*/\1/p' \
  -e 's/^\(npm_[A-Za-z0-9_]*\)=.*/\1/p' -e 's/^\(LD_[A-Za-z0-9_]*\)=.*/\1/p' | tr '\n' ':')
limit=$(ulimit -Hn 2>/dev/null || echo unlimited)
[ "$limit" = unlimited ] || set -- "$@" --descriptors "$limit"
set -- "$@" --strip-env "$strip$own_otel"

env_names='ATEENV_*,DENO_*,npm_*,LD_*,PWD,OLDPWD,PORT,WORKSPACE,WORKDIR,LOG_DIR,INIT_CWD,OTEL_*'
env_names="$env_names,GRPC_NODE_VERBOSITY,GRPC_VERBOSITY,GRPC_NODE_TRACE,GRPC_TRACE"
env_names="$env_names,GRPC_SSL_CIPHER_SUITES,GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
env_names="$env_names,GRPC_EXPERIMENTAL_ENABLE_OUTLIER_DETECTION,GRPC_NODE_USE_ALTERNATIVE_RESOLVER"
env_names="$env_names,GRPC_NODE_DEBUG_SEND_ERROR_DETAILS"

# Mistakes end here, together with those that the agent finds in the rest.
if [ -n "$mistakes" ] || [ -z "$is_listen_valid" ]; then
  set -- "$@" "--mistakes=$mistakes"
  if [ -n "$compile" ]; then fail "${mistakes%"$newline"}"; fi
  if [ -n "$bin" ]; then exec "$bin" "$@"; fi
  exec "$deno" run --quiet --no-prompt $main_flags "--allow-env=$env_names" "$main" "$@"
fi

# What the runtime may spend (measured in tests/bench/README.md). A young generation of 4 MiB: a server's
# garbage is short-lived, and idle memory is what a sandbox pays. 32 MiB of old objects, before V8 looks at
# the whole heap, and no guesses which objects will become old: bytes on their way never should.
# --expose-gc is for src/buffer_garbage.ts.
v8_flags=--max-semi-space-size=4,--initial-old-space-size=32,--no-allocation-site-pretenuring,--expose-gc

permissions="--allow-read=$read$newline--allow-write=$write$newline--allow-net=$net$newline"
[ -z "$sys" ] || permissions="$permissions$sys$newline"
permissions="$permissions--allow-env=$env_names"
[ -z "$run" ] || permissions="$permissions$newline$run"
if [ -n "$compile" ]; then
  printf '%s\n' "--v8-flags=$v8_flags" "$permissions"
  exit 0
fi

# check_baked NAME WANTED HAD: every path that is wanted lies in one that the compiled agent has.
check_baked() {
  IFS=,
  for wanted in $2; do
    covered=''
    for had in $3; do
      case ${wanted%/}/ in "${had%/}"/*) covered=1 ;; esac
    done
    [ -n "$covered" ] || fail "$wanted: the compiled agent has no permission $1 for it, only for $3"
  done
  IFS=$saved_ifs
}

if [ -n "$bin" ]; then
  if [ -n "$baked_net" ]; then
    set -f
    check_baked read "$read" "$baked_read"
    check_baked write "$write" "$baked_write"
    set +f
    [ "$net" = "$baked_net" ] ||
      fail "--listen $net: the compiled agent may listen on $baked_net only"
    [ "$run" = "$baked_run" ] || [ -z "$run" ] ||
      fail "${run}: the compiled agent was given ${baked_run:-no permission to run anything}"
  fi
  # A compiled agent carries its permissions.
  set -- "$bin" "$@"
else
  set -- "$main" "$@"
  IFS=$newline
  set -f
  set -- "$deno" run --quiet --no-prompt "--v8-flags=$v8_flags" $main_flags $permissions "$@"
  set +f
  IFS=$saved_ifs
fi

[ $$ = 1 ] || exec "$@"

# --- as init: forward the signals that stop a container, reap every orphan ---------------------------

# The kernel gives PID 1 no signal that it has no handler for, so handlers come first.
child='' signalled=''
trap 'signalled=1; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null || :' TERM INT QUIT HUP
"$@" &
child=$!
[ -z "$signalled" ] || kill -TERM "$child" 2>/dev/null || :
while :; do
  wait "$child" && code=0 || code=$?
  # A trapped signal ends `wait` early, with a status that is not the agent's.
  kill -0 "$child" 2>/dev/null || break
done
exit "$code"
