// Max and average pooling, channels-last: one thread makes a vector of channels of one output pixel.
#pragma once
#include "common.cuh"

namespace bolt {
namespace op {

enum class PoolKind { kMax, kAverage, kAveragePadded };

// Element `i` of the window of an output pixel, and the element of the input nearest to it.
template <class C>
struct Tap {
  int at[3];
  __device__ __forceinline__ Tap(int const (&pixel)[3], int i) {
    int const window[3] = {i / (C::kernel(1) * C::kernel(2)), i / C::kernel(2) % C::kernel(1), i % C::kernel(2)};
#pragma unroll
    for (int d = 0; d < 3; ++d) at[d] = pixel[d] * C::stride(d) - C::before(d) + window[d] * C::dilation(d);
  }
  __device__ __forceinline__ bool inside() const {
    bool all = true;
#pragma unroll
    for (int d = 0; d < 3; ++d) all = all && at[d] >= 0 && at[d] < C::size(d);
    return all;
  }
  // Inside the input and its padding: a window may run past both (ceil_mode).
  __device__ __forceinline__ bool padded() const {
    bool all = true;
#pragma unroll
    for (int d = 0; d < 3; ++d) all = all && at[d] < C::size(d) + C::after(d);
    return all;
  }
  __device__ __forceinline__ int nearest() const {
    int place = 0;
#pragma unroll
    for (int d = 0; d < 3; ++d) place = place * C::size(d) + (at[d] < 0 ? 0 : at[d] < C::size(d) ? at[d] : C::size(d) - 1);
    return place;
  }
};

// C: kind, n, c, and for each of three spatial dimensions size, result, kernel, stride, dilation, before, after.
template <class C, class T, class U>
__global__ void __launch_bounds__(256) pool_kernel(T const* x, U* y) {
  constexpr int kWidth = width<T>(C::c);
  constexpr unsigned kTotal = unsigned(C::n) * C::result(0) * C::result(1) * C::result(2) * (C::c / kWidth);
  unsigned const thread = blockIdx.x * 256u + threadIdx.x;
  wait_for_producers();
  if (thread >= kTotal) return;
  unsigned rest = thread;
  int const channel = int(rest % unsigned(C::c / kWidth)) * kWidth;
  rest /= unsigned(C::c / kWidth);
  int pixel[3];
#pragma unroll
  for (int d = 2; d >= 0; --d) {
    pixel[d] = int(rest % unsigned(C::result(d)));
    rest /= unsigned(C::result(d));
  }
  float total[kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) total[j] = C::kind == PoolKind::kMax ? -INFINITY : 0.f;
  int count = 0;
  T const* const image = x + size_t(rest) * C::size(0) * C::size(1) * C::size(2) * C::c + channel;
  // The window, or a row of it, is loaded before it is used, so that its elements wait for memory together.
  constexpr int kLine = C::kernel(2), kAll = C::kernel(0) * C::kernel(1) * kLine;
  constexpr int kTaps = kAll <= 16 ? kAll : kLine <= 16 ? kLine : 1;
  for (int first = 0; first < kAll; first += kTaps) {
    Vec<T, kWidth> in[kTaps];
#pragma unroll
    for (int i = 0; i < kTaps; ++i) {
      in[i] = load<kWidth>(image + Tap<C>(pixel, first + i).nearest() * C::c);
    }
#pragma unroll
    for (int i = 0; i < kTaps; ++i) {
      Tap<C> const tap(pixel, first + i);
      if (C::kind == PoolKind::kAveragePadded) count += tap.padded();
      if (!tap.inside()) continue;
      if (C::kind == PoolKind::kAverage) ++count;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        float const v = to_float(in[i].v[j]);
        total[j] = C::kind == PoolKind::kMax ? larger(v, total[j]) : total[j] + v;
      }
    }
  }
  Vec<U, kWidth> out;
  float const scale = C::kind == PoolKind::kMax ? 1.f : 1.f / float(count);
#pragma unroll
  for (int j = 0; j < kWidth; ++j) out.v[j] = To<U>::from(total[j] * scale);
  store(y + size_t(thread) * kWidth, out);
}

template <class C, class T, class U>
int pool(T const* x, U* y, cudaStream_t stream, bool pdl) {
  constexpr unsigned kPixels = unsigned(C::result(0)) * C::result(1) * C::result(2);
  constexpr unsigned kTotal = C::n * kPixels * (C::c / width<T>(C::c));
  return launch(pool_kernel<C, T, U>, ceil_div(kTotal, 256), 256, stream, pdl, x, y);
}

}  // namespace op
}  // namespace bolt
