// SPDX-License-Identifier: MIT
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace gallop::jit {

// Pointers by key. Who wants one that is being made waits for it; who wants another does not.
template <class T>
class Known {
 public:
  // make() may throw: then it is asked again the next time. anew: it is made in any case.
  template <class Make>
  T* get(const std::string& key, bool anew, Make make) {
    std::shared_ptr<Slot> slot;
    {
      const std::lock_guard lock(mutex_);
      std::shared_ptr<Slot>& at = slots_[key];
      if (at == nullptr) at = std::make_shared<Slot>();
      slot = at;
    }
    const std::lock_guard lock(slot->mutex);
    if (slot->value == nullptr || anew) slot->value = make();
    return slot->value;
  }

 private:
  struct Slot {
    std::mutex mutex;
    T* value = nullptr;
  };
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Slot>> slots_;
};

}  // namespace gallop::jit
