// SPDX-License-Identifier: MIT
// Mode compiled on the CPU: kernels for the formats that an optimizer's tensors have.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cpu/tensor.h"
#include "optimizer/rule.h"

namespace gallop::jit {

class FittedCpu {
 public:
  // fold: coefficients that are the same in every step, whatever lr, become constants.
  FittedCpu(const Rule& rule, int isa, bool fold) : rule_(rule), isa_(isa), fold_(fold) {}

  // Compiled, from the cache, or known already. hyper: of the tensor's group.
  const cpu::FittedKernels* kernels_for(const cpu::Tensor& t, const std::vector<double>& hyper);

 private:
  const Rule& rule_;
  int isa_;
  bool fold_;
  std::map<std::string, std::unique_ptr<cpu::FittedKernels>> known_;
};

}  // namespace gallop::jit
