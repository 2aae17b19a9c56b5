// SPDX-License-Identifier: MIT
#pragma once

#include <stdexcept>
#include <string>

namespace gallop {

enum class ErrorCode {
  invalid_argument,  // a value the caller gave is outside what is accepted
  invalid_file,      // a file is truncated, foreign or does not match
  io,                // the operating system refused to read or write
  unsupported,       // this build or machine cannot do it
  device,            // the GPU or its driver failed
  out_of_memory,     // there is less memory than it takes
};

// Every failure of the library: one sentence that names the value and what was expected.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace gallop
