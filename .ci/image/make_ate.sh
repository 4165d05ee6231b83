#!/bin/sh
# make_ate.sh DENO FOLDER COMMIT: makes the self-contained folder out of the project in the current
# directory. It runs where nothing else is: own loader and libraries for Deno, own tools for start.sh and
# for the kill of process trees. All paths in it are absolute: it has to be mounted at FOLDER.
set -eu
deno=$1 ate=$2 commit=$3
mkdir -p "$ate/bin" "$ate/lib" "$ate/app"

# --- Deno with the loader and the libraries of this system --------------------------------------------

cp "$deno" "$ate/lib/deno"
chmod 0755 "$ate/lib/deno"
ldd "$ate/lib/deno" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | while read -r library; do
  cp -L "$library" "$ate/lib/"
done
# The loader, by the name by which `ps` shall show it.
cp -L "$(ldd "$ate/lib/deno" | sed -n 's/^[[:space:]]*\(\/[^ ]*\/ld-[^ ]*\) .*/\1/p')" "$ate/lib/ateenvd-deno"
cat >"$ate/bin/deno" <<END
#!$ate/bin/sh
# Through its own loader, not LD_LIBRARY_PATH, which children would inherit.
exec $ate/lib/ateenvd-deno --library-path $ate/lib $ate/lib/deno "\$@"
END
chmod 0755 "$ate/bin/deno"

# --- tools -----------------------------------------------------------------------------------------

cp "$(command -v busybox)" "$ate/bin/busybox"
for tool in sh ash awk base64 basename cat chmod chown cp cut date df dirname du echo env expr false find \
  grep gzip head hostname id kill ln ls mkdir mkfifo mktemp mv nproc od printenv printf ps pwd readlink \
  realpath rm rmdir sed seq setpriv setsid sleep sort stat tail tar tee test timeout touch tr true \
  uname uniq wc wget which xargs yes; do
  ln -s busybox "$ate/bin/$tool"
done

# --- the agent and the CLI, one file each: the libraries that they import are in it --------------------

version=$(sed -n 's/^  "version": "\(.*\)",$/\1/p' deno.json)
[ -z "$commit" ] ||
  sed -i "s/^  \"version\": \".*\",\$/  \"version\": \"$version+$commit\",/" deno.json
for entry in main cli; do
  "$ate/bin/deno" bundle --quiet --frozen --output "$ate/app/$entry.mjs" "src/$entry.ts"
done
cp src/start.sh LICENSE "$ate/app/"
cli_flags=$(ATEENVD_COMPILE=1 sh src/ateenv.sh)

cat >"$ate/ateenvd" <<END
#!$ate/bin/sh
# The agent. The image's own tools come first; the folder's fill the gaps, for children too.
PATH=\${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}:$ate/bin
export PATH DENO_DIR=$ate/cache DENO_NO_UPDATE_CHECK=1 ATEENVD_DENO=$ate/bin/deno
exec $ate/bin/sh $ate/app/start.sh "\$@"
END
cat >"$ate/ateenv" <<END
#!$ate/bin/sh
# The CLI. Inside of the sandbox the agent is at PORT, unless told otherwise.
export DENO_DIR=$ate/cache DENO_NO_UPDATE_CHECK=1
[ -n "\${ATEENV_ADDRESS:-}" ] || export ATEENV_ADDRESS=127.0.0.1:\${PORT:-8080}
exec $ate/bin/deno run --no-prompt --no-config $cli_flags $ate/app/cli.mjs "\$@"
END
chmod 0755 "$ate/ateenvd" "$ate/ateenv"

# --- what V8 makes of them, so that a start need not compile: written by the runs that come first ---------

mkdir "$ate/cache"
for _ in 1 2 3; do
  PORT=18473 ATEENV_AUTH=none ATEENV_WORKSPACE=/tmp/warm/workspace ATEENV_STATE_DIR=/tmp/warm/state \
    "$ate/ateenvd" --log-level error &
  agent=$!
  tries=100
  until PORT=18473 "$ate/ateenv" health >/dev/null; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || {
      echo "the agent does not start" >&2
      exit 1
    }
  done
  PORT=18473 "$ate/ateenv" run -- true
  kill "$agent"
  wait "$agent"
done
rm -rf /tmp/warm
# The databases stay as they are, with their -wal and -shm: that is how SQLite can read them where nothing can
# be written.
chmod -R go+rX "$ate"
