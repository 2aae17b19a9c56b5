// SPDX-License-Identifier: MIT
// Products of matrices rounded to bf16, over all threads: fp32 in memory, about twice as fast
// as products of fp32.
#pragma once

#include "blas/blas.h"

namespace gallop::gpt::cpu {

// Whether this CPU multiplies bf16 (AVX512-BF16) and GALLOP_FORCE_ISA does not forbid it.
bool has_bf16_products();

// C = op(A) op(B) + beta C. Factors are rounded to bf16, to nearest even, sums are fp32; the bits
// do not depend on threads. The instruction takes subnormal factors, and sums that become so, for
// zero. The calling thread keeps up to 9 MiB for packed factors. Throws where the CPU cannot.
void product_bf16(int threads, blas::Index m, blas::Index n, blas::Index k, blas::Factor<float> a,
                  blas::Factor<float> b, float beta, float* c, blas::Index stride);

}  // namespace gallop::gpt::cpu
