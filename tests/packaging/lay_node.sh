#!/bin/sh
# lay_node.sh ROOT: puts this machine's Node and npm into a root, as the base image with Node has them.
set -eu
root=$1
node=$(readlink -f "$(command -v node)")
npm=$(dirname "$(dirname "$(readlink -f "$(command -v npm)")")")
mkdir -p "$root/usr/local/bin" "$root/usr/local/lib/node_modules"
cp "$node" "$root/usr/local/bin/node"
ldd "$node" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | while read -r library; do
  [ -e "$root$library" ] || cp -L "$library" "$root/usr/lib/$(basename "$library")"
done
cp -aT "$npm" "$root/usr/local/lib/node_modules/npm"
ln -s ../lib/node_modules/npm/bin/npm-cli.js "$root/usr/local/bin/npm"
