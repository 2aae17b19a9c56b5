// SPDX-License-Identifier: MIT
// The instruction set this translation unit really is compiled for, from the compiler's own macros.
#pragma once

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define GALLOP_ISA_NAME "avx512"
#elif defined(__AVX2__) && defined(__FMA__)
#define GALLOP_ISA_NAME "avx2"
#else
#define GALLOP_ISA_NAME "baseline"
#endif

#if defined(__clang__)
#define GALLOP_VECTORIZE _Pragma("clang loop vectorize(assume_safety)")
#else
#define GALLOP_VECTORIZE _Pragma("GCC ivdep")
#endif
