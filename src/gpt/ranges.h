// SPDX-License-Identifier: MIT
// What the host is at, from moment to moment: shown to nsys where it watches, and kept by a trace
// where there is one. With neither, it costs nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "gpt/model.h"

namespace gallop::gpt {

class Trace;

constexpr int64_t kNoLayer = -2;

// Each is within the one that was begun before it and has not ended.
class Ranges final : public Observer {
 public:
  explicit Ranges(int64_t layers);

  void keep_in(Trace* trace) { trace_ = trace; }  // null: nowhere. Between steps

  void begin(std::string_view name, int64_t layer = kNoLayer);
  void end();
  void begin(Phase phase, int64_t layer) override;
  void end(Phase phase, int64_t layer) override;

  // "forward", "layer 3", "embedding", "head"
  static std::string_view name_of(Phase phase);
  std::string name_of(int64_t layer) const;

  class Scope {
   public:
    Scope(Ranges& ranges, std::string_view name, int64_t layer = kNoLayer) : ranges_(ranges) {
      ranges_.begin(name, layer);
    }
    ~Scope() { ranges_.end(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Ranges& ranges_;
  };

 private:
  bool unseen() const { return trace_ == nullptr && !watched_; }

  int64_t layers_;
  bool watched_;
  Trace* trace_ = nullptr;
};

}  // namespace gallop::gpt
