// A GEMM through cuBLASLt, for libraries exported with a vendor's kernel. The library is looked up at run time, so nothing
// links against it; its C interface is declared here as far as it is used (cublasLt.h of CUDA 12 and 13).
//
// cuBLASLt is column-major: it computes our row-major D (M, N) as D^T = B^T A^T.
#pragma once
#include <dlfcn.h>

#include "bolt/abi.h"

namespace bolt {
namespace cublaslt {

// Not there, or without the algorithm that was measured. Beside abi.h's BOLT_E_*.
constexpr int kMissing = -16;

// What was measured: the algorithm's settings, and how the whole epilogue is one of cuBLASLt's.
struct Gemm {
  unsigned algorithm, tile, stages, splits;
  unsigned epilogue;
  float alpha;
  int type, output, compute;  // cudaDataType of A and B, of C and D; cublasComputeType_t
  bool row_a, row_b;
};

struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
constexpr int kOffered = 8;
constexpr uint64_t kWorkspace = 64u << 20;

// The loaded library; `handle` stays null where it is not there.
struct Library {
  using Attribute = int (*)(void*, int, void const*, size_t);
  int (*create)(void**) = nullptr;
  int (*desc_create)(void**, int, int) = nullptr;
  int (*desc_destroy)(void*) = nullptr;
  Attribute desc_set = nullptr;
  int (*layout_create)(void**, int, uint64_t, uint64_t, int64_t) = nullptr;
  int (*layout_destroy)(void*) = nullptr;
  Attribute layout_set = nullptr;
  int (*preference_create)(void**) = nullptr;
  int (*preference_destroy)(void*) = nullptr;
  Attribute preference_set = nullptr;
  int (*config_get)(void const*, int, void*, size_t, size_t*) = nullptr;
  int (*heuristic)(void*, void*, void*, void*, void*, void*, void*, int, Heuristic*, int*) = nullptr;
  int (*matmul)(void*, void*, void const*, void const*, void*, void const*, void*, void const*, void const*, void*, void*,
                void*, void const*, void*, size_t, cudaStream_t) = nullptr;
  void* handle = nullptr;

  Library() {
    void* library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!library) library = dlopen("libcublasLt.so.12", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    bool all = true;
    auto const find = [&](auto& function, char const* name) {
      void* const symbol = dlsym(library, name);
      all = all && symbol;
      *reinterpret_cast<void**>(&function) = symbol;
    };
    find(create, "cublasLtCreate");
    find(desc_create, "cublasLtMatmulDescCreate");
    find(desc_destroy, "cublasLtMatmulDescDestroy");
    find(desc_set, "cublasLtMatmulDescSetAttribute");
    find(layout_create, "cublasLtMatrixLayoutCreate");
    find(layout_destroy, "cublasLtMatrixLayoutDestroy");
    find(layout_set, "cublasLtMatrixLayoutSetAttribute");
    find(preference_create, "cublasLtMatmulPreferenceCreate");
    find(preference_destroy, "cublasLtMatmulPreferenceDestroy");
    find(preference_set, "cublasLtMatmulPreferenceSetAttribute");
    find(config_get, "cublasLtMatmulAlgoConfigGetAttribute");
    find(heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(matmul, "cublasLtMatmul");
    if (all && create(&handle)) handle = nullptr;
  }
};
inline Library const& library() {
  static Library const loaded;
  return loaded;
}

// Descriptors of one call. `ok` is false when cuBLASLt refused one of them.
struct Call {
  Library const& lt;
  void *desc = nullptr, *a = nullptr, *b = nullptr, *d = nullptr;
  bool ok;

  Call(Library const& lt_, Gemm const& gemm, bolt_args const& args) : lt(lt_) {
    int const trans_first = gemm.row_b ? 0 : 1, trans_second = gemm.row_a ? 0 : 1;
    ok = !lt.desc_create(&desc, gemm.compute, 0) && set(3, trans_first) && set(4, trans_second) &&
         set(7, gemm.epilogue) && (!args.bias || set(8, args.bias)) &&
         layout(&a, gemm.type, gemm.row_b ? args.n : args.k, gemm.row_b ? args.k : args.n, args.batch, args.stride_b) &&
         layout(&b, gemm.type, gemm.row_a ? args.k : args.m, gemm.row_a ? args.m : args.k, args.batch, args.stride_a) &&
         layout(&d, gemm.output, args.n, args.m, args.batch, args.stride_d);
  }
  ~Call() {
    if (desc) lt.desc_destroy(desc);
    for (void* made : {a, b, d})
      if (made) lt.layout_destroy(made);
  }
  template <class T>
  bool set(int attribute, T value) {
    return !lt.desc_set(desc, attribute, &value, sizeof value);
  }
  bool layout(void** made, int type, int rows, int columns, int32_t batch, int64_t stride) {
    if (lt.layout_create(made, type, uint64_t(rows), uint64_t(columns), rows)) return false;
    return batch <= 1 || (!lt.layout_set(*made, 5, &batch, sizeof batch) && !lt.layout_set(*made, 6, &stride, sizeof stride));
  }

  // The heuristic's proposal with the measured settings; false if it is not among them.
  bool find(Gemm const& gemm, Heuristic* chosen) {
    Heuristic offered[kOffered];
    int count = 0;
    void* preference = nullptr;
    if (!ok || lt.preference_create(&preference)) return false;
    uint64_t const limit = kWorkspace;
    bool const asked = !lt.preference_set(preference, 1, &limit, sizeof limit) &&
                       !lt.heuristic(lt.handle, desc, a, b, d, d, preference, kOffered, offered, &count);
    lt.preference_destroy(preference);
    for (int i = 0; asked && i < count; ++i) {
      unsigned const wanted[] = {gemm.algorithm, gemm.tile, gemm.splits, gemm.stages};
      int const attributes[] = {0, 1, 2, 6};
      bool same = offered[i].state == 0;
      for (int j = 0; same && j < 4; ++j) {
        unsigned value = ~0u;
        size_t written = 0;
        lt.config_get(offered[i].algorithm, attributes[j], &value, sizeof value, &written);
        same = value == wanted[j];
      }
      if (same) {
        *chosen = offered[i];
        return true;
      }
    }
    return false;
  }
};

inline int check(Gemm const& gemm, bolt_args const& args) {
  Heuristic chosen;
  return library().handle && Call(library(), gemm, args).find(gemm, &chosen) ? BOLT_OK : kMissing;
}

inline size_t workspace(Gemm const& gemm, bolt_args const& args) {
  Heuristic chosen{};
  if (!library().handle || !Call(library(), gemm, args).find(gemm, &chosen)) return 0;
  return chosen.workspace;
}

inline int run(Gemm const& gemm, bolt_args const& args, cudaStream_t stream) {
  if (!library().handle) return kMissing;
  Call call(library(), gemm, args);
  Heuristic chosen;
  if (!call.find(gemm, &chosen)) return kMissing;
  if (chosen.workspace > args.workspace_bytes) return BOLT_E_WORKSPACE;
  float const alpha = gemm.alpha, beta = args.source ? 1.f : 0.f;
  void const* const c = args.source ? args.source : args.d;
  int const status =
      call.lt.matmul(call.lt.handle, call.desc, &alpha, args.b, call.a, args.a, call.b, &beta, c, call.d, args.d, call.d,
                     chosen.algorithm, args.workspace, chosen.workspace, stream);
  return status ? BOLT_E_LAUNCH : BOLT_OK;
}

}  // namespace cublaslt
}  // namespace bolt
