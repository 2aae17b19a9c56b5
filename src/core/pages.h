// SPDX-License-Identifier: MIT
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace gallop::detail {

// Zeroed pages straight from the system, placed by the thread that first touches them, and on huge
// pages where they are large enough to matter: a step walks through many arrays at once, and with
// small pages it would wait for address translation.
inline constexpr size_t kHugePage = size_t{1} << 21;

struct Pages {
  void* mapping = nullptr;
  size_t mapped = 0;
  void* data = nullptr;  // aligned to a huge page if that large, else to a page
};

inline Pages map_pages(size_t bytes) {
  const size_t slack = bytes >= kHugePage ? kHugePage : 0;
  void* p =
      mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return {};
  const size_t past = reinterpret_cast<uintptr_t>(p) % kHugePage;
  void* data = static_cast<char*>(p) + (slack == 0 || past == 0 ? 0 : kHugePage - past);
  if (slack != 0) madvise(data, bytes, MADV_HUGEPAGE);  // a refusal does no harm
  return {p, bytes + slack, data};
}

inline void unmap(const Pages& pages) {
  if (pages.mapping != nullptr) munmap(pages.mapping, pages.mapped);
}

}  // namespace gallop::detail
