// SPDX-License-Identifier: MIT
// All CPU kernels of one rule for one instruction set. Included by a generated file that defines
// GALLOP_RULE (the struct), GALLOP_RULE_ID (the rule's name) and GALLOP_ISA.
#pragma once

#include "cpu/norm_kernels.h"
#include "cpu/rule_loops.h"

namespace gallop::cpu {
namespace {  // nothing here may leave the object file: see tests/symbols

// Of an entry; or of a pass, for vectors and for matrices, null where there is nothing to do.
template <class R, int I>
constexpr Kernel kernel_at() {
  constexpr int kKernel = I / (detail::kVariants<R> * 3);
  constexpr unsigned kPresent = detail::variant_states<R>(I / 3 % detail::kVariants<R>);
  constexpr Path kPath = static_cast<Path>(I % 3);
  if constexpr (!detail::kHasNorms<R>) {
    return loop_of<Loops<R, kKernel, kPresent>, kPath>();
  } else {
    return pass_kernel<R, kKernel, kPresent, kPath>();
  }
}

template <class R>
struct KernelTable {
  static constexpr int kSize = detail::kernel_count<R>() * detail::kVariants<R> * 3;
  Kernel at[kSize];
  template <int I = 0>
  constexpr void fill() {
    if constexpr (I < kSize) {
      at[I] = kernel_at<R, I>();
      fill<I + 1>();
    }
  }
  constexpr KernelTable() : at{} { fill(); }
};

constexpr KernelTable<rules::GALLOP_RULE> kTable;

#define GALLOP_TEXT_(x) #x
#define GALLOP_TEXT(x) GALLOP_TEXT_(x)
#define GALLOP_JOIN_(a, b, c) a##_##b##_##c
#define GALLOP_JOIN(a, b, c) GALLOP_JOIN_(a, b, c)
static_assert(detail::same_text(GALLOP_ISA_NAME, GALLOP_TEXT(GALLOP_ISA)),
              "the compiler's flags do not match the instruction set asked for");

}  // namespace

extern const RuleKernels GALLOP_JOIN(kernels, GALLOP_RULE_ID, GALLOP_ISA);
const RuleKernels GALLOP_JOIN(kernels, GALLOP_RULE_ID, GALLOP_ISA) = {GALLOP_ISA_NAME, kTable.at};

}  // namespace gallop::cpu
