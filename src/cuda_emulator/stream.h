// SPDX-License-Identifier: MIT
#pragma once

#include <functional>

#include "cuda_emulator/cuda_runtime_api.h"

namespace gallop::emulator {

// Does the work, or notes it down where the stream is being captured.
cudaError_t put_on(cudaStream_t stream, std::function<void()> work);

}  // namespace gallop::emulator
