#!/bin/sh
# container.sh ROOT ATE USER NAME=value... -- COMMAND...: what a runtime does in its new namespaces before it
# starts PID 1: file systems, a read-only root, limits, capabilities. ATE is mounted at /ate unless empty.
set -eu
root=$1 ate=$2 user=$3
shift 3
mount --bind "$root" "$root"
[ -z "$ate" ] || mount --bind "$ate" "$root/ate"
[ -z "$ate" ] || mount -o remount,bind,ro "$root/ate"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=0755 tmpfs "$root/dev"
for device in null zero full random urandom; do
  touch "$root/dev/$device"
  mount --bind "/dev/$device" "$root/dev/$device"
done
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
# Volumes of an engine begin with the owner and the mode of what they cover.
for volume in workspace var/lib/ateenv; do
  mode=$(stat -c %a "$root/$volume")
  mount -t tmpfs -o "mode=$mode" tmpfs "$root/$volume"
done
mount -o remount,bind,ro "$root"
ip link set lo up

ulimit -n 1024
keep=cap_audit_write,cap_kill,cap_net_bind_service
drop=$(capsh --print | sed -n 's/^Bounding set *=//p' | tr ',' '\n' | grep -vxE "$(echo $keep | tr ',' '|')" | paste -sd,)
shell=/bin/sh
[ -e "$root$shell" ] || shell=/ate/bin/sh
set -- "--shell=$shell" -- -c 'exec "$@"' sh /ate/bin/env -i "$@"
case $user in
  0:0) ;;
  *) set -- "--gid=${user#*:}" "--uid=${user%:*}" "$@" ;;
esac
exec capsh "--chroot=$root" "--drop=$drop" --no-new-privs "$@"
