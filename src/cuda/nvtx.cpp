// SPDX-License-Identifier: MIT
#include "cuda/nvtx.h"

#include <nvtx3/nvToolsExt.h>

namespace gallop::cuda {
namespace {

// Null where no tool is attached.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t ours = nvtxDomainCreateA("gallop");
  return ours;
}

}  // namespace

bool watched() { return domain() != nullptr; }

void push_range(const std::string& name) {
  nvtxEventAttributes_t range = {};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name.c_str();
  nvtxDomainRangePushEx(domain(), &range);
}

void pop_range() { nvtxDomainRangePop(domain()); }

}  // namespace gallop::cuda
