#!/usr/bin/env bash
# Installs from Debian what is missing to build and test. Quiet when nothing is.
set -euo pipefail
needed=(g++ cmake ninja-build libfmt-dev libcli11-dev nlohmann-json3-dev libgtest-dev libgmock-dev libopenblas0 libsqlite3-dev
        clang libclang-rt-14-dev clang-format clang-tidy g++-aarch64-linux-gnu qemu-user)
# What the build does without, and says so: charts and serving of reports, races over MPI; a browser to test pages in.
wanted=(libjs-chart.js libevent-dev libopenmpi-dev openmpi-bin chromium)

missing_of() {
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || echo "$package"
  done
}
sudo=()
[ "$(id -u)" -eq 0 ] || sudo=(sudo)
install() {
  echo "installing: $*"
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -qq
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

mapfile -t missing < <(missing_of "${needed[@]}")
mapfile -t lacking < <(missing_of "${wanted[@]}")
[ $((${#missing[@]} + ${#lacking[@]})) -eq 0 ] && exit 0
if ! command -v apt-get >/dev/null; then
  [ ${#missing[@]} -eq 0 ] && exit 0
  echo "missing: ${missing[*]}; install them with this system's package manager" >&2
  exit 1
fi
if [ ${#missing[@]} -gt 0 ]; then install "${missing[@]}"; fi
if [ ${#lacking[@]} -gt 0 ]; then
  install "${lacking[@]}" || echo "going on without: ${lacking[*]}" >&2
fi
