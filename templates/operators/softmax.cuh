// Softmax and its logarithm along the middle of (outer, axis, inner), in float32.
#pragma once
#include "common.cuh"

namespace bolt {
namespace op {

// C: log, outer, axis, inner and the float scale() > 0, which multiplies the input. The maximum is taken off first: a
// scaled value may lie beyond float32, a scaled difference ends at -inf, whose exponential is 0.
// inner = 1: a warp or a block for each row.
template <class C, class T, class U>
__global__ void __launch_bounds__(row_threads(C::axis) < 256 ? 256 : row_threads(C::axis))
    softmax_rows_kernel(T const* x, U* y) {
  constexpr int kThreads = row_threads(C::axis);
  constexpr int kRows = kThreads < 256 ? 256 / kThreads : 1;
  using Input = Row<T, C::axis, kThreads>;
  constexpr int kWidth = Input::kWidth;
  unsigned const row = blockIdx.x * kRows + threadIdx.x / kThreads;
  wait_for_producers();
  if (row >= unsigned(C::outer)) return;  // whole warps, or (kRows = 1) nobody
  Input const in(x + size_t(row) * C::axis, int(threadIdx.x) % kThreads);
  float top = -INFINITY;
  in.each([&](int, auto const& v) {
#pragma unroll
    for (auto const& e : v.v) top = larger(to_float(e), top);
  });
  top = reduce_threads<kThreads>(top, Largest());
  float total = 0.f;
  in.each([&](int, auto const& v) {
#pragma unroll
    for (auto const& e : v.v) total += __expf((to_float(e) - top) * C::scale());
  });
  total = reduce_threads<kThreads>(total, Sum());
  float const scale = C::log ? logf(total) : 1.f / total;
  U* const out = y + size_t(row) * C::axis;
  in.each([&](int column, auto const& v) {
    Vec<U, kWidth> result;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      float const e = (to_float(v.v[j]) - top) * C::scale();
      result.v[j] = To<U>::from(C::log ? e - scale : __expf(e) * scale);
    }
    store(out + column, result);
  });
}

// inner > 1: one thread walks one column, neighbours in a warp read neighbouring columns.
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
  if constexpr (C::inner == 1) {
    constexpr int kThreads = row_threads(C::axis);
    constexpr int kRows = kThreads < 256 ? 256 / kThreads : 1;
    return launch(softmax_rows_kernel<C, T, U>, ceil_div(C::outer, kRows), kThreads * kRows, stream, pdl, x, y);
  } else {
    constexpr unsigned kTotal = unsigned(C::outer) * C::inner;
    return launch(softmax_columns_kernel<C, T, U>, ceil_div(kTotal, 256), 256, stream, pdl, x, y);
  }
}

}  // namespace op
}  // namespace bolt
