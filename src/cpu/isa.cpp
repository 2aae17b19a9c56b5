// SPDX-License-Identifier: MIT
#include "cpu/isa.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>

#include "gallop/error.h"
#include "isa_list.gen.h"

namespace gallop::cpu {

#define GALLOP_DECLARE(isa) extern const Toolkit toolkit_##isa;
GALLOP_FOREACH_ISA(GALLOP_DECLARE)
#undef GALLOP_DECLARE

const std::vector<const Toolkit*>& toolkits() {
  static const std::vector<const Toolkit*> all = {
#define GALLOP_ADDRESS(isa) &toolkit_##isa,
      GALLOP_FOREACH_ISA(GALLOP_ADDRESS)
#undef GALLOP_ADDRESS
  };
  return all;
}

bool runs_here([[maybe_unused]] std::string_view isa) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (isa == "avx2") return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (isa == "avx512") {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  }
#endif
  return isa == "baseline";
}

std::vector<std::string> isas_here() {
  std::vector<std::string> names;
  for (const Toolkit* t : toolkits()) {
    if (runs_here(t->isa)) names.emplace_back(t->isa);
  }
  return names;
}

int isa_index(std::string_view isa) {
  std::vector<std::string> names;
  for (const Toolkit* t : toolkits()) {
    if (isa == t->isa) return static_cast<int>(names.size());
    names.emplace_back(t->isa);
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("instruction set '{}' is not in this build, expected one of {}", isa,
                          fmt::join(names, ", ")));
}

int choose_isa() {
  const char* forced = std::getenv("GALLOP_FORCE_ISA");
  if (forced != nullptr && *forced != 0) {
    int index = 0;
    try {
      index = isa_index(forced);
    } catch (const Error& e) {
      throw Error(e.code(), fmt::format("GALLOP_FORCE_ISA: {}", e.what()));
    }
    if (!runs_here(forced)) {
      throw Error(ErrorCode::unsupported,
                  fmt::format("GALLOP_FORCE_ISA={}: this CPU cannot run it, expected one of {}",
                              forced, fmt::join(isas_here(), ", ")));
    }
    return index;
  }
  for (int i = static_cast<int>(toolkits().size()) - 1; i > 0; --i) {
    if (runs_here(toolkits()[static_cast<size_t>(i)]->isa)) return i;
  }
  return 0;
}

}  // namespace gallop::cpu
