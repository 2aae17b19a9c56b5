// SPDX-License-Identifier: MIT
// OpenBLAS is loaded when it is first needed: a program without matrices does not want it, and one
// built here runs where it is not.
#include "blas/blas.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <vector>

#include "blas/plain.h"
#include "cpu/isa.h"

namespace gallop::blas {
namespace {

// As its ABI has them: CBLAS takes enums and 32-bit sizes, LAPACK pointers.
template <class T>
using Gemm = void(int order, int op_a, int op_b, int m, int n, int k, T alpha, const T* a, int lda,
                  const T* b, int ldb, T beta, T* c, int ldc);
template <class T>
using Syevd = void(const char* jobz, const char* uplo, const int* n, T* a, const int* lda, T* w,
                   T* work, const int* lwork, int* iwork, const int* liwork, int* info, size_t,
                   size_t);
template <class T>
using Geqrf = void(const int* m, const int* n, T* a, const int* lda, T* tau, T* work,
                   const int* lwork, int* info);
template <class T>
using Orgqr = void(const int* m, const int* n, const int* k, T* a, const int* lda, const T* tau,
                   T* work, const int* lwork, int* info);
constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;

template <class T>
struct Functions {
  Gemm<T>* gemm = nullptr;
  Syevd<T>* syevd = nullptr;
  Geqrf<T>* geqrf = nullptr;
  Orgqr<T>* orgqr = nullptr;
  bool complete() const { return gemm && syevd && geqrf && orgqr; }
};

struct Library {
  Functions<float> f32;
  Functions<double> f64;
  int (*get_threads)() = nullptr;
  void (*set_threads)(int) = nullptr;
  std::string name;
  bool found = false;

  Library() {
    void* handle = open();
    if (handle == nullptr) return;
    const auto load = [&](auto*& to, const char* symbol) {
      to = reinterpret_cast<std::remove_reference_t<decltype(to)>>(dlsym(handle, symbol));
    };
    load(f32.gemm, "cblas_sgemm");
    load(f32.syevd, "ssyevd_");
    load(f32.geqrf, "sgeqrf_");
    load(f32.orgqr, "sorgqr_");
    load(f64.gemm, "cblas_dgemm");
    load(f64.syevd, "dsyevd_");
    load(f64.geqrf, "dgeqrf_");
    load(f64.orgqr, "dorgqr_");
    load(get_threads, "openblas_get_num_threads");
    load(set_threads, "openblas_set_num_threads");
    found = f32.complete() && f64.complete() && get_threads && set_threads;
    char* (*config)() = nullptr;
    char* (*core)() = nullptr;
    load(config, "openblas_get_config");
    load(core, "openblas_get_corename");
    if (config != nullptr) name = config();
    name = name.substr(0, name.find(' ', name.find(' ') + 1));  // "OpenBLAS 0.3.21 ..."
    if (core != nullptr) name += std::string(", ") + core();
  }

  // An OpenBLAS older than the CPU falls back to kernels of twenty years ago: tell it what runs
  // here, unless the user did or it is loaded already.
  static void* open() {
    constexpr const char *kName = "libopenblas.so.0", *kVariable = "OPENBLAS_CORETYPE";
    constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;
    if (void* loaded = dlopen(kName, kFlags | RTLD_NOLOAD)) return loaded;
    if (std::getenv(kVariable) != nullptr) return dlopen(kName, kFlags);
    const char* core = cpu::runs_here("avx512") ? "SkylakeX"
                       : cpu::runs_here("avx2") ? "Haswell"
                                                : nullptr;
    if (core == nullptr) return dlopen(kName, kFlags);
    setenv(kVariable, core, 1);
    void* handle = dlopen(kName, kFlags);
    unsetenv(kVariable);
    return handle;
  }
};

const Library& library() {
  static const Library* const loaded = new Library;  // never unloaded: its threads outlive main
  return *loaded;
}

template <class T>
const Functions<T>& functions() {
  if constexpr (sizeof(T) == 8) {
    return library().f64;
  } else {
    return library().f32;
  }
}

int narrow(Index n) { return static_cast<int>(n); }

template <class T>
void gemm_of(Index m, Index n, Index k, T alpha, Factor<T> a, Factor<T> b, T beta, T* c,
             Index stride) {
  if (!library().found) return plain::gemm(m, n, k, alpha, a, b, beta, c, stride);
  const auto op = [](const Factor<T>& f) { return f.transposed ? kTransposed : kPlain; };
  functions<T>().gemm(kRowMajor, op(a), op(b), narrow(m), narrow(n), narrow(k), alpha, a.data,
                      narrow(a.stride), b.data, narrow(b.stride), beta, c, narrow(stride));
}

// LAPACK reads columns where we have rows: a symmetric matrix is the same, and eigenvectors come
// out one a row, the smallest eigenvalue's first.
template <class T>
bool eigenvectors_of(Index size, T* a) {
  if (!library().found) return plain::eigenvectors(size, a);
  // Asked how much it wants, LAPACK answers in a float, which may round it down.
  const int n = narrow(size), length = narrow(1 + 6 * size + 2 * size * size), integers = 3 + 5 * n;
  int info = 0;
  std::vector<T> values(static_cast<size_t>(n)), work(static_cast<size_t>(length));
  std::vector<int> integer_work(static_cast<size_t>(integers));
  functions<T>().syevd("V", "U", &n, a, &n, values.data(), work.data(), &length,
                       integer_work.data(), &integers, &info, 1, 1);
  for (Index i = 0; i < size / 2; ++i) {
    std::swap_ranges(a + i * size, a + (i + 1) * size, a + (size - 1 - i) * size);
  }
  return info == 0;
}

template <class T>
void orthonormal_rows_of(Index size, T* a, T* work) {
  if (!library().found) return plain::orthonormal_rows(size, a);
  const int n = narrow(size), length = narrow(orthonormal_work(size) - size);
  T* tau = work + length;
  int info = 0;
  functions<T>().geqrf(&n, &n, a, &n, tau, work, &length, &info);
  functions<T>().orgqr(&n, &n, &n, a, &n, tau, work, &length, &info);
}

std::mutex g_mutex;
int g_users = 0, g_threads_before = 1;

}  // namespace

void gemm(Index m, Index n, Index k, float alpha, Factor<float> a, Factor<float> b, float beta,
          float* c, Index stride) {
  gemm_of(m, n, k, alpha, a, b, beta, c, stride);
}
void gemm(Index m, Index n, Index k, double alpha, Factor<double> a, Factor<double> b, double beta,
          double* c, Index stride) {
  gemm_of(m, n, k, alpha, a, b, beta, c, stride);
}
bool eigenvectors(Index n, float* a) { return eigenvectors_of(n, a); }
bool eigenvectors(Index n, double* a) { return eigenvectors_of(n, a); }
void orthonormal_rows(Index n, float* a, float* work) { orthonormal_rows_of(n, a, work); }
void orthonormal_rows(Index n, double* a, double* work) { orthonormal_rows_of(n, a, work); }

// OpenBLAS has one number of threads for the whole process: the last user gives it back.
OneThreadEach::OneThreadEach() {
  const std::lock_guard lock(g_mutex);
  if (!library().found || g_users++ > 0) return;
  g_threads_before = library().get_threads();
  library().set_threads(1);
}
OneThreadEach::~OneThreadEach() {
  const std::lock_guard lock(g_mutex);
  if (library().found && --g_users == 0) library().set_threads(g_threads_before);
}

std::string describe() {
  return library().found ? library().name : "none (libopenblas.so.0 was not found): plain loops";
}

}  // namespace gallop::blas
