// Operators whose reads or writes are decided by data: GatherElements, GatherND, ScatterElements, ScatterND. Row-major.
//
// An index outside its dimension touches the nearest element: memory stays safe.
#pragma once
#include "common.cuh"

namespace bolt {
namespace op {

template <class I>
__device__ __forceinline__ int clamped(I given, int extent) {
  long long index = (long long)given;
  index += index < 0 ? extent : 0;
  return int(index < 0 ? 0 : index >= extent ? extent - 1 : index);
}

// C: rank, axis, extent(d) of the indices and the result, size(d) of x. One thread makes one element.
template <class C, class T, class I>
__global__ void __launch_bounds__(256) gather_elements_kernel(T const* x, I const* indices, T* y) {
  unsigned const thread = blockIdx.x * 256u + threadIdx.x;
  wait_for_producers();
  if (thread >= unsigned(C::elements)) return;
  unsigned rest = thread;
  size_t place = 0, step = 1;
#pragma unroll
  for (int d = C::rank - 1; d >= 0; --d) {
    int const own = int(rest % unsigned(C::extent(d)));
    rest /= unsigned(C::extent(d));
    place += size_t(d == C::axis ? clamped(indices[thread], C::size(d)) : own) * step;
    step *= C::size(d);
  }
  y[thread] = x[place];
}

template <class C, class T, class I>
int gather_elements(T const* x, I const* indices, T* y, cudaStream_t stream, bool pdl) {
  return launch(gather_elements_kernel<C, T, I>, ceil_div(C::elements, 256), 256, stream, pdl, x, indices, y);
}

// C: depth and size(d), the indexed dimensions. The element that a tuple of indices names, counted in slices.
template <class C, class I>
__device__ __forceinline__ size_t slice_of(I const* tuple) {
  size_t place = 0;
#pragma unroll
  for (int d = 0; d < C::depth; ++d) place = place * C::size(d) + clamped(tuple[d], C::size(d));
  return place;
}

// C: batch, tuples, depth, inner, slices (product of the sizes), size(d): y (batch, tuples, inner) <- x (batch, slices,
// inner). One thread moves one vector.
template <class C, class T, class I>
__global__ void __launch_bounds__(256) gather_nd_kernel(T const* x, I const* indices, T* y) {
  constexpr int kWidth = width<T>(C::inner);
  constexpr unsigned kVectors = C::inner / kWidth;
  unsigned const thread = blockIdx.x * 256u + threadIdx.x;
  wait_for_producers();
  if (thread >= unsigned(C::batch) * C::tuples * kVectors) return;
  unsigned const tuple = thread / kVectors;
  size_t const slice = size_t(tuple / unsigned(C::tuples)) * C::slices + slice_of<C>(indices + size_t(tuple) * C::depth);
  store(y + size_t(thread) * kWidth, load<kWidth>(x + slice * C::inner + (thread % kVectors) * kWidth));
}

template <class C, class T, class I>
int gather_nd(T const* x, I const* indices, T* y, cudaStream_t stream, bool pdl) {
  constexpr unsigned kTotal = unsigned(C::batch) * C::tuples * (C::inner / width<T>(C::inner));
  return launch(gather_nd_kernel<C, T, I>, ceil_div(kTotal, 256), 256, stream, pdl, x, indices, y);
}

enum class Combine { kNone, kAdd, kMul, kMax, kMin };

template <Combine K, class T>
__device__ __forceinline__ T combined(T old, T update) {
  if constexpr (K == Combine::kNone) {
    return update;
  } else if constexpr (std::is_same<T, bool>::value) {
    return K == Combine::kAdd || K == Combine::kMax ? old || update : old && update;
  } else if constexpr (std::is_integral<T>::value || std::is_same<T, double>::value) {
    if (K == Combine::kAdd) return T(old + update);
    if (K == Combine::kMul) return T(old * update);
    return (K == Combine::kMax ? old > update : old < update) ? old : update;
  } else {
    float const a = to_float(old), b = to_float(update);
    return To<T>::from(K == Combine::kAdd ? a + b : K == Combine::kMul ? a * b : K == Combine::kMax ? larger(a, b) : smaller(a, b));
  }
}

// A scatter starts from a copy of the data.
template <int ELEMENTS, class T>
__global__ void __launch_bounds__(256) copy_kernel(T const* x, T* y) {
  constexpr int kWidth = width<T>(ELEMENTS);
  unsigned const thread = blockIdx.x * 256u + threadIdx.x;
  wait_for_producers();
  if (thread >= unsigned(ELEMENTS / kWidth)) return;
  store(y + size_t(thread) * kWidth, load<kWidth>(x + size_t(thread) * kWidth));
}
template <int ELEMENTS, class T>
int copy(T const* x, T* y, cudaStream_t stream, bool pdl) {
  return launch(copy_kernel<ELEMENTS, T>, ceil_div(ELEMENTS / width<T>(ELEMENTS), 256), 256, stream, pdl, x, y);
}

// C: rank, axis, elements (of the data), columns (indices / their extent along axis), extent(d) of indices and updates,
// size(d) of the data, combine. One thread walks one column along the axis: updates of one element can't race.
template <class C, class T, class I>
__global__ void __launch_bounds__(256) scatter_elements_kernel(I const* indices, T const* updates, T* y) {
  unsigned const thread = blockIdx.x * 256u + threadIdx.x;
  wait_for_producers();
  if (thread >= unsigned(C::columns)) return;
  unsigned rest = thread;
  size_t from = 0, to = 0, from_step = 1, to_step = 1, from_axis = 0, to_axis = 0;
#pragma unroll
  for (int d = C::rank - 1; d >= 0; --d) {
    if (d == C::axis) {
      from_axis = from_step;
      to_axis = to_step;
    } else {
      unsigned const own = rest % unsigned(C::extent(d));
      rest /= unsigned(C::extent(d));
      from += own * from_step;
      to += own * to_step;
    }
    from_step *= C::extent(d);
    to_step *= C::size(d);
  }
  for (int i = 0; i < C::extent(C::axis); ++i, from += from_axis) {
    T& target = y[to + clamped(indices[from], C::size(C::axis)) * to_axis];
    target = combined<C::combine>(target, updates[from]);
  }
}

template <class C, class T, class I>
int scatter_elements(T const* x, I const* indices, T const* updates, T* y, cudaStream_t stream, bool pdl) {
  int const status = copy<C::elements>(x, y, stream, pdl);
  if (status) return status;
  return launch(scatter_elements_kernel<C, T, I>, ceil_div(C::columns, 256), 256, stream, pdl, indices, updates, y);
}

// C: elements, tuples, depth, inner, size(d), combine. Without a combination every element of the updates has a thread;
// with one a thread walks all tuples for its element of a slice, so that updates of one element can't race.
template <class C, class T, class I>
__global__ void __launch_bounds__(256) scatter_nd_kernel(I const* indices, T const* updates, T* y) {
  constexpr bool kApart = C::combine == Combine::kNone;
  unsigned const thread = blockIdx.x * 256u + threadIdx.x;
  wait_for_producers();
  if (thread >= unsigned(C::inner) * (kApart ? C::tuples : 1)) return;
  unsigned const lane = thread % unsigned(C::inner);
  unsigned const first = kApart ? thread / unsigned(C::inner) : 0, end = kApart ? first + 1 : C::tuples;
  for (unsigned tuple = first; tuple < end; ++tuple) {
    T& target = y[slice_of<C>(indices + size_t(tuple) * C::depth) * C::inner + lane];
    target = combined<C::combine>(target, updates[size_t(tuple) * C::inner + lane]);
  }
}

template <class C, class T, class I>
int scatter_nd(T const* x, I const* indices, T const* updates, T* y, cudaStream_t stream, bool pdl) {
  constexpr unsigned kTotal = unsigned(C::inner) * (C::combine == Combine::kNone ? C::tuples : 1);
  int const status = copy<C::elements>(x, y, stream, pdl);
  if (status) return status;
  return launch(scatter_nd_kernel<C, T, I>, ceil_div(kTotal, 256), 256, stream, pdl, indices, updates, y);
}

}  // namespace op
}  // namespace bolt
