#!/usr/bin/env bash
# What gallop does, in a few minutes on two cores: it writes report.html where it is called.
set -euo pipefail
here=$PWD
cd "$(dirname "$0")/.."
gallop=$PWD/build/release/gallop
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export GALLOP_DB=$work/results.db
say() { printf '\n== %s\n\n' "$*"; }
show() { say "gallop $*"; "$gallop" "$@"; }

show info
show list
show check --only '^(adamw|adan|lion)$' --sizes 0,1,255,256,257,1003
show check --golden tests/data/golden
show bench step --optimizer adamw,adan,lion --mode unfused,single,multi --tensors 32 --size 16384 --time-limit 0.2
say "an optimizer from a file: examples/own_rule/cautious_lion.h"
"$gallop" check --rule examples/own_rule/cautious_lion.h --sizes 0,1,255,256,257,1003
"$gallop" bench step --rule examples/own_rule/cautious_lion.h --optimizer lion --mode multi,compiled --tensors 32 --size 16384
show suite adam-grid --size 16384,262144 --tensors 1,8,32 --time-limit 0.2
show bench train --model nano --steps 5
show race --optimizer adamw,adamw:8bit,lion,adan,muon,sgd --model nano \
  --data synthetic:vocabulary=64,branching=4 --steps 80 --eval-every 8 --eval-batches 4 --batch 4 --trials 3 --seeds 4 --jobs 2 --folder "$work/trials"
say "gallop report"
"$gallop" report --out "$here/report.html" --title "gallop demo"
