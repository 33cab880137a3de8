#!/bin/sh
# install.sh PREFIX: installs xsched below a folder such as /usr/local, also over an earlier version while programs run under it.
set -eu

case ${1-} in
/*) [ $# = 1 ] || { echo "install.sh: one folder only" >&2; exit 2; } ;;
*) echo "usage: install.sh PREFIX, such as /usr/local" >&2; exit 2 ;;
esac
case $1 in
# It stands in units and in scripts.
*[!A-Za-z0-9/._+~-]*) echo "install.sh: only letters, digits and /._+~- may be in $1" >&2; exit 2 ;;
esac
prefix=${1%/}
here=$(cd "$(dirname "$0")" && pwd)
manifest=$prefix/lib/xsched/MANIFEST
umask 022

# Folders that are not there yet are made, and noted: uninstall.sh removes those, and no others.
folder() {
    [ -d "$1" ] && return
    folder "$(dirname "$1")"
    mkdir "$1" || { echo "install.sh: cannot make $1: another PREFIX, or as root?" >&2; exit 3; }
    made="$made
d $1"
}

made=$(if [ -f "$manifest" ]; then grep '^d ' "$manifest" || true; fi)
before=$(if [ -f "$manifest" ]; then grep '^f ' "$manifest" || true; fi)
folder "$prefix/lib/xsched"
now=$(cd "$here/files" && find . ! -type d | sort | sed 's|^\./|f |')
for file in $(echo "$now" | sed 's/^f //'); do
    folder "$(dirname "$prefix/$file")"
done
note() {
    { echo "$made"; echo "$1"; } | sed '/^$/d' | sort -u >"$manifest.new"
    mv -f "$manifest.new" "$manifest"
}
# Until all is done it names the files of both versions, so that uninstall.sh finds them.
note "$before
$now"

for file in $(echo "$now" | sed 's/^f //'); do
    to=$prefix/$file
    new=$(dirname "$to")/.$(basename "$to").new
    rm -f "$new"
    case $file in
    lib/systemd/*.service) sed "s|/usr/bin/xsched|$prefix/bin/xsched|g" "$here/files/$file" >"$new" ;;
    share/pkgconfig/*.pc) sed "s|^prefix=/usr$|prefix=$prefix|" "$here/files/$file" >"$new" ;;
    *) cp -P "$here/files/$file" "$new" ;;
    esac
    # By rename: programs keep the library that they have mapped.
    mv -f "$new" "$to"
done
echo "$before" | sed 's/^f //' | while read -r file; do
    [ -z "$file" ] || echo "$now" | grep -qx "f $file" || rm -f "$prefix/$file"
done
note "$now"

if [ -d /run/systemd/system ] && [ "$(id -u)" = 0 ]; then
    systemctl daemon-reload || true
    # The folder of the socket stays, and programs attach again.
    if [ "$(systemctl show -P FragmentPath xsched.service 2>/dev/null)" = "$prefix/lib/systemd/system/xsched.service" ]; then
        systemctl try-restart xsched.service || echo "install.sh: xsched.service did not start again: journalctl -u xsched" >&2
    fi
fi
case :$PATH: in
*:"$prefix/bin":*) ;;
*) echo "the command is $prefix/bin/xsched: put $prefix/bin into PATH, or log in again where that is done for it" ;;
esac
echo "installed below $prefix; to remove it: $prefix/lib/xsched/uninstall.sh $prefix"
