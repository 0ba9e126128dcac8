// The k largest or least elements of every row and their positions; of equal ones the first.
//
// One block sorts a row in shared memory (bitonic: Batcher 1968). A row longer than kSorted is taken in parts: the best
// half so far stays in front, the next part comes in behind it, and all is sorted again.
#pragma once
#include "common.cuh"

namespace bolt {
namespace op {

constexpr int kSortedMost = 4096;  // 48 KB of shared memory with 8-byte elements
constexpr int kNobody = 0x7fffffff;

__host__ __device__ constexpr int power_of_two(int n) {
  int p = 1;
  while (p < n) p *= 2;
  return p;
}

template <bool LARGEST, class T>
__device__ __forceinline__ bool goes_before(T a, int at_a, T b, int at_b) {
  if (at_a == kNobody || at_b == kNobody) return at_b == kNobody && at_a != kNobody;
  bool above, below;
  if constexpr (std::is_integral<T>::value) {
    above = a > b, below = a < b;
  } else {
    above = to_float(a) > to_float(b), below = to_float(a) < to_float(b);
  }
  if (LARGEST ? above : below) return true;
  return (LARGEST ? below : above) ? false : at_a < at_b;
}

template <class C>
struct Sorting {
  static constexpr bool kWhole = C::columns <= kSortedMost;
  static constexpr int kSorted = kWhole ? power_of_two(C::columns < 2 ? 2 : C::columns) : kSortedMost;
  static constexpr int kThreads = kSorted / 2 < 32 ? 32 : kSorted / 2 > 1024 ? 1024 : kSorted / 2;
  static_assert(kWhole || C::k <= kSorted / 2, "the best half of what is sorted must hold k elements");
};

// C: rows, columns, k, largest. values and positions are (rows, k).
template <class C, class T, class U>
__global__ void __launch_bounds__(Sorting<C>::kThreads) top_k_kernel(T const* x, U* values, int64_t* positions) {
  using S = Sorting<C>;
  __shared__ T key[S::kSorted];
  __shared__ int at[S::kSorted];
  int const me = int(threadIdx.x);
  T const* const row = x + size_t(blockIdx.x) * C::columns;
  wait_for_producers();
  int loaded = 0;
  for (int first = 0; loaded < C::columns; first = S::kSorted / 2) {
    for (int i = first + me; i < S::kSorted; i += S::kThreads) {
      int const column = loaded + i - first;
      at[i] = column < C::columns ? column : kNobody;
      if (column < C::columns) key[i] = row[column];
    }
    loaded += S::kSorted - first;
    __syncthreads();
    for (int size = 2; size <= S::kSorted; size *= 2) {
      for (int step = size / 2; step > 0; step /= 2) {
        for (int pair = me; pair < S::kSorted / 2; pair += S::kThreads) {
          int const i = pair / step * 2 * step + pair % step, j = i + step;
          bool const forward = (i & size) == 0;
          if (goes_before<C::largest>(key[j], at[j], key[i], at[i]) == forward) {
            T const k = key[i];
            key[i] = key[j];
            key[j] = k;
            int const a = at[i];
            at[i] = at[j];
            at[j] = a;
          }
        }
        __syncthreads();
      }
    }
  }
  for (int i = me; i < C::k; i += S::kThreads) {
    values[size_t(blockIdx.x) * C::k + i] = convert<U>(key[i]);
    positions[size_t(blockIdx.x) * C::k + i] = at[i];
  }
}

template <class C, class T, class U>
int top_k(T const* x, U* values, int64_t* positions, cudaStream_t stream, bool pdl) {
  return launch(top_k_kernel<C, T, U>, C::rows, Sorting<C>::kThreads, stream, pdl, x, values, positions);
}

}  // namespace op
}  // namespace bolt
