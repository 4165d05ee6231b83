#!/bin/sh
# Makes gen/ from proto/; with --check, only tells whether gen/ is what proto/ makes.
set -eu
cd "$(dirname "$0")/../proto"
out=..
if [ "${1-}" = --check ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
deno run --no-lock --no-prompt --allow-env --allow-read --allow-run npm:@bufbuild/buf@1.75.0 generate -o "$out"
if [ "$out" != .. ]; then
  diff -r "$out/gen" ../gen || {
    echo "gen/ is not what proto/ makes: run deno task gen" >&2
    exit 1
  }
fi
