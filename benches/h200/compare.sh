#!/bin/sh
# What a new user would try first on a machine with an NVIDIA GPU: `xsched check` with its PyTorch, then `xsched compare` with two
# pairs of examples/pytorch, which nothing was prepared for. By busy spells, then by the programs' own lines.
#
#   compare.sh [--quick] [--bin FOLDER] [--results FOLDER]
#
# Leaves check.txt, check.json, and for each comparison NAME.txt, NAME.json and NAME.svg. --quick: seconds instead of minutes; the
# figures mean nothing. About 12 minutes otherwise. A comparison that is there already is not made again.
# Exit status: 0, 1 = something differs or failed (FAILED lines say what), 2 = bad arguments, 3 = no device.
here=$(cd "$(dirname "$0")/../.." && pwd) || exit 3
bin=$here/bin results=$here/results rounds=3 secs=15 warm_up=5 quick=
[ -x "$bin/xsched" ] || bin=$here/target/release
while [ $# -gt 0 ]; do
    case $1 in
    --quick) rounds=1 secs=2 warm_up=1 quick=/quick ;;
    --bin) bin=${2:?--bin needs a folder} && shift ;;
    --results) results=${2:?--results needs a folder} && shift ;;
    *) echo "compare.sh: '$1' is no option: use --quick, --bin FOLDER, --results FOLDER" >&2 && exit 2 ;;
    esac
    shift
done
results=$results$quick
mkdir -p "$results" || exit 3
examples=$here/examples/pytorch
PYTHONPATH=$here/python${PYTHONPATH:+:$PYTHONPATH}
export PYTHONPATH PYTHONDONTWRITEBYTECODE=1
worst=0

echo "== check"
"$bin/xsched" check --json >"$results/check.json"
status=$?
[ $status -le 1 ] || exit $status
"$bin/xsched" check | tee "$results/check.txt"
[ $status -eq 0 ] || worst=1

# compare NAME HIGH LOW OPTION...
compare() {
    name=$1 high=$2 low=$3
    shift 3
    if [ -s "$results/$name.json" ]; then
        echo "== $name: there already" && return
    fi
    echo "== $name"
    "$bin/xsched" compare --high "python3 '$examples'/$high" --low "python3 '$examples'/$low" --rounds $rounds --secs $secs \
        --warm-up $warm_up --json "$results/$name.json" --svg "$results/$name.svg" "$@" >"$results/$name.txt"
    status=$?
    cat "$results/$name.txt"
    if [ $status -ne 0 ]; then
        echo "FAILED: $name: exit status $status" && worst=1
    fi
}

set -- --requests ': ([0-9.]+) ms' --work '^step'
compare bert-cnn-bursts bert.py cnn.py
compare bert-cnn-lines bert.py cnn.py "$@"
compare resnets-bursts 'resnet_pair.py high' 'resnet_pair.py low'
compare resnets-lines 'resnet_pair.py high' 'resnet_pair.py low' "$@"
exit $worst
