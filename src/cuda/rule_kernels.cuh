// SPDX-License-Identifier: MIT
// All kernels of one rule. Included by a generated file that defines GALLOP_RULE (the struct) and
// GALLOP_RULE_ID (the rule's name).
#pragma once

#include "cuda/launch.cuh"
#include "cuda/norm_between.cuh"
#include "cuda/update_kernel.cuh"

namespace gallop::cuda {
namespace {

// Of an entry, or of a pass.
template <class R, int I>
const void* kernel_at() {
  constexpr int kKernel = I / (detail::kVariants<R> * kKinds);
  constexpr unsigned kPresent = detail::variant_states<R>(I / kKinds % detail::kVariants<R>);
  constexpr Kind kKind = static_cast<Kind>(I % kKinds);
  if constexpr (is_own(kKind) &&
                (detail::kHasNorms<R> || OwnFormats<R, kPresent, false>::kCodes == 0)) {
    return nullptr;  // nothing asks for it
  } else if constexpr (!detail::kHasNorms<R>) {
    return address_of(&update<R, kKernel, kPresent, kKind>);
  } else {
    const auto has_pass = [](bool matrix) {
      return detail::has_pass<R>(kKernel, matrix, detail::states_of_form<R>(kPresent, matrix));
    };
    if constexpr (!has_pass(true) && !has_pass(false)) {
      return nullptr;  // there is nothing to do
    } else {
      return address_of(&norm_pass<R, kKernel, kPresent, path_of(kKind)>);
    }
  }
}

template <class R>
struct KernelTable {
  static constexpr int kernels() {
    if constexpr (detail::kHasNorms<R>) return detail::pass_count<R>();
    return detail::entry_count<R>();
  }
  static constexpr int kSize = kernels() * detail::kVariants<R> * kKinds;
  static constexpr int kEntries = detail::entry_count<R>();
  const void* at[kSize];
  const void* coefs[kEntries] = {};
  const void* between[detail::kMaxPasses] = {};
  const void* look_at_bases = nullptr;
  template <int I = 0>
  void fill() {
    if constexpr (I < kSize) at[I] = kernel_at<R, I>();
    if constexpr (detail::kHasNorms<R>) {
      if constexpr (I < detail::pass_count<R>()) {
        if constexpr (detail::adds_anything<R>(I)) {
          between[I] = address_of(&between_passes<R, I>);
        }
      }
    }
    if constexpr (I < kEntries) coefs[I] = address_of(&numbers<R, I>);
    if constexpr (I + 1 < kSize) fill<I + 1>();
  }
  KernelTable() {
    fill();
    if constexpr (detail::kHasBases<R>) look_at_bases = address_of(&gallop::cuda::look_at_bases<R>);
  }
};

}  // namespace

#define GALLOP_JOIN_(a, b) a##_##b
#define GALLOP_JOIN(a, b) GALLOP_JOIN_(a, b)

// A function, not data: kernels' addresses are known only when the program starts.
const RuleKernels* GALLOP_JOIN(kernels, GALLOP_RULE_ID)();
const RuleKernels* GALLOP_JOIN(kernels, GALLOP_RULE_ID)() {
  static const KernelTable<rules::GALLOP_RULE> table;
  static const RuleKernels kernels{table.at, table.coefs, table.between, table.look_at_bases};
  return &kernels;
}

}  // namespace gallop::cuda
