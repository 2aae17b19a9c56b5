#!/usr/bin/env bash
# What gallop does, in about a minute on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
gallop=build/release/gallop
say() { printf '\n== %s\n\n' "$*"; }

say "gallop info"
$gallop info
say "gallop list"
$gallop list
say "gallop check --only '^(adamw|adan|lion)\$' --sizes 0,1,255,256,257,1003"
$gallop check --only '^(adamw|adan|lion)$' --sizes 0,1,255,256,257,1003
say "gallop check --golden tests/data/golden"
$gallop check --golden tests/data/golden
say "gallop bench step --optimizer adamw,adan,lion --mode unfused,single,multi --tensors 32 --size 16384"
$gallop bench step --optimizer adamw,adan,lion --mode unfused,single,multi --tensors 32 --size 16384
say "an optimizer from a file: gallop bench step --rule examples/own_rule/cautious_lion.h --optimizer lion --mode multi,compiled"
$gallop check --rule examples/own_rule/cautious_lion.h --sizes 0,1,255,256,257,1003
$gallop bench step --rule examples/own_rule/cautious_lion.h --optimizer lion --mode multi,compiled --tensors 32 --size 16384
say "a GPT on a made-up language: gallop train --model nano --data synthetic:vocabulary=64,branching=4 --steps 60 --lr 3e-3"
$gallop train --model nano --data synthetic:vocabulary=64,branching=4 --steps 60 --lr 3e-3
say "gallop suite adam-grid --size 16384,262144 --tensors 1,8,32"
$gallop suite adam-grid --size 16384,262144 --tensors 1,8,32 --time-limit 0.2
