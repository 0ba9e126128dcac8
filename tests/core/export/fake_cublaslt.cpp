// Stands in for libcublasLt.so.13 on a machine without a GPU: the calls a library makes, column-major loops behind them.
#include <cuda_fp16.h>
#include <stdint.h>
#include <string.h>

#include <cmath>

#define API extern "C" __attribute__((visibility("default")))

struct Desc {
  int trans_a = 0, trans_b = 0;
  unsigned epilogue = 1;
  void const* bias = nullptr;
};
struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t leading;
  int32_t batch = 1;
  int64_t stride = 0;
};
struct Offer {
  uint64_t algorithm[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
static unsigned const kSettings[2][4] = {{9, 1, 1, 2}, {7, 3, 1, 5}};  // id, tile, splitK, stages

static float number(void const* p, int type, int64_t i) {
  return type == 2 ? __half2float(static_cast<__half const*>(p)[i]) : static_cast<float const*>(p)[i];
}

API int cublasLtCreate(void** handle) { return *handle = new int, 0; }
API int cublasLtMatmulDescCreate(void** desc, int compute, int scale) {
  if (compute != 68 || scale != 0) return 1;
  return *desc = new Desc, 0;
}
API int cublasLtMatmulDescDestroy(void* desc) { return delete static_cast<Desc*>(desc), 0; }
API int cublasLtMatmulDescSetAttribute(void* desc, int attribute, void const* value, size_t bytes) {
  Desc& d = *static_cast<Desc*>(desc);
  void* const fields[] = {&d.trans_a, &d.trans_b, &d.epilogue, &d.bias};
  size_t const sizes[] = {4, 4, 4, 8};
  int const field = attribute == 3 ? 0 : attribute == 4 ? 1 : attribute == 7 ? 2 : attribute == 8 ? 3 : -1;
  if (field < 0 || bytes != sizes[field]) return 1;
  return memcpy(fields[field], value, bytes), 0;
}
API int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  return *layout = new Layout{type, rows, columns, leading}, 0;
}
API int cublasLtMatrixLayoutDestroy(void* layout) { return delete static_cast<Layout*>(layout), 0; }
API int cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, void const* value, size_t bytes) {
  Layout& l = *static_cast<Layout*>(layout);
  if (attribute == 5 && bytes == 4) return memcpy(&l.batch, value, 4), 0;
  if (attribute == 6 && bytes == 8) return memcpy(&l.stride, value, 8), 0;
  return 1;
}
API int cublasLtMatmulPreferenceCreate(void** preference) { return *preference = new int, 0; }
API int cublasLtMatmulPreferenceDestroy(void* preference) { return delete static_cast<int*>(preference), 0; }
API int cublasLtMatmulPreferenceSetAttribute(void*, int attribute, void const*, size_t bytes) {
  return attribute == 1 && bytes == 8 ? 0 : 1;
}
API int cublasLtMatmulAlgoConfigGetAttribute(void const* algorithm, int attribute, void* value, size_t, size_t*) {
  int const index = attribute == 6 ? 3 : attribute;
  memcpy(value, &kSettings[*static_cast<uint64_t const*>(algorithm)][index], 4);
  return 0;
}
API int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, Offer* offers, int* count) {
  for (uint64_t i = 0; i < 2; ++i) offers[i] = Offer{{i}, 128 * i, 0, 1.f, {}};
  return *count = 2, 0;
}
API int cublasLtMatmul(void*, void* desc, void const* alpha, void const* a, void* la, void const* b, void* lb,
                       void const* beta, void const* c, void*, void* out, void* lo, void const* algorithm, void* workspace,
                       size_t bytes, void*) {
  Desc const& d = *static_cast<Desc*>(desc);
  Layout const &x = *static_cast<Layout*>(la), &y = *static_cast<Layout*>(lb), &z = *static_cast<Layout*>(lo);
  if (*static_cast<uint64_t const*>(algorithm) != 1 || bytes != 128 || !workspace) return 7;
  uint64_t const depth = d.trans_a ? x.rows : x.columns;
  for (int batch = 0; batch < z.batch; ++batch)
    for (uint64_t i = 0; i < z.rows; ++i)
      for (uint64_t j = 0; j < z.columns; ++j) {
        float total = 0;
        for (uint64_t k = 0; k < depth; ++k)
          total += number(a, x.type, batch * x.stride + (d.trans_a ? i * x.leading + k : k * x.leading + i)) *
                   number(b, y.type, batch * y.stride + (d.trans_b ? k * y.leading + j : j * y.leading + k));
        int64_t const at = batch * z.stride + j * z.leading + i;
        total = *static_cast<float const*>(alpha) * total;
        float const factor = *static_cast<float const*>(beta);
        if (factor != 0.f) total += factor * number(c, z.type, at);
        if (d.epilogue & 4) total += number(d.bias, z.type, i);
        if (d.epilogue & 2) total = total > 0.f ? total : 0.f;
        if (z.type == 2)
          static_cast<__half*>(out)[at] = __float2half(total);
        else
          static_cast<float*>(out)[at] = total;
      }
  return 0;
}
