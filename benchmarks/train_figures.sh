#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Training steps on a GPU beside their floor and torch, in one go: benchmarks/train_figures.sh FOLDER
# GALLOP_PYTHON: a python with torch. What is printed is also in FOLDER, as JSON.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?expected a folder for the results}
gallop=build/release/gallop
python=${GALLOP_PYTHON:-python3}
mkdir -p "$out"

steps() {
  local name=$1
  shift
  $gallop bench train --device cuda --warmup 5 --steps 30 --columns all --format json --out "$out/$name.json" "$@"
  echo "== $name: $*"
}
steps sizes --model S,M,L,XL,2p7 --batch 4 --context 256 --precision bf16
steps lean --model 2p7 --batch 4 --context 256 --precision bf16 --state 8bit
steps long --model S,M --batch 16 --context 1024 --precision bf16
steps precisions --model S --batch 4 --context 256 --precision fp32,tf32,bf16 --mode eager,compiled
steps overlap --model S,M,2p7 --batch 4 --context 256 --precision bf16 --overlap no,yes
$python benchmarks/baselines/gemm_floor.py --model S,M,L,2p7 --batch 4 --context 256 | tee "$out/floor.jsonl"
$python benchmarks/baselines/gemm_floor.py --model S,M --batch 16 --context 1024 | tee -a "$out/floor.jsonl"
if [ "${WITH_TORCH:-yes}" = yes ]; then
  $python benchmarks/baselines/torch_train.py --model S,M,2p7 --batch 4 --context 256 --dtype bf16 \
    --modes compile,graphs --isolate | tee "$out/torch.jsonl"
  $python benchmarks/baselines/torch_train.py --model S --batch 4 --context 256 --dtype fp32 \
    --modes compile,graphs --isolate | tee -a "$out/torch.jsonl"
fi
