// Resampling along any dimensions: an output element is a weighted sum of taps, whose places and weights the exporter
// has worked out for every output index of every resized dimension (core.export.resampling).
#pragma once
#include "common.cuh"

namespace bolt {
namespace op {

// C: rank, extent(d) of y, size(d) of x, taps(d), start(d) of the dimension's tables (-1: not resized), all_taps (the
// product), width (elements of an access along the innermost dimension, 1 where that is resized), elements (of y).
template <class C, class T, class U>
__global__ void __launch_bounds__(256) resize_kernel(T const* x, int const* places, float const* weights, U* y) {
  unsigned const thread = blockIdx.x * 256u + threadIdx.x;
  wait_for_producers();
  if (thread >= unsigned(C::elements / C::width)) return;
  unsigned rest = thread * C::width;
  int index[C::rank];
#pragma unroll
  for (int d = C::rank - 1; d >= 0; --d) {
    index[d] = int(rest % unsigned(C::extent(d)));
    rest /= unsigned(C::extent(d));
  }
  float total[C::width] = {};
  Vec<U, C::width> out;
  for (int tap = 0; tap < C::all_taps; ++tap) {
    int left = tap;
    size_t place = 0, step = 1;
    float weight = 1.f;
#pragma unroll
    for (int d = C::rank - 1; d >= 0; --d) {
      int own = index[d];
      if (C::start(d) >= 0) {
        int const entry = C::start(d) + own * C::taps(d) + left % C::taps(d);
        left /= C::taps(d);
        own = places[entry];
        weight *= weights[entry];
      }
      place += size_t(own) * step;
      step *= C::size(d);
    }
    Vec<T, C::width> const in = load<C::width>(x + place);
#pragma unroll
    for (int j = 0; j < C::width; ++j) {
      if constexpr (C::all_taps == 1) {  // nearest: exact, whatever the type
        out.v[j] = convert<U>(in.v[j]);
      } else {
        total[j] += weight * to_float(in.v[j]);
      }
    }
  }
  if constexpr (C::all_taps > 1) {
#pragma unroll
    for (int j = 0; j < C::width; ++j) out.v[j] = To<U>::from(total[j]);
  }
  store(y + size_t(thread) * C::width, out);
}

template <class C, class T, class U>
int resize(T const* x, int const* places, float const* weights, U* y, cudaStream_t stream, bool pdl) {
  return launch(resize_kernel<C, T, U>, ceil_div(C::elements / C::width, 256), 256, stream, pdl, x, places, weights, y);
}

}  // namespace op
}  // namespace bolt
