// Reductions of the middle of (outer, axis, inner), and the position of the largest or least element.
#pragma once
#include "common.cuh"

namespace bolt {
namespace op {

enum class ReduceKind { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kSumSquare };

template <ReduceKind K>
struct Reducer {
  __device__ static constexpr float start() {
    return K == ReduceKind::kMax ? -INFINITY : K == ReduceKind::kMin ? INFINITY : K == ReduceKind::kProd ? 1.f : 0.f;
  }
  __device__ static float take(float x) {
    if (K == ReduceKind::kL1) return fabsf(x);
    return K == ReduceKind::kL2 || K == ReduceKind::kSumSquare ? x * x : x;
  }
  __device__ float operator()(float a, float b) const {
    if (K == ReduceKind::kMax) return larger(a, b);
    if (K == ReduceKind::kMin) return smaller(a, b);
    return K == ReduceKind::kProd ? a * b : a + b;
  }
  __device__ static float finish(float x, int count) {
    if (K == ReduceKind::kMean) return x / float(count);
    return K == ReduceKind::kL2 ? sqrtf(x) : x;
  }
};

// C: kind, outer, axis, inner with inner = 1: a warp or a block for each row.
template <class C, class T, class U>
__global__ void __launch_bounds__(row_threads(C::axis) < 256 ? 256 : row_threads(C::axis))
    reduce_rows_kernel(T const* x, U* y) {
  constexpr int kThreads = row_threads(C::axis);
  constexpr int kRows = kThreads < 256 ? 256 / kThreads : 1;
  unsigned const row = blockIdx.x * kRows + threadIdx.x / kThreads;
  wait_for_producers();
  if (row >= unsigned(C::outer)) return;  // whole warps, or (kRows = 1) nobody
  using R = Reducer<C::kind>;
  Row<T, C::axis, kThreads> const in(x + size_t(row) * C::axis, int(threadIdx.x) % kThreads);
  float total = R::start();
  in.each([&](int, auto const& v) {
#pragma unroll
    for (auto const& e : v.v) total = R()(total, R::take(to_float(e)));
  });
  total = reduce_threads<kThreads>(total, R());
  if (threadIdx.x % kThreads == 0) y[row] = To<U>::from(R::finish(total, C::axis));
}

// inner > 1: threads along x take a vector of inner elements each, threads along y share the axis. Few along x, 128
// bytes, so that one image with 1000 channels still gives every SM something.
template <class C, class T>
__host__ __device__ constexpr int column_threads() {
  return C::inner / width<T>(C::inner) >= 8 ? 8 : 4;
}

template <class C, class T, class U>
__global__ void __launch_bounds__(256) reduce_columns_kernel(T const* x, U* y) {
  constexpr int kWidth = width<T>(C::inner);
  constexpr int kVectors = C::inner / kWidth;
  constexpr int kX = column_threads<C, T>();
  constexpr int kY = 256 / kX;
  constexpr unsigned kBlocks = ceil_div(kVectors, kX);
  __shared__ float partial[kY][kX * kWidth];
  using R = Reducer<C::kind>;
  int const lane = int(threadIdx.x) % kX, group = int(threadIdx.x) / kX;
  int const vector = int(blockIdx.x % kBlocks) * kX + lane;
  size_t const outer = blockIdx.x / kBlocks;
  float total[kWidth];
#pragma unroll
  for (int j = 0; j < kWidth; ++j) total[j] = R::start();
  wait_for_producers();
  if (vector < kVectors) {
    T const* const column = x + outer * C::axis * C::inner + vector * kWidth;
#pragma unroll 4
    for (int i = group; i < C::axis; i += kY) {
      Vec<T, kWidth> const in = load<kWidth>(column + size_t(i) * C::inner);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) total[j] = R()(total[j], R::take(to_float(in.v[j])));
    }
  }
#pragma unroll
  for (int j = 0; j < kWidth; ++j) partial[group][lane * kWidth + j] = total[j];
  __syncthreads();
  for (int e = int(threadIdx.x); e < kX * kWidth; e += 256) {
    int const column = int(blockIdx.x % kBlocks) * kX * kWidth + e;
    if (column >= C::inner) continue;
    float all = partial[0][e];
    for (int g = 1; g < kY; ++g) all = R()(all, partial[g][e]);
    y[outer * C::inner + column] = To<U>::from(R::finish(all, C::axis));
  }
}

template <class C, class T, class U>
int reduce(T const* x, U* y, cudaStream_t stream, bool pdl) {
  if constexpr (C::inner == 1) {
    constexpr int kThreads = row_threads(C::axis);
    constexpr int kRows = kThreads < 256 ? 256 / kThreads : 1;
    return launch(reduce_rows_kernel<C, T, U>, ceil_div(C::outer, kRows), kThreads * kRows, stream, pdl, x, y);
  } else {
    constexpr int kVectors = C::inner / width<T>(C::inner);
    constexpr int kX = column_threads<C, T>();
    return launch(reduce_columns_kernel<C, T, U>, C::outer * ceil_div(kVectors, kX), 256, stream, pdl, x, y);
  }
}

// C: largest, last, outer, axis, inner. One thread walks one column.
template <class C, class T>
__global__ void __launch_bounds__(256) arg_reduce_kernel(T const* x, int64_t* y) {
  unsigned const thread = blockIdx.x * 256u + threadIdx.x;
  wait_for_producers();
  if (thread >= unsigned(C::outer) * C::inner) return;
  T const* const column = x + size_t(thread / unsigned(C::inner)) * C::axis * C::inner + thread % unsigned(C::inner);
  int best = 0;
  T value = column[0];
  for (int i = 1; i < C::axis; ++i) {
    T const v = column[size_t(i) * C::inner];
    bool const better = C::largest ? v > value : v < value;
    if (better || (C::last && v == value)) {
      best = i;
      value = v;
    }
  }
  y[thread] = best;
}

template <class C, class T>
int arg_reduce(T const* x, int64_t* y, cudaStream_t stream, bool pdl) {
  return launch(arg_reduce_kernel<C, T>, ceil_div(unsigned(C::outer) * C::inner, 256), 256, stream, pdl, x, y);
}

}  // namespace op
}  // namespace bolt
