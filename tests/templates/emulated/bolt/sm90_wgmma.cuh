// Stands for templates/include/bolt/sm90_wgmma.cuh on the CPU: descriptors are read as the PTX ISA defines them
// ("Matrix Descriptor", "Strides", 128-byte swizzling), so an operand that lies otherwise gives wrong sums.
#pragma once
#include "bolt/sm90_ptx.cuh"

namespace bolt::ptx {

struct Descriptor {
  uint32_t start, leading, stride;
  explicit Descriptor(uint64_t bits)
      : start(uint32_t(bits & 0x3FFF) << 4), leading(uint32_t(bits >> 16 & 0x3FFF) << 4),
        stride(uint32_t(bits >> 32 & 0x3FFF) << 4) {
    if (bits >> 62 != 1 || (bits >> 49 & 7) != 0) std::abort();  // the 128-byte swizzle, no base offset
  }
  // Element k of row (or column) `line`: lines of depth, eight to a group.
  template <class Element>
  float of_depth(int line, int k) const {
    return read<Element>(start + line / 8 * stride + line % 8 * 128 + k * 2);
  }
  // Element `column` of depth k: rows of 64 columns, eight of them to a group; further columns are `leading` away.
  template <class Element>
  float of_columns(int column, int k) const {
    return read<Element>(start + column / 64 * leading + k / 8 * stride + k % 8 * 128 + column % 64 * 2);
  }

 private:
  template <class Element>
  static float read(uint32_t address) {
    Element value;
    std::memcpy(&value, swizzled(address), 2);
    return float(value);
  }
};

// Accumulator i of a thread: row warp * 16 + lane / 4 + 8 (i / 2 % 2), column 8 (i / 4) + 2 (lane % 4) + i % 2.
template <class Element, int kCount>
void wgmma(float (&d)[kCount], uint64_t a, uint64_t b, bool accumulate) {
  open_groups[threadIdx.x].push_back([&d, a, b, accumulate] {
    Descriptor const left(a), right(b);
    int const warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    for (int i = 0; i < kCount; ++i) {
      int const row = warp * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
      float sum = accumulate ? d[i] : 0.f;
      for (int k = 0; k < 16; ++k) {
        sum += left.template of_depth<Element>(row, k) * right.template of_depth<Element>(column, k);
      }
      d[i] = sum;
    }
  });
}

template <class Element, int kCount>
void wgmma(float (&d)[kCount], uint32_t const (&a)[4], uint64_t b, bool accumulate) {
  open_groups[threadIdx.x].push_back([&d, &a, b, accumulate] {
    Descriptor const right(b);
    struct Registers {
      uint32_t a[4];
    } mine{{a[0], a[1], a[2], a[3]}};
    int const lane = threadIdx.x % 32;
    exchange(mine, [&](auto of) {
      float left[2][16];  // the lane's two rows, from the four lanes of its quad
      for (int k = 0; k < 16; ++k) {
        Registers const theirs = of(lane / 4 * 4 + k % 8 / 2);
        for (int r = 0; r < 2; ++r) left[r][k] = element<Element>(theirs.a[r + k / 8 * 2], k % 2);
      }
      for (int i = 0; i < kCount; ++i) {
        int const column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        float sum = accumulate ? d[i] : 0.f;
        for (int k = 0; k < 16; ++k) sum += left[i / 2 % 2][k] * right.template of_columns<Element>(column, k);
        d[i] = sum;
      }
    });
  });
}

}  // namespace bolt::ptx
