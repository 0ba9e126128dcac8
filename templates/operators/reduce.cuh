// Reductions of the middle of (outer, axis, inner), inner > 1, and the position of the largest or least element. Along
// rows (inner = 1) the exporter generates its kernels (core.export.rows_cuda).
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

// C: kind, outer, axis, inner. Threads along x take a vector of inner elements each, threads along y share the axis. Few along x, 128
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
  constexpr int kVectors = C::inner / width<T>(C::inner);
  constexpr int kX = column_threads<C, T>();
  return launch(reduce_columns_kernel<C, T, U>, C::outer * ceil_div(kVectors, kX), 256, stream, pdl, x, y);
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
