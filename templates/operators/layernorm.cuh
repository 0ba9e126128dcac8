// Layer normalisation of rows, mean and variance in float32 over values held in registers.
#pragma once
#include "common.cuh"

namespace bolt {
namespace op {

// C: rows, columns, has_bias and the float epsilon(). scale and bias are float[columns].
template <class C, class T, class U>
__global__ void __launch_bounds__(row_threads(C::columns) < 256 ? 256 : row_threads(C::columns))
    layer_norm_kernel(T const* x, float const* scale, float const* bias, U* y) {
  constexpr int kThreads = row_threads(C::columns);
  constexpr int kRows = kThreads < 256 ? 256 / kThreads : 1;
  using Input = Row<T, C::columns, kThreads>;
  constexpr int kWidth = Input::kWidth;
  unsigned const row = blockIdx.x * kRows + threadIdx.x / kThreads;
  wait_for_producers();
  if (row >= unsigned(C::rows)) return;  // whole warps, or (kRows = 1) nobody
  Input const in(x + size_t(row) * C::columns, int(threadIdx.x) % kThreads);
  float total = 0.f;
  in.each([&](int, auto const& v) {
#pragma unroll
    for (auto const& e : v.v) total += to_float(e);
  });
  float const mean = reduce_threads<kThreads>(total, Sum()) / float(C::columns);
  float squares = 0.f;
  in.each([&](int, auto const& v) {
#pragma unroll
    for (auto const& e : v.v) squares += (to_float(e) - mean) * (to_float(e) - mean);
  });
  float const variance = reduce_threads<kThreads>(squares, Sum()) / float(C::columns);
  float const factor = rsqrtf(variance + C::epsilon());
  U* const out = y + size_t(row) * C::columns;
  in.each([&](int column, auto const& v) {
    Vec<float, kWidth> const s = load<kWidth>(scale + column);
    Vec<float, kWidth> b{};
    if constexpr (C::has_bias) b = load<kWidth>(bias + column);
    Vec<U, kWidth> result;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) result.v[j] = To<U>::from((to_float(v.v[j]) - mean) * factor * s.v[j] + b.v[j]);
    store(out + column, result);
  });
}

template <class C, class T, class U>
int layer_norm(T const* x, float const* scale, float const* bias, U* y, cudaStream_t stream, bool pdl) {
  constexpr int kThreads = row_threads(C::columns);
  constexpr int kRows = kThreads < 256 ? 256 / kThreads : 1;
  return launch(layer_norm_kernel<C, T, U>, ceil_div(C::rows, kRows), kThreads * kRows, stream, pdl, x, scale, bias, y);
}

}  // namespace op
}  // namespace bolt
