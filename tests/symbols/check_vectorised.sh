#!/usr/bin/env bash
# Every loop of every rule must have been vectorised: fails, naming object and loop, when a kernel of
# an instruction-set object has no packed arithmetic. Usage: check_vectorised.sh OBJECT...
set -euo pipefail
[ $# -gt 0 ] || { echo "no object files given" >&2; exit 1; }
failed=0
for object in "$@"; do
  case $object in
    *.avx512.*) registers='%zmm' ;;
    *.avx2.*) registers='%ymm' ;;
    *) registers='%xmm' ;;
  esac
  loops=$(objdump -dC --no-show-raw-insn "$object" | awk -v registers="$registers" '
    /^[0-9a-f]+ <.*Loops</ { name = $0; sub(/^[0-9a-f]+ </, "", name); packed[name] += 0 }
    /^$/ { name = "" }
    name != "" && $0 ~ registers && /(mul|add|sub|div|max|min)[0-9]*p[sd] / { ++packed[name] }
    END { for (n in packed) print packed[n], n }')
  [ -n "$loops" ] || { echo "$object: no kernel found"; failed=1; }
  while read -r count name; do
    if [ "$count" = 0 ]; then
      echo "$object: not vectorised: $name"
      failed=1
    fi
  done <<<"$loops"
done
exit $failed
