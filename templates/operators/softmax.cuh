// Softmax and its logarithm down the columns of (outer, axis, inner), inner > 1, in float32. Along rows the exporter
// generates its kernels (core.export.rows_cuda).
#pragma once
#include "common.cuh"

namespace bolt {
namespace op {

// C: log, outer, axis, inner and the float scale() > 0, which multiplies the input. The maximum is taken off first: a
// scaled value may lie beyond float32, a scaled difference ends at -inf, whose exponential is 0. One thread walks one
// column, neighbours in a warp read neighbouring columns.
template <class C, class T, class U>
__global__ void __launch_bounds__(256) softmax_columns_kernel(T const* x, U* y) {
  unsigned const thread = blockIdx.x * 256u + threadIdx.x;
  wait_for_producers();
  if (thread >= unsigned(C::outer) * C::inner) return;
  size_t const base = size_t(thread / unsigned(C::inner)) * C::axis * C::inner + thread % unsigned(C::inner);
  float top = -INFINITY;
  for (int i = 0; i < C::axis; ++i) top = larger(to_float(x[base + size_t(i) * C::inner]), top);
  float total = 0.f;
  for (int i = 0; i < C::axis; ++i) total += __expf((to_float(x[base + size_t(i) * C::inner]) - top) * C::scale());
  float const scale = C::log ? logf(total) : 1.f / total;
  for (int i = 0; i < C::axis; ++i) {
    float const e = (to_float(x[base + size_t(i) * C::inner]) - top) * C::scale();
    y[base + size_t(i) * C::inner] = To<U>::from(C::log ? e - scale : __expf(e) * scale);
  }
}

template <class C, class T, class U>
int softmax(T const* x, U* y, cudaStream_t stream, bool pdl) {
  constexpr unsigned kTotal = unsigned(C::outer) * C::inner;
  return launch(softmax_columns_kernel<C, T, U>, ceil_div(kTotal, 256), 256, stream, pdl, x, y);
}

}  // namespace op
}  // namespace bolt
