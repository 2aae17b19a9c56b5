# Writes HEADER with the commit that SOURCE is at, and only when that changed.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
file(CONFIGURE OUTPUT ${HEADER} @ONLY CONTENT [[
#pragma once

inline constexpr char kCommit[] = "@commit@";
]])
