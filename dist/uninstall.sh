#!/bin/sh
# uninstall.sh PREFIX: removes what install.sh PREFIX has installed. Configuration and state stay: /etc/xsched, /var/lib/xsched.
set -eu

case ${1-} in
/*) [ $# = 1 ] || { echo "uninstall.sh: one folder only" >&2; exit 2; } ;;
*) echo "usage: uninstall.sh PREFIX, the one of install.sh" >&2; exit 2 ;;
esac
prefix=${1%/}
manifest=$prefix/lib/xsched/MANIFEST
[ -f "$manifest" ] || { echo "uninstall.sh: nothing of xsched is installed below $prefix: no $manifest" >&2; exit 2; }
all=$(cat "$manifest")

#FORGET
forget_library "$prefix/lib/xsched/"
forget_containers "$prefix/lib/xsched/xsched"
forget_examples "$prefix/share/doc/xsched/examples"

if [ -d /run/systemd/system ] && [ "$(id -u)" = 0 ] &&
    [ "$(systemctl show -P FragmentPath xsched.service 2>/dev/null)" = "$prefix/lib/systemd/system/xsched.service" ]; then
    systemctl disable --now --quiet xsched.service xsched-metrics.socket || true
    systemctl stop --quiet xsched-pool.socket run-xsched_pool.mount || true
    # A pool that still has programs keeps its own.
    for folder in /run/xsched_pool /run/xsched-containers /run/xsched; do
        [ ! -d "$folder" ] || rmdir "$folder" 2>/dev/null || true
    done
fi
echo "$all" | sed -n 's/^f //p' | while read -r file; do
    rm -f "$prefix/$file"
done
rm -f "$manifest"
# The deepest first. One that holds what is not xsched's stays.
echo "$all" | sed -n 's/^d //p' | sort -r | while read -r folder; do
    rmdir "$folder" 2>/dev/null || true
done
if [ -d /run/systemd/system ] && [ "$(id -u)" = 0 ]; then
    systemctl daemon-reload || true
fi
