// Local response normalisation across channels, channels-last.
#pragma once
#include "common.cuh"

namespace bolt {
namespace op {

// C: pixels, c, size and the floats alpha(), beta(), bias().
template <class C, class T, class U>
__global__ void __launch_bounds__(256) lrn_kernel(T const* x, U* y) {
  constexpr int kWidth = width<T>(C::c);
  constexpr int kBefore = (C::size - 1) / 2, kAfter = C::size / 2;
  constexpr unsigned kTotal = unsigned(C::pixels) * (C::c / kWidth);
  unsigned const thread = blockIdx.x * 256u + threadIdx.x;
  wait_for_producers();
  if (thread >= kTotal) return;
  int const first = int(thread % unsigned(C::c / kWidth)) * kWidth;
  T const* const pixel = x + size_t(thread / unsigned(C::c / kWidth)) * C::c;
  float window[kBefore + kWidth + kAfter];
#pragma unroll
  for (int j = 0; j < kBefore + kWidth + kAfter; ++j) {
    int const channel = first - kBefore + j;
    window[j] = channel >= 0 && channel < C::c ? to_float(pixel[channel]) : 0.f;
  }
  Vec<U, kWidth> out;
#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    float squares = 0.f;
#pragma unroll
    for (int i = 0; i < C::size; ++i) squares += window[j + i] * window[j + i];
    float const base = C::bias() + C::alpha() / float(C::size) * squares;
    out.v[j] = To<U>::from(window[j + kBefore] * powf(base, -C::beta()));
  }
  store(y + size_t(thread) * kWidth, out);
}

template <class C, class T, class U>
int lrn(T const* x, U* y, cudaStream_t stream, bool pdl) {
  constexpr unsigned kTotal = unsigned(C::pixels) * (C::c / width<T>(C::c));
  return launch(lrn_kernel<C, T, U>, ceil_div(kTotal, 256), 256, stream, pdl, x, y);
}

}  // namespace op
}  // namespace bolt
