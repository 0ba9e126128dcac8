// Max and average pooling, channels-last: one thread makes a vector of channels of one output pixel.
#pragma once
#include "common.cuh"

namespace bolt {
namespace op {

enum class PoolKind { kMax, kAverage, kAveragePadded };

// Element `i` of the window of output (p, q), and the element of the input nearest to it.
template <class C>
struct Tap {
  int row, column;
  __device__ __forceinline__ Tap(int p, int q, int i)
      : row(p * C::stride_h - C::top + i / C::s * C::dilation_h),
        column(q * C::stride_w - C::left + i % C::s * C::dilation_w) {}
  __device__ __forceinline__ bool inside() const { return row >= 0 && row < C::h && column >= 0 && column < C::w; }
  __device__ __forceinline__ int near_row() const { return row < 0 ? 0 : row < C::h ? row : C::h - 1; }
  __device__ __forceinline__ int near_column() const { return column < 0 ? 0 : column < C::w ? column : C::w - 1; }
};

// C: kind, n, h, w, c, p, q, r, s, stride_h, stride_w, dilation_h, dilation_w, top, left, bottom, right.
template <class C, class T, class U>
__global__ void __launch_bounds__(256) pool_kernel(T const* x, U* y) {
  constexpr int kWidth = width<T>(C::c);
  constexpr unsigned kTotal = unsigned(C::n) * C::p * C::q * (C::c / kWidth);
  unsigned const thread = blockIdx.x * 256u + threadIdx.x;
  wait_for_producers();
  if (thread >= kTotal) return;
  unsigned rest = thread;
  int const channel = int(rest % unsigned(C::c / kWidth)) * kWidth;
  rest /= unsigned(C::c / kWidth);
  int const q = int(rest % unsigned(C::q));
  rest /= unsigned(C::q);
  int const p = int(rest % unsigned(C::p));
  int const n = int(rest / unsigned(C::p));
  float total[kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) total[j] = C::kind == PoolKind::kMax ? -INFINITY : 0.f;
  int count = 0;
  T const* const image = x + size_t(n) * C::h * C::w * C::c + channel;
  // The window, or a row of it, is loaded before it is used, so that its elements wait for memory together.
  constexpr int kAll = C::r * C::s, kTaps = kAll <= 16 ? kAll : C::s <= 16 ? C::s : 1;
  for (int first = 0; first < kAll; first += kTaps) {
    Vec<T, kWidth> in[kTaps];
#pragma unroll
    for (int i = 0; i < kTaps; ++i) {
      Tap<C> const tap(p, q, first + i);
      in[i] = load<kWidth>(image + (tap.near_row() * C::w + tap.near_column()) * C::c);
    }
#pragma unroll
    for (int i = 0; i < kTaps; ++i) {
      Tap<C> const tap(p, q, first + i);
      if (C::kind == PoolKind::kAveragePadded) count += tap.row < C::h + C::bottom && tap.column < C::w + C::right;
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
  constexpr unsigned kTotal = unsigned(C::n) * C::p * C::q * (C::c / width<T>(C::c));
  return launch(pool_kernel<C, T, U>, ceil_div(kTotal, 256), 256, stream, pdl, x, y);
}

}  // namespace op
}  // namespace bolt
