#!/bin/sh
# `deno task test:packaging`: compile, image, /ate, policies, suspend and restore. The image is built and started
# with debootstrap, chroot and unshare in the place of an engine: that takes root on Debian, and is skipped,
# visibly, elsewhere. What is missing is installed; the Debian root is kept in a cache for the next run.
set -eu
cd "$(dirname "$0")/../.."
cache=${ATEENV_PACKAGING_CACHE:-/var/tmp/ateenvd-packaging}

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  need=''
  command -v debootstrap >/dev/null || need="$need debootstrap"
  command -v busybox >/dev/null || need="$need busybox-static"
  command -v capsh >/dev/null || need="$need libcap2-bin"
  command -v ip >/dev/null || need="$need iproute2"
  # For the shift of the wall clock.
  command -v faketime >/dev/null || need="$need faketime"
  # gVisor; nothing depends on it.
  [ -z "$(apt-cache policy runsc 2>/dev/null)" ] || command -v runsc >/dev/null || need="$need runsc"
  if [ -n "$need" ]; then
    apt-get update -qq
    # shellcheck disable=SC2086  # words
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $need >/dev/null
  fi
  if [ ! -d "$cache/bookworm" ]; then
    rm -rf "$cache/bookworm.new"
    mkdir -p "$cache"
    debootstrap --variant=minbase bookworm "$cache/bookworm.new" >"$cache/log" || {
      tail -n 20 "$cache/log" >&2
      exit 1
    }
    # As the slim images have it.
    rm -rf "$cache"/bookworm.new/usr/share/doc/* "$cache"/bookworm.new/usr/share/man/* \
      "$cache"/bookworm.new/usr/share/locale/* "$cache"/bookworm.new/var/cache/apt/*.bin \
      "$cache"/bookworm.new/var/cache/apt/archives/*.deb "$cache"/bookworm.new/var/lib/apt/lists/*
    mv "$cache/bookworm.new" "$cache/bookworm"
  fi
  export ATEENV_PACKAGING_DEBIAN="$cache/bookworm"
else
  echo "the image is neither built nor started here: that takes root on Debian" >&2
fi
exec deno test --no-prompt --allow-read --allow-write --allow-run --allow-env --allow-sys \
  --allow-net=127.0.0.1 tests/packaging "$@"
