// SPDX-License-Identifier: MIT
#include "cuda/matmul.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include <charconv>
#include <map>
#include <sstream>

#include "cuda/memory.h"
#include "cuda/runtime.h"
#include "cuda/shared_library.h"
#include "gallop/error.h"

namespace gallop::cuda {
namespace {

constexpr size_t kWorkspace = size_t{32} << 20;
// How many matrices cuBLASLt is asked about, however many there are: the same bits in every mode.
constexpr int32_t kAskedFor = 12;

#define GALLOP_LT(name) decltype(&::cublasLt##name) name = nullptr

struct Library {
  GALLOP_LT(Create);
  GALLOP_LT(Destroy);
  GALLOP_LT(GetVersion);
  GALLOP_LT(Matmul);
  GALLOP_LT(MatmulDescCreate);
  GALLOP_LT(MatmulDescDestroy);
  GALLOP_LT(MatmulDescSetAttribute);
  GALLOP_LT(MatrixLayoutCreate);
  GALLOP_LT(MatrixLayoutDestroy);
  GALLOP_LT(MatrixLayoutSetAttribute);
  GALLOP_LT(MatmulPreferenceCreate);
  GALLOP_LT(MatmulPreferenceDestroy);
  GALLOP_LT(MatmulPreferenceSetAttribute);
  GALLOP_LT(MatmulAlgoGetHeuristic);

  Library() {
    const SharedLibrary library({fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR)},
                                "which products of matrices on a GPU need");
    const auto load = [&](auto*& to, const char* symbol) { library.load(to, symbol); };
    load(Create, "cublasLtCreate");
    load(Destroy, "cublasLtDestroy");
    load(GetVersion, "cublasLtGetVersion");
    load(Matmul, "cublasLtMatmul");
    load(MatmulDescCreate, "cublasLtMatmulDescCreate");
    load(MatmulDescDestroy, "cublasLtMatmulDescDestroy");
    load(MatmulDescSetAttribute, "cublasLtMatmulDescSetAttribute");
    load(MatrixLayoutCreate, "cublasLtMatrixLayoutCreate");
    load(MatrixLayoutDestroy, "cublasLtMatrixLayoutDestroy");
    load(MatrixLayoutSetAttribute, "cublasLtMatrixLayoutSetAttribute");
    load(MatmulPreferenceCreate, "cublasLtMatmulPreferenceCreate");
    load(MatmulPreferenceDestroy, "cublasLtMatmulPreferenceDestroy");
    load(MatmulPreferenceSetAttribute, "cublasLtMatmulPreferenceSetAttribute");
    load(MatmulAlgoGetHeuristic, "cublasLtMatmulAlgoGetHeuristic");
  }
};
#undef GALLOP_LT

const Library& library() {
  static const Library* const loaded = new Library;
  return *loaded;
}

void check_lt(cublasStatus_t status, const char* doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorCode::device,
              fmt::format("{}: cuBLASLt failed with status {}", doing, static_cast<int>(status)));
}

cudaDataType type_of(Element e) {
  switch (e) {
    case Element::bf16:
      return CUDA_R_16BF;
    case Element::f16:
      return CUDA_R_16F;
    case Element::f64:
      return CUDA_R_64F;
    default:
      return CUDA_R_32F;
  }
}

struct Way {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulAlgo_t algo{};
};

std::string describe(const Product& p) {
  return fmt::format("{}x{}x{}{}{}:{},{},{}:{},{},{}:{}:{}{}{}{}", p.m, p.n, p.k,
                     p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.ld_a, p.ld_b, p.ld_c,
                     p.stride_a, p.stride_b, p.stride_c, p.count, static_cast<int>(p.element),
                     p.aligned ? 'a' : 'u', p.wide ? 'w' : 'n', p.bias ? 'b' : '-');
}

std::string to_hex(const cublasLtMatmulAlgo_t& algo) {
  std::string text;
  for (uint64_t part : algo.data) text += fmt::format("{:016x}", part);
  return text;
}

cublasLtMatmulAlgo_t from_hex(const std::string& text) {
  cublasLtMatmulAlgo_t algo{};
  constexpr size_t kDigits = 16, kParts = std::size(decltype(algo.data){});
  for (size_t i = 0; i < kParts; ++i) {
    const char* first = text.data() + i * kDigits;
    if (text.size() == kParts * kDigits &&
        std::from_chars(first, first + kDigits, algo.data[i], 16).ptr == first + kDigits) {
      continue;
    }
    throw Error(ErrorCode::invalid_file,
                fmt::format("'{}' is no way to multiply, expected {} hexadecimal digits", text,
                            kParts * kDigits));
  }
  return algo;
}

struct Operands {
  double alpha, beta;
  const void *a, *b, *c, *bias;
  void* d;
};

}  // namespace

struct Matmul::Impl {
  int device;
  cublasLtHandle_t handle = nullptr;
  std::map<void*, void*> workspaces;  // by stream: what runs side by side must not share one
  std::map<Product, Way> ways;
  std::map<std::string, std::string> known;  // from another process: product, way

  void* workspace(void* stream) {
    void*& memory = workspaces[stream];
    if (memory == nullptr) memory = allocate(device, kWorkspace);
    return memory;
  }

  void go(const Product& p, const Way& way, const cublasLtMatmulAlgo_t& algo, const Operands& x,
          void* stream) {
    const float alpha = static_cast<float>(x.alpha), beta = static_cast<float>(x.beta);
    const bool wide = p.element == Element::f64;
    const void* by = wide ? static_cast<const void*>(&x.alpha) : &alpha;
    const void* plus = wide ? static_cast<const void*>(&x.beta) : &beta;
    check_lt(
        library().Matmul(handle, way.desc, by, x.a, way.a, x.b, way.b, plus, x.c, way.c, x.d, way.c,
                         &algo, workspace(stream), kWorkspace, static_cast<cudaStream_t>(stream)),
        "multiplying matrices");
  }
};

Matmul::Matmul(int device) : impl_(new Impl{device, nullptr, {}, {}, {}}) {
  check_lt(library().Create(&impl_->handle), "starting cuBLASLt");
}

Matmul::~Matmul() {
  for (auto& [product, way] : impl_->ways) {
    library().MatrixLayoutDestroy(way.a);
    library().MatrixLayoutDestroy(way.b);
    library().MatrixLayoutDestroy(way.c);
    library().MatmulDescDestroy(way.desc);
  }
  for (auto& [stream, memory] : impl_->workspaces) release(impl_->device, memory);
  if (impl_->handle != nullptr) library().Destroy(impl_->handle);
}

void Matmul::prepare(const Product& p) {
  if (impl_->ways.contains(p)) return;
  const Library& lt = library();
  const bool wide = p.element == Element::f64;
  const cudaDataType type = type_of(p.element), result_type = p.wide ? CUDA_R_32F : type;
  Way way;
  check_lt(lt.MatmulDescCreate(&way.desc,
                               wide                         ? CUBLAS_COMPUTE_64F
                               : p.element == Element::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                            : CUBLAS_COMPUTE_32F,
                               wide ? CUDA_R_64F : CUDA_R_32F),
           "describing a product");
  const auto op = [&](cublasLtMatmulDescAttributes_t which, bool transposed) {
    const cublasOperation_t value = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_lt(lt.MatmulDescSetAttribute(way.desc, which, &value, sizeof value),
             "describing a product");
  };
  op(CUBLASLT_MATMUL_DESC_TRANSA, p.transpose_a);
  op(CUBLASLT_MATMUL_DESC_TRANSB, p.transpose_b);
  const auto set_count = [&](cublasLtMatrixLayout_t of, int32_t count) {
    check_lt(
        lt.MatrixLayoutSetAttribute(of, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
        "describing a matrix");
  };
  if (p.bias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    check_lt(lt.MatmulDescSetAttribute(way.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                       sizeof epilogue),
             "describing a product");
  }
  const auto layout = [&](cublasLtMatrixLayout_t& to, cudaDataType of, long long rows,
                          long long columns, long long ld, long long stride) {
    check_lt(lt.MatrixLayoutCreate(&to, of, static_cast<uint64_t>(rows),
                                   static_cast<uint64_t>(columns), ld),
             "describing a matrix");
    const int64_t apart = stride;
    set_count(to, p.stride_c == 0 ? 1 : kAskedFor);  // no stride: always alone
    check_lt(lt.MatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &apart,
                                         sizeof apart),
             "describing a matrix");
  };
  layout(way.a, type, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.ld_a, p.stride_a);
  layout(way.b, type, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.ld_b, p.stride_b);
  layout(way.c, result_type, p.m, p.n, p.ld_c, p.stride_c);
  cublasLtMatmulPreference_t preference = nullptr;
  check_lt(lt.MatmulPreferenceCreate(&preference), "asking how to multiply");
  check_lt(lt.MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &kWorkspace, sizeof kWorkspace),
           "asking how to multiply");
  // Matrices of a batch, and what is somewhere in a tensor, may begin at any element.
  const auto alignment = [&](cublasLtMatmulPreferenceAttributes_t which, long long stride) {
    const bool of_result = which == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES ||
                           which == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES;
    const cudaDataType of = of_result ? result_type : type;
    const size_t width = of == CUDA_R_64F ? 8 : of == CUDA_R_32F ? 4 : 2;
    uint32_t bytes = 256;
    while (bytes > width && static_cast<size_t>(stride) * width % bytes != 0) bytes /= 2;
    if (!p.aligned) bytes = static_cast<uint32_t>(width);
    check_lt(lt.MatmulPreferenceSetAttribute(preference, which, &bytes, sizeof bytes),
             "asking how to multiply");
  };
  alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.stride_a);
  alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.stride_b);
  alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.stride_c);
  alignment(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.stride_c);
  // Always the first answer, never the fastest of some tried: the same bits on every run.
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = lt.MatmulAlgoGetHeuristic(
      impl_->handle, way.desc, way.a, way.b, way.c, way.c, preference, 1, &result, &found);
  lt.MatmulPreferenceDestroy(preference);
  check_lt(status, "asking how to multiply");
  if (found == 0) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("cuBLASLt has no product of {} x {} matrices with {} terms", p.m, p.n, p.k));
  }
  for (cublasLtMatrixLayout_t of : {way.a, way.b, way.c}) set_count(of, p.count);
  const auto known = impl_->known.find(describe(p));
  way.algo = known == impl_->known.end() ? result.algo : from_hex(known->second);
  impl_->ways.emplace(p, way);
}

void Matmul::run(const Product& p, double alpha, const void* a, const void* b, double beta,
                 const void* c, void* d, void* stream, const void* bias) {
  prepare(p);
  const Way& way = impl_->ways.at(p);
  if (p.bias) {
    check_lt(library().MatmulDescSetAttribute(way.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                              sizeof bias),
             "multiplying matrices");
  }
  const Operands x{alpha, beta, a, b, c, bias, d};
  impl_->go(p, way, way.algo, x, stream);
}

std::string Matmul::choices() const {
  std::string line = fmt::format("cublasLt {}", library().GetVersion());
  for (const auto& [product, way] : impl_->ways) {
    line += fmt::format(" {}={}", describe(product), to_hex(way.algo));
  }
  return line;
}

void Matmul::choose(const std::string& choices) {
  std::istringstream in(choices);
  std::string name, version, entry;
  in >> name >> version;
  if (name != "cublasLt" || version != std::to_string(library().GetVersion())) {
    throw Error(ErrorCode::unsupported,
                fmt::format("products were chosen for '{} {}', expected cublasLt {}", name, version,
                            library().GetVersion()));
  }
  while (in >> entry) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos) continue;
    from_hex(entry.substr(equals + 1));  // throws unless it is one
    impl_->known[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
}

}  // namespace gallop::cuda
