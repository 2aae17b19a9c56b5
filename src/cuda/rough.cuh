// SPDX-License-Identifier: MIT
// fp32 whose quotients and roots are 2^-22 from exact instead of rounded correctly, and take two
// instructions instead of ten and a branch; arguments below 2^-126 count as zero. For rules whose
// states hold a few bits only.
#pragma once

#include "core/convert.h"

namespace gallop::cuda {

namespace rough {
#if defined(__CUDA_ARCH__)
__device__ __forceinline__ float quotient(float a, float b) {
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(b));
  return a * inverse;
}
__device__ __forceinline__ float root(float a) {
  float r;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
  return r;
}
#else
inline float quotient(float a, float b) { return a / b; }
inline float root(float a) { return gallop::sqrt(a); }
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
__device__ __forceinline__ float larger(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
__device__ __forceinline__ float smaller(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
#else
GALLOP_FN float larger(float a, float b) { return gallop::max(a, b); }
GALLOP_FN float smaller(float a, float b) { return gallop::min(a, b); }
#endif
}  // namespace rough

// What a rule is instantiated with.
struct Rough {
  float x;

  Rough() = default;
  __device__ __forceinline__ Rough(float value)  // NOLINT(google-explicit-constructor)
      : x(value) {}

  friend __device__ __forceinline__ Rough operator-(Rough a) { return -a.x; }
  friend __device__ __forceinline__ Rough operator+(Rough a, Rough b) { return a.x + b.x; }
  friend __device__ __forceinline__ Rough operator-(Rough a, Rough b) { return a.x - b.x; }
  friend __device__ __forceinline__ Rough operator*(Rough a, Rough b) { return a.x * b.x; }
  friend __device__ __forceinline__ Rough operator/(Rough a, Rough b) {
    return rough::quotient(a.x, b.x);
  }
  friend __device__ __forceinline__ Rough fma(Rough a, Rough b, Rough c) {
    return gallop::fma(a.x, b.x, c.x);
  }
  friend __device__ __forceinline__ Rough sqrt(Rough a) { return rough::root(a.x); }
  friend __device__ __forceinline__ Rough abs(Rough a) { return gallop::abs(a.x); }
  friend __device__ __forceinline__ Rough max(Rough a, Rough b) { return rough::larger(a.x, b.x); }
  friend __device__ __forceinline__ Rough min(Rough a, Rough b) { return rough::smaller(a.x, b.x); }
  friend __device__ __forceinline__ Rough sign(Rough a) { return gallop::sign(a.x); }
};

}  // namespace gallop::cuda
