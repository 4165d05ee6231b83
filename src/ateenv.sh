#!/bin/sh
# The CLI from a clone, from any directory; a symlink to this file will do:
#   ln -s "$PWD/src/ateenv.sh" ~/.local/bin/ateenv
# Runs Deno with exactly the permissions below. ATEENVD_COMPILE only prints them.
set -eu

self=$0
# Not readlink -f: BSD's has none.
while [ -h "$self" ]; do
  target=$(readlink "$self")
  case $target in
    /*) self=$target ;;
    *) self=$(dirname "$self")/$target ;;
  esac
done
clone=$(CDPATH= cd -- "$(dirname -- "$self")/.." && pwd -P)

# What grpc-js, Deno's Node layer and colours ask for, beside what the CLI reads itself.
env=ATEENV_ADDRESS,ATEENV_TOKEN_FILE,ATEENV_TLS_CA,NO_COLOR,FORCE_COLOR,CLICOLOR_FORCE,TERM
env=$env,GRPC_NODE_VERBOSITY,GRPC_VERBOSITY,GRPC_NODE_TRACE,GRPC_TRACE,GRPC_SSL_CIPHER_SUITES
env=$env,GRPC_DEFAULT_SSL_ROOTS_FILE_PATH,GRPC_EXPERIMENTAL_ENABLE_OUTLIER_DETECTION
env=$env,GRPC_NODE_USE_ALTERNATIVE_RESOLVER,GRPC_NODE_DEBUG_SEND_ERROR_DETAILS
permissions="--allow-read --allow-write --allow-net --allow-env=$env"
if [ -n "${ATEENVD_COMPILE:-}" ]; then
  printf '%s\n' "$permissions"
  exit
fi

# A task runs in the clone; paths are meant from where the user is.
[ -z "${ATEENV_CWD:-}" ] || cd "$ATEENV_CWD"
unset ATEENV_CWD

deno=${ATEENVD_DENO:-deno}
command -v "$deno" >/dev/null || deno='npx -y deno@2.9.6'
export DENO_NO_UPDATE_CHECK=1
# shellcheck disable=SC2086 # words: none of them has a space.
exec $deno run --quiet --no-prompt --config "$clone/deno.json" $permissions "$clone/src/cli.ts" "$@"
