// SPDX-License-Identifier: MIT
// Device memory and devices, without CUDA's headers. In a build without CUDA, src/cuda_stub has
// the same functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "gallop/optimizer.h"

namespace gallop::cuda {

bool built();                     // whether this build has CUDA
bool emulated();                  // by the CPU, for tests
std::string describe_compiler();  // what compiles for GPUs at run time, or why nothing does

// Throws unless the device exists and its driver can run this build.
void require_device(int device);

void* allocate(int device, size_t bytes);  // zeroed; throws when there is not enough
void release(int device, void* memory) noexcept;
// Memory that host and device both reach, for checks; zeroed.
void* allocate_shared(int device, size_t bytes);

// These wait until the device is done.
void copy_to_host(int device, void* to, const void* from, size_t bytes);
void copy_to_device(int device, void* to, const void* from, size_t bytes);
void zero(int device, void* memory, size_t bytes);
void synchronize(int device);
// fp32 masters from 16-bit parameters.
void fill_masters(int device, const void* in, float* out, int64_t n, bool bf16);

// Throws, naming what it is, unless the device can reach the memory.
void require_reachable(int device, const void* memory, const std::string& what);

}  // namespace gallop::cuda
