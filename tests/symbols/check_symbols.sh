#!/bin/sh
# SPDX-License-Identifier: MIT
# check_symbols.sh NM OBJECT...
#
# An object compiled for one instruction set may offer the linker its one table and nothing else: a
# weak symbol (an inline function, a template) could replace the copy that a lesser CPU runs. Names
# of objects end in RULE.ISA.cpp.o; of RULE 'toolkit' the table is toolkit_ISA, else
# kernels_RULE_ISA.
set -u
nm=$1
shift
if [ $# -eq 0 ]; then
  echo "check_symbols.sh: no object files given" >&2
  exit 1
fi

failed=0
for object in "$@"; do
  file=${object##*/}
  base=${file%.cpp.o}
  isa=${base##*.}
  rule=${base%.*}
  if [ "$base" = "$file" ] || [ "$rule" = "$base" ]; then
    echo "$object: the name does not end in RULE.ISA.cpp.o" >&2
    failed=1
    continue
  fi
  table=kernels_${rule}_$isa
  [ "$rule" = toolkit ] && table=toolkit_$isa
  space=cpu
  [ "$rule" = gpt ] && space=gpt3cpu
  if ! symbols=$("$nm" -P "$object"); then
    echo "$object: $nm cannot read it" >&2
    failed=1
    continue
  fi
  printf '%s\n' "$symbols" | awk -v object="$object" -v table="_ZN6gallop3${space}${#table}${table}E" '
    function complain(what) { print object ": " what; bad = 1 }
    $2 ~ /^[abdnrtN]$/ { next }  # local to the object
    $2 == "U" {
      if ($1 !~ /^(memcpy|memset|memmove|log)$/) complain("needs " $1 " from elsewhere")
      next
    }
    $2 ~ /^[WVwvui]$/ { complain("weak symbol " $1); next }
    $1 != table { complain("exports " $1 ", expected " table " alone"); next }
    { found = 1 }
    END {
      if (!found) complain("does not export " table)
      exit bad
    }' >&2 || failed=1
done
[ $failed -eq 0 ] && echo "$# objects export their tables alone"
exit $failed
