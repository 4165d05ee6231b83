#!/bin/sh
# Stands in for `deno` (ATEENVD_DENO=tests/bench/deno_profiled.sh): the agent then writes a CPU profile when it stops.
[ "$1" = run ] && shift
exec deno run --cpu-prof --cpu-prof-dir="${ATEENVD_PROFILE_DIR:-.}" "$@"
