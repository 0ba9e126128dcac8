// A direct convolution for what no template serves: channels-last, float32 accumulation, one output element a thread.
#pragma once
#include "bolt/activations.h"
#include "common.cuh"

namespace bolt {
namespace op {

// C: n, h, w, c, k, r, s, p, q, top, left, stride_h, stride_w, dilation_h, dilation_w, groups and the type Chain.
template <class C, class T, class U>
__global__ void __launch_bounds__(256)
    conv_kernel(T const* x, T const* weight, T const* bias, U const* source, U* y) {
  constexpr int kChannels = C::c / C::groups;
  unsigned const thread = blockIdx.x * 256u + threadIdx.x;
  wait_for_producers();
  if (thread >= unsigned(C::n) * C::p * C::q * C::k) return;
  unsigned rest = thread;
  int const k = int(rest % unsigned(C::k));
  rest /= unsigned(C::k);
  int const q = int(rest % unsigned(C::q));
  rest /= unsigned(C::q);
  int const p = int(rest % unsigned(C::p));
  int const n = int(rest / unsigned(C::p));
  T const* const image = x + size_t(n) * C::h * C::w * C::c + k / (C::k / C::groups) * kChannels;
  T const* const filter = weight + size_t(k) * C::r * C::s * kChannels;
  float total = 0.f;
  for (int r = 0; r < C::r; ++r) {
    int const row = p * C::stride_h - C::top + r * C::dilation_h;
    if (row < 0 || row >= C::h) continue;
    for (int s = 0; s < C::s; ++s) {
      int const column = q * C::stride_w - C::left + s * C::dilation_w;
      if (column < 0 || column >= C::w) continue;
      T const* const a = image + (size_t(row) * C::w + column) * C::c;
      T const* const b = filter + (r * C::s + s) * kChannels;
      for (int c = 0; c < kChannels; ++c) total += to_float(a[c]) * to_float(b[c]);
    }
  }
  float const shift = C::Chain::kBias ? to_float(bias[k]) : 0.f;
  float const other = C::Chain::kSource ? to_float(source[thread]) : 0.f;
  y[thread] = To<U>::from(C::Chain::apply(total, shift, other));
}

template <class C, class T, class U>
int conv(T const* x, T const* weight, T const* bias, U const* source, U* y, cudaStream_t stream, bool pdl) {
  constexpr unsigned kTotal = unsigned(C::n) * C::p * C::q * C::k;
  return launch(conv_kernel<C, T, U>, ceil_div(kTotal, 256), 256, stream, pdl, x, weight, bias, source, y);
}

}  // namespace op
}  // namespace bolt
