#!/usr/bin/env bash
# Everything that needs a GPU, from a build made here or carried here (build/release).
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/local/cuda/bin
bin=build/release
[ -x $bin/tests/cuda_tests ] || { echo "no $bin/tests/cuda_tests: run 'make build' where nvcc is" >&2; exit 1; }
$bin/gallop info --no-measure
echo "== tests of the CUDA backend"
$bin/tests/cuda_tests --gtest_brief=1
echo "== the optimizer's tests, on the GPU"
GALLOP_TEST_DEVICE=cuda $bin/tests/optimizer_tests --gtest_brief=1 \
  --gtest_filter='-Allocation.*:Fork*'
echo "== the engine's tests, on the GPU"
GALLOP_TEST_DEVICE=cuda $bin/tests/gpt_tests --gtest_brief=1
echo "== every kernel against the reference"
$bin/gallop check --device cuda "$@"
echo "== kernels compiled at run time"
export GALLOP_CACHE=$bin/jit-cache
for mode in unfused multi compiled; do
  $bin/gallop check --device cuda --mode $mode --sizes 0,1,257,4099 --rule examples/own_rule/cautious_lion.h
done
$bin/gallop check --device cuda --mode compiled --sizes 257,4099 --only '^(adamw|lamb)$'
echo "== recorded runs"
$bin/gallop check --device cuda --golden tests/data/golden
if command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    echo "== compute-sanitizer $tool"
    compute-sanitizer --tool $tool --error-exitcode 1 --log-file /dev/stderr \
      $bin/gallop check --device cuda --threads 1 --sizes 0,1,257,4099 --only '^(adamw|adan|nadam|sophiag)$' >/dev/null
    compute-sanitizer --tool $tool --error-exitcode 1 --log-file /dev/stderr \
      $bin/gallop check --device cuda --threads 1 --sizes 4099 \
      --only '^(adamp|adafactor|lamb|muon|soap)$' >/dev/null
    compute-sanitizer --tool $tool --error-exitcode 1 --log-file /dev/stderr \
      $bin/gallop check --device cuda --threads 1 --sizes 257,4099 --mode compiled --only '^adamw$' >/dev/null
  done
else
  echo "compute-sanitizer: NOT RUN, it is not on PATH"
fi
