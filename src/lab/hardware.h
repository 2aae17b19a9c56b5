// SPDX-License-Identifier: MIT
// What is known of machines that are not there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gallop::lab {

// What times are predicted from; rates are per second.
struct Hardware {
  std::string name;
  bool gpu = true;
  int64_t memory_bytes = 0;
  double copy_bytes = 0;                              // read plus written
  double flops_16 = 0, flops_tf32 = 0, flops_32 = 0;  // of dense products, as stated or measured
  std::string source;                                 // of these figures, in words
};

// As their makers state them, but for the H200's copy; memory as nvidia-smi shows it.
std::vector<Hardware> known_gpus();
Hardware find_gpu(std::string_view name);  // throws where there is none

// "24GB", "24GiB", "80000MB": powers of 1000, or of 1024 with an i.
int64_t parse_bytes(std::string_view text);

}  // namespace gallop::lab
