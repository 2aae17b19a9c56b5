// SPDX-License-Identifier: MIT
#include "cuda/memory.h"
#include "gpt/ops.h"

namespace gallop::gpt {

std::unique_ptr<Ops> gpu_ops(const Config&, const GpuOptions& options) {
  gallop::cuda::require_device(options.device);
  return nullptr;
}

}  // namespace gallop::gpt
