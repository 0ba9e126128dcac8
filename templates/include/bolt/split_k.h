// Second half of split-K: the slices' fp32 partial sums are added in order and the chain is applied once.
#pragma once
#include "bolt/epilogue_2x.h"
#include "bolt/launch_2x.h"

namespace bolt {

// The chain of the first half: partial sums go to the workspace as they are. `Final` only keeps the name of the kernel
// apart from those of other generated libraries.
template <class Final>
struct Slice {
  static constexpr bool kBias = false;
  static constexpr bool kSource = false;
  CUTLASS_HOST_DEVICE static float apply(float x, float, float) { return x; }
};

template <class D>
struct ReduceParams {
  float const* partial;  // slices x rows x columns
  void const *bias, *source;
  D* d;
  int slices, columns;
  int64_t rows, ldsource, ldd;
};

// kVec elements a thread; kVec divides columns, ldsource and ldd.
template <class Chain, class Bias, class D, int kVec>
static __global__ void __launch_bounds__(256) reduce_slices(ReduceParams<D> p) {
  grid_dependency();
  constexpr int kPart = kVec < 4 ? kVec : 4;
  int64_t const vector = int64_t(blockIdx.x) * 256 + threadIdx.x, place = vector * kVec;
  int64_t const row = place / p.columns;
  int const column = int(place % p.columns);
  if (row >= p.rows) return;
  float sum[kVec] = {};
  for (int slice = 0; slice < p.slices; ++slice) {
    float const* from = p.partial + slice * p.rows * p.columns + place;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kVec; i += kPart) {
      auto part = *reinterpret_cast<cutlass::AlignedArray<float, kPart> const*>(from + i);
      CUTLASS_PRAGMA_UNROLL
      for (int j = 0; j < kPart; ++j) sum[i + j] += part[j];
    }
  }
  cutlass::AlignedArray<Bias, kVec> bias;
  cutlass::AlignedArray<D, kVec> source, result;
  if constexpr (Chain::kBias)
    bias = *reinterpret_cast<cutlass::AlignedArray<Bias, kVec> const*>(static_cast<Bias const*>(p.bias) + column);
  if constexpr (Chain::kSource)
    source = *reinterpret_cast<cutlass::AlignedArray<D, kVec> const*>(static_cast<D const*>(p.source) +
                                                                      row * p.ldsource + column);
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < kVec; ++i) {
    float const b = Chain::kBias ? float(bias[i]) : 0.f, s = Chain::kSource ? float(source[i]) : 0.f;
    result[i] = D(Chain::apply(sum[i], b, s));
  }
  *reinterpret_cast<cutlass::AlignedArray<D, kVec>*>(p.d + row * p.ldd + column) = result;
}

template <class Chain, class Bias, class D, int kVec>
int launch_reduce(ReduceParams<D> const& p, bool pdl, cudaStream_t stream) {
  int64_t const blocks = (p.rows * p.columns / kVec + 255) / 256;
  return launch(reduce_slices<Chain, Bias, D, kVec>, dim3(unsigned(blocks)), 256, 0, pdl, stream, p);
}

}  // namespace bolt
