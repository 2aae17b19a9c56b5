// SPDX-License-Identifier: MIT
// Products of dense matrices on a GPU, by cuBLASLt, which is loaded when it is first needed.
#pragma once

#include <compare>
#include <memory>
#include <string>

namespace gallop::cuda {

enum class Element { bf16, f16, f32, tf32, f64 };  // below fp32, sums are in fp32 all the same

// Column-major, as cuBLASLt has them: D = alpha op(A) op(B) + beta C, m x n with k terms each, for
// `count` matrices that lie a stride apart. C and D have the same layout.
struct Product {
  long long m, n, k;
  bool transpose_a, transpose_b;
  long long ld_a, ld_b, ld_c;              // elements from column to column
  long long stride_a, stride_b, stride_c;  // from matrix to matrix
  int count;
  Element element;
  bool aligned = true;  // the first matrix of each to 256 bytes
  bool wide = false;    // C and D in fp32, whatever A and B are
  bool bias = false;    // a number for each row of D is added, in D's type
  auto operator<=>(const Product&) const = default;
};

class Matmul {
 public:
  explicit Matmul(int device);
  ~Matmul();
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  // Chooses how it is done; before that, it cannot be captured.
  void prepare(const Product& p);
  void run(const Product& p, double alpha, const void* a, const void* b, double beta, const void* c,
           void* d, void* stream, const void* bias = nullptr);

  // What was chosen so far, in one line; and the same ways again in another process, for products
  // that are not prepared yet. Throws where the line is not for this library.
  std::string choices() const;
  void choose(const std::string& choices);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gallop::cuda
