#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The GPU tables of docs/results.md, one file each: benchmarks/gpu_figures.sh FOLDER
# Needs a GPU, build/release, and a python3 with torch (GALLOP_PYTHON names another).
set -euo pipefail
out=${1:?usage: benchmarks/gpu_figures.sh FOLDER}
mkdir -p "$out"
gallop="$(cd "$(dirname "$0")/.." && pwd)/build/release/gallop"
gpt2=gpt2:12x768,gpt2:24x1024,gpt2:24x2048

bench() {
  local name=$1
  shift
  echo "gallop bench step --device cuda $*" >&2
  { echo "    gallop bench step --device cuda $*"; echo; } >"$out/$name.md"
  "$gallop" bench step --device cuda --format markdown "$@" >>"$out/$name.md"
}

"$gallop" info --format markdown >"$out/info.md"
bench adamw --shapes $gpt2 --with torch
for optimizer in adan lion sophiag qhm qhadam ademamix; do  # one by one: together they do not fit
  bench $optimizer --optimizer $optimizer --shapes $gpt2
done
bench muon --optimizer muon --shapes $gpt2 --with torch
for optimizer in lars stable_adamw lamb adamp adafactor; do
  bench $optimizer --optimizer adamw,$optimizer --shapes $gpt2
done
bench adafactor_torch --optimizer adafactor_torch --shapes $gpt2 --with torch
bench soap --optimizer soap --shapes gpt2:12x768
bench bf16 --param bf16 --shapes $gpt2 --with torch
for shapes in gpt2:12x768 gpt2:24x1024 gpt2:24x2048; do
  bench state-${shapes#gpt2:} --state fp32,8bit,4bit,fp8,8bit-bnb --shapes $shapes
done
bench state-bf16 --param bf16 --state fp32,8bit,4bit --shapes $gpt2
bench state-roundings --param bf16 --rounding stochastic,master,remainder --state 8bit --shapes gpt2:12x768
for optimizer in lion adan ademamix sophiag lamb adamp stable_adamw; do
  bench state-$optimizer --optimizer $optimizer --state fp32,8bit --shapes gpt2:12x768
done
bench state-lion-large --optimizer lion --state fp32,8bit --shapes gpt2:24x1024,gpt2:24x2048
bench state-small --state fp32,8bit --tensors 32,1000 --size 16384
bench roundings --param bf16 --rounding stochastic,master,remainder --shapes gpt2:12x768
bench small --tensors 32,1000 --size 16384 --with torch
bench cold --tensors 32,1000 --size 16384 --cold
bench clip --clip-norm 0,1 --grad-scale 65536 --shapes $gpt2
bench clip-torch --clip-norm 0,1 --shapes gpt2:12x768 --with torch
bench modes --mode unfused,single,multi --shapes gpt2:12x768
"$gallop" suite adan-gpt2 --device cuda --format markdown >"$out/adan-gpt2.md"
