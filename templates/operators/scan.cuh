// Running sums down the middle of (outer, axis, inner), in float32 or 64-bit integers.
#pragma once
#include "common.cuh"

namespace bolt {
namespace op {

// C: outer, axis, inner, exclusive, reverse. One thread walks one column.
template <class C, class T, class U>
__global__ void __launch_bounds__(256) cum_sum_kernel(T const* x, U* y) {
  using Total = typename std::conditional<std::is_integral<T>::value, long long, float>::type;
  unsigned const thread = blockIdx.x * 256u + threadIdx.x;
  wait_for_producers();
  if (thread >= unsigned(C::outer) * C::inner) return;
  size_t const base = size_t(thread / unsigned(C::inner)) * C::axis * C::inner + thread % unsigned(C::inner);
  Total total = 0;
  for (int i = 0; i < C::axis; ++i) {
    size_t const place = base + size_t(C::reverse ? C::axis - 1 - i : i) * C::inner;
    Total const own = convert<Total>(x[place]);
    y[place] = convert<U>(C::exclusive ? total : total + own);
    total += own;
  }
}

template <class C, class T, class U>
int cum_sum(T const* x, U* y, cudaStream_t stream, bool pdl) {
  return launch(cum_sum_kernel<C, T, U>, ceil_div(unsigned(C::outer) * C::inner, 256), 256, stream, pdl, x, y);
}

}  // namespace op
}  // namespace bolt
