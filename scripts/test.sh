#!/usr/bin/env bash
# Everything CI runs, in the order that fails soonest. Each stage prints how long it took.
set -euo pipefail
cd "$(dirname "$0")/.."

stage() {
  local name=$1 start=$SECONDS
  shift
  echo "== $name"
  "$@" || { echo "== $name FAILED after $((SECONDS - start)) s"; exit 1; }
  echo "== $name: $((SECONDS - start)) s"
}

build() { # PRESET [TARGET...]
  local preset=$1
  shift
  cmake --preset "$preset" | sed -n 's/^-- no CUDA/no CUDA/p'
  cmake --build --preset "$preset" ${*:+--target "$@"}
}

# Timings never fail a test; the environment must not change results either.
unset GALLOP_FORCE_ISA GALLOP_NUM_THREADS

check_all() {
  build/release/gallop check --sizes 0,1,255,256,257,1003,100003
  build/release/gallop check --golden tests/data/golden
}
check_aarch64() {
  build aarch64 gallop_check
  qemu-aarch64 build/aarch64/gallop_check check --sizes 0,1,257,1003
  qemu-aarch64 build/aarch64/gallop_check check --golden tests/data/golden
}
# GPU code where there is no GPU, at sizes that reach every path.
check_emulated() {
  build emulated gallop_check cuda_tests
  build/emulated/tests/cuda_tests --gtest_brief=1
  build/emulated/gallop_check check --device cuda --sizes 0,257
  build/emulated/gallop_check check --device cuda --golden tests/data/golden
}
# Where threads meet: the pool, the steps, the loader and the engine; without tests that ask at
# length what is computed, whoever does it.
threaded=(optimizer_tests gpt_tests cpu_tests data_tests core_tests)
test_threads() {
  export GALLOP_CACHE=$PWD/build/tsan/jit-cache
  export GTEST_FILTER='-Execution.ModesGive*:LowPrecision.*:Resume.*:Zeroing.*:Scaling.*:Curve.*:Gradient.*'
  printf 'build/tsan/tests/%s\n' "${threaded[@]}" | xargs -P "$(nproc)" -I{} env {} --gtest_brief=1
}
fuzz() {
  mkdir -p build/fuzz/corpus
  clang++ -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -DFMT_HEADER_ONLY -Iinclude -Isrc \
    tests/fuzz/safetensors_fuzz.cpp src/io/*.cpp -o build/fuzz/safetensors_fuzz
  build/fuzz/safetensors_fuzz -max_total_time=30 -print_final_stats=1 -verbosity=0 \
    -artifact_prefix=build/fuzz/ build/fuzz/corpus tests/fuzz/corpus
}
stage "format" scripts/format.sh
stage "build" build release
stage "tests" ctest --preset release -j "$(nproc)"
stage "check" check_all
stage "clang-tidy" scripts/tidy.sh
stage "address and undefined-behaviour sanitizers: build" build asan
stage "address and undefined-behaviour sanitizers: tests" ctest --preset asan -j "$(nproc)"
stage "thread sanitizer: build" build tsan "${threaded[@]}"
stage "thread sanitizer: tests" test_threads
stage "AArch64 under qemu" check_aarch64
stage "GPU code on an emulated GPU" check_emulated
stage "fuzzing, half a minute" fuzz
echo "all stages passed in $SECONDS s"
