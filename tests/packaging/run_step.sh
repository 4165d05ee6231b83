#!/bin/sh
# run_step.sh ROOT CWD COMMAND [NAME=value...]: one RUN, in its own mount and PID namespace. What an engine
# gives to a build comes along: /proc, /dev, name resolution, and this machine's certificates.
set -eu
root=$1 cwd=$2 command=$3
shift 3
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
touch "$root/run/ca.crt" "$root/etc/resolv.conf"
mount --bind "$(readlink -f /etc/resolv.conf)" "$root/etc/resolv.conf"
if [ -f "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" ]; then
  mount --bind "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$root/run/ca.crt"
  set -- "$@" NODE_EXTRA_CA_CERTS=/run/ca.crt npm_config_cafile=/run/ca.crt DENO_CERT=/run/ca.crt
fi
exec chroot "$root" /usr/bin/env -i HOME=/root DEBIAN_FRONTEND=noninteractive \
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@" \
  /bin/sh -c 'cd "$0" && eval "$1"' "$cwd" "$command"
