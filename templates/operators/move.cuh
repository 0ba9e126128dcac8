// Concat, gather and pad: kernels that only move elements.
#pragma once
#include "common.cuh"

namespace bolt {
namespace op {

template <class T, int COUNT>
struct Sources {
  T const* from[COUNT];
};

// C: outer, count, common (divides every width), total = sum of widths, width(i), start(i). Each thread moves one vector.
template <class C, class T>
__global__ void __launch_bounds__(256) concat_kernel(Sources<T, C::count> sources, T* y) {
  constexpr int kWidth = width<T>(C::common);
  unsigned const thread = blockIdx.x * 256u + threadIdx.x;
  wait_for_producers();
  if (thread >= unsigned(C::outer) * unsigned(C::total / kWidth)) return;
  int const column = int(thread % unsigned(C::total / kWidth)) * kWidth;
  size_t const row = thread / unsigned(C::total / kWidth);
  T const* from = nullptr;
#pragma unroll
  for (int i = 0; i < C::count; ++i)
    if (column >= C::start(i)) from = sources.from[i] + row * C::width(i) + (column - C::start(i));
  store(y + size_t(thread) * kWidth, load<kWidth>(from));
}

template <class C, class T>
int concat(Sources<T, C::count> sources, T* y, cudaStream_t stream, bool pdl) {
  constexpr unsigned kTotal = unsigned(C::outer) * unsigned(C::total / width<T>(C::common));
  return launch(concat_kernel<C, T>, ceil_div(kTotal, 256), 256, stream, pdl, sources, y);
}

// C: outer, axis, inner, count. An index outside [-axis, axis) reads the nearest element: memory stays safe.
template <class C, class T, class I>
__global__ void __launch_bounds__(256) gather_kernel(T const* x, I const* indices, T* y) {
  constexpr int kWidth = width<T>(C::inner);
  constexpr unsigned kVectors = C::inner / kWidth;
  unsigned const thread = blockIdx.x * 256u + threadIdx.x;
  wait_for_producers();
  if (thread >= unsigned(C::outer) * C::count * kVectors) return;
  unsigned const rest = thread / kVectors;
  long long index = (long long)indices[rest % unsigned(C::count)];
  index += index < 0 ? C::axis : 0;
  index = index < 0 ? 0 : index >= C::axis ? C::axis - 1 : index;
  size_t const row = size_t(rest / unsigned(C::count)) * C::axis + size_t(index);
  store(y + size_t(thread) * kWidth, load<kWidth>(x + row * C::inner + (thread % kVectors) * kWidth));
}

template <class C, class T, class I>
int gather(T const* x, I const* indices, T* y, cudaStream_t stream, bool pdl) {
  constexpr unsigned kTotal = unsigned(C::outer) * C::count * (C::inner / width<T>(C::inner));
  return launch(gather_kernel<C, T, I>, ceil_div(kTotal, 256), 256, stream, pdl, x, indices, y);
}

enum class PadMode { kConstant, kEdge, kReflect };

// C: mode, rank, elements (of the result), extent(i), before(i), after(i) and value(). One thread makes one element.
template <class C, class T, class U>
__global__ void __launch_bounds__(256) pad_kernel(T const* x, U* y) {
  unsigned const thread = blockIdx.x * 256u + threadIdx.x;
  wait_for_producers();
  if (thread >= unsigned(C::elements)) return;
  unsigned rest = thread, place = 0, step = 1;
  bool inside = true;
#pragma unroll
  for (int d = C::rank - 1; d >= 0; --d) {
    int const extent = C::extent(d), grown = extent + C::before(d) + C::after(d);
    int i = int(rest % unsigned(grown)) - C::before(d);
    rest /= unsigned(grown);
    if (C::mode == PadMode::kConstant) inside = inside && i >= 0 && i < extent;
    if (C::mode == PadMode::kEdge) i = i < 0 ? 0 : i >= extent ? extent - 1 : i;
    if (C::mode == PadMode::kReflect) i = i < 0 ? -i : i >= extent ? 2 * (extent - 1) - i : i;
    place += unsigned(i) * step;
    step *= unsigned(extent);
  }
  y[thread] = inside ? convert<U>(x[place]) : To<U>::from(C::value());
}

template <class C, class T, class U>
int pad(T const* x, U* y, cudaStream_t stream, bool pdl) {
  return launch(pad_kernel<C, T, U>, ceil_div(C::elements, 256), 256, stream, pdl, x, y);
}

}  // namespace op
}  // namespace bolt
