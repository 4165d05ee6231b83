#!/bin/sh
# One scenario, from foreign clients: grpcio (Python), grpc-go and grpcurl, generated from the proto now.
# Needs python3 (with venv), go and deno; installs the rest itself, pinned, outside the repository.
# Ends with a line `N passed, M failed`, and non-zero if anything failed.
#
# ATEENV_INTEROP_CACHE: where tools are kept between runs (default: below the user's cache directory).
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd -P)
repository=$(CDPATH= cd -- "$here/../.." && pwd -P)
work=$(mktemp -d "${TMPDIR:-/tmp}/ateenvd-interop.XXXXXX")
results=$work/results
: >"$results"
agents=''

cleanup() {
  for pid in $agents; do kill -KILL "$pid" 2>/dev/null || :; done
  rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
  printf 'interop: %s\n' "$1" >&2
  exit 1
}

for program in python3 go deno; do
  command -v "$program" >/dev/null || fail "$program is needed and not on PATH"
done

# --- tools ---------------------------------------------------------------------------------------

cache=${ATEENV_INTEROP_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/ateenvd-interop}
key() { cat "$@" | cksum | tr ' ' -; }
venv=$cache/python-$(key "$here/python/requirements.txt")
tools=$cache/go-$(key "$here/go/go.mod" "$here/go/go.sum")
mkdir -p "$cache"

# A directory that is marked as done was installed to its end.
if [ ! -e "$venv/done" ]; then
  echo "interop: installing Python packages"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" --quiet --disable-pip-version-check install -r "$here/python/requirements.txt"
  : >"$venv/done"
fi
# -mod=readonly: go.sum decides, and is not written.
export GOFLAGS=-mod=readonly
if [ ! -e "$tools/done" ]; then
  echo "interop: installing Go tools"
  rm -rf "$tools"
  mkdir -p "$tools"
  (cd "$here/go" && GOBIN=$tools go install tool)
  : >"$tools/done"
fi

# --- stubs ---------------------------------------------------------------------------------------

proto=ateenv/v1alpha/guest.proto
mkdir "$work/python" "$work/go"
cp "$here"/python/*.py "$work/python/"
cp "$here"/go/*.go "$here"/go/go.* "$work/go/"
"$venv/bin/python" -m grpc_tools.protoc -I "$repository/proto" \
  --python_out="$work/python" --grpc_python_out="$work/python" \
  --plugin=protoc-gen-go="$tools/protoc-gen-go" --go_out="$work/go" \
  --plugin=protoc-gen-go-grpc="$tools/protoc-gen-go-grpc" --go-grpc_out="$work/go" \
  --go_opt=module=interop,M$proto=interop/ateenvv1alpha \
  --go-grpc_opt=module=interop,M$proto=interop/ateenvv1alpha \
  "$proto"
(cd "$work/go" && go build -o "$work/scenario" .)

# --- agents --------------------------------------------------------------------------------------

# launch NAME FLAG...: starts an agent in the background of this shell; sets pid and address.
launch() {
  name=$1
  shift
  mkdir "$work/$name"
  mkfifo "$work/$name/log-pipe" "$work/$name/ready"
  {
    while read -r line; do
      printf '%s\n' "$line" >>"$work/$name/log"
      case $line in *'"address"'*) printf '%s\n' "$line" >"$work/$name/ready" ;; esac
    done
    # An agent that ends without that line must not be waited for.
    [ -e "$work/$name/is-ready" ] || : >"$work/$name/ready"
  } <"$work/$name/log-pipe" &
  sh "$repository/src/start.sh" --listen 127.0.0.1:0 --workspace "$work/$name/workspace" "$@" \
    >"$work/$name/log-pipe" 2>&1 &
  pid=$!
  agents="$agents $pid"
  read -r line <"$work/$name/ready" || line=''
  : >"$work/$name/is-ready"
  address=$(printf '%s\n' "$line" | sed -n 's/.*"address":"\([^"]*\)".*/\1/p')
  [ -n "$address" ] || fail "the agent did not start: $(cat "$work/$name/log")"
}

# stop NAME PID: SIGTERM must end it with 0.
stop() {
  kill -TERM "$2"
  code=0
  wait "$2" || code=$?
  if [ "$code" = 0 ]; then
    echo "ok agent $1: exit 0 on SIGTERM" | tee -a "$results"
  else
    echo "not ok agent $1: exit $code on SIGTERM; its log ends:" | tee -a "$results"
    tail -n 5 "$work/$1/log"
  fi
}

printf 'interop-token\n' >"$work/token"
launch open
open_pid=$pid
export ATEENV_TARGET="$address"
launch limited --token-file "$work/token" --max-processes 2 --output-limit 64KiB
limited_pid=$pid
export ATEENV_LIMITED_TARGET="$address"
export ATEENV_TOKEN=interop-token

# --- scenarios -----------------------------------------------------------------------------------

# scenario NAME COMMAND...: prints and counts `ok` and `not ok` lines; an early end is a failure.
scenario() {
  name=$1
  shift
  code=0
  "$@" >"$work/$name.out" 2>"$work/$name.err" || code=$?
  sed "/^done\$/d; s/^ok /ok $name: /; s/^not ok /not ok $name: /" "$work/$name.out" | tee -a "$results"
  if ! grep -q '^done$' "$work/$name.out"; then
    echo "not ok $name: ended early with code $code" | tee -a "$results"
    tail -n 20 "$work/$name.err"
  fi
}

scenario python "$venv/bin/python" "$work/python/scenario.py"
scenario go "$work/scenario"
scenario grpcurl sh "$here/grpcurl.sh" "$tools/grpcurl" "$repository/proto" "$venv/bin/python"

stop open "$open_pid"
stop limited "$limited_pid"
agents=''

passed=$(grep -c '^ok ' "$results" || :)
failed=$(grep -c '^not ok ' "$results" || :)
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
