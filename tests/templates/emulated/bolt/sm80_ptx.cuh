// Stands for templates/include/bolt/sm80_ptx.cuh on the CPU: copies are over at once, a warp's lanes meet to exchange
// rows and fragments. What each instruction gives to which lane is written from the PTX ISA, not from the kernels.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstring>

#include "cutlass/bfloat16.h"
#include "cutlass/half.h"

namespace bolt::ptx {

inline void warp_meets() { emulator::warp_barriers[threadIdx.x / 32]->arrive_and_wait(); }
inline unsigned char shared_of_lanes[1024][32];

// What each lane of the warp hands in, at hand to all of them until the next exchange.
template <class T, class Use>
void exchange(T const& mine, Use use) {
  static_assert(sizeof(T) <= sizeof shared_of_lanes[0]);
  std::memcpy(shared_of_lanes[threadIdx.x], &mine, sizeof(T));
  warp_meets();
  unsigned const first = threadIdx.x / 32 * 32;
  use([first](int lane) {
    T theirs;
    std::memcpy(&theirs, shared_of_lanes[first + lane], sizeof(T));
    return theirs;
  });
  warp_meets();
}

template <int kBytes>
void copy_async(void* to, void const* from, bool inside) {
  if (reinterpret_cast<uintptr_t>(to) % kBytes || (inside && reinterpret_cast<uintptr_t>(from) % kBytes)) std::abort();
  if (inside) {
    std::memcpy(to, from, kBytes);
  } else {
    std::memset(to, 0, kBytes);
  }
}
inline void copies_commit() {}
template <int kPending>
void copies_wait() {}

inline void load(uint32_t (&m)[4], void const* row, bool transposed) {
  if (reinterpret_cast<uintptr_t>(row) % 16) std::abort();
  int const lane = threadIdx.x % 32;
  exchange(row, [&](auto row_of) {
    for (int i = 0; i < 4; ++i) {
      uint16_t pair[2];
      for (int c = 0; c < 2; ++c) {
        int const y = transposed ? lane % 4 * 2 + c : lane / 4, x = transposed ? lane / 4 : lane % 4 * 2 + c;
        pair[c] = static_cast<uint16_t const*>(row_of(8 * i + y))[x];
      }
      std::memcpy(&m[i], pair, 4);
    }
  });
}
inline void matrices(uint32_t (&m)[4], void const* row) { load(m, row, false); }
inline void matrices_transposed(uint32_t (&m)[4], void const* row) { load(m, row, true); }

template <class Element>
float element(uint32_t pair, int c) {
  Element both[2];
  std::memcpy(both, &pair, 4);
  return float(both[c]);
}

// d (16x8) += a (16x16) b (16x8): a's registers hold (row g, k), (g + 8, k), (g, k + 8), (g + 8, k + 8) with g = lane / 4
// and k = 2 (lane % 4); b's hold (k, column g), (k + 8, g); d's (g, k), (g, k + 1), (g + 8, k), (g + 8, k + 1).
template <class Element>
void mma(float* d, uint32_t const (&a)[4], uint32_t b0, uint32_t b1) {
  struct Fragments {
    uint32_t a[4], b[2];
  } mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  int const lane = threadIdx.x % 32;
  exchange(mine, [&](auto of) {
    for (int i = 0; i < 4; ++i) {
      int const row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
      float sum = d[i];
      for (int k = 0; k < 16; ++k) {
        int const half = k / 8, pair = k % 8 / 2;
        Fragments const left = of(row % 8 * 4 + pair), right = of(column * 4 + pair);
        sum += element<Element>(left.a[row / 8 + 2 * half], k % 2) * element<Element>(right.b[half], k % 2);
      }
      d[i] = sum;
    }
  });
}

inline float exp2_approx(float x) { return std::exp2(x); }

}  // namespace bolt::ptx
