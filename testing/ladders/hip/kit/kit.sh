#!/bin/sh
# Tries xsched on an AMD GPU and measures it; one file of JSON comes out. See docs/guide/amd-kit.md, and --help.
here=$(cd "$(dirname "$0")" && pwd) || exit 3
# At the top of a bundle, or where it lies in the source tree.
kit=$here/testing/ladders/hip/kit
[ -f "$kit/kit.py" ] || kit=$here
if ! command -v python3 >/dev/null 2>&1; then
    echo "kit: python3 is missing: install Python 3.11 or newer" >&2
    exit 3
fi
exec python3 "$kit/kit.py" "$@"
