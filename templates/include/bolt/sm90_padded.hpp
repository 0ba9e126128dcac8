// Odd depths on Hopper: TMA moves rows whose length is a multiple of 16 bytes, so a copy with rows filled up by zeros is
// made in the workspace first, and the cluster split-K kernel of bolt/sm90_split.hpp runs on it.
//
// One kernel fills both operands. Their rows lie densely behind one another and K (the channels of a convolution) is the
// contiguous extent of both: A is (batch, M, K) or N x H x W pixels, B is (batch, N, K) or K x R x S taps. A thread makes
// one 16-byte vector of the copy out of reads of kRead elements, the widest that the rows' alignment allows.
//
// Weights are filled up at every launch like the activations: they are small beside these, and the caller need know
// nothing of it.
#pragma once
#include "bolt/launch_2x.h"
#include "bolt/sm90_split.hpp"

namespace bolt {

struct FillParams {
  void const *from_a, *from_b;
  void* to;  // A's copy, then B's
  int64_t rows_a, rows;
  int depth, vectors;  // elements of a row; 16-byte vectors of a row of the copy
};

// `Config` also keeps the kernel's name apart from those of other generated libraries.
template <class Config, int kRead>
static __global__ void __launch_bounds__(256) fill_rows(FillParams p) {
  grid_dependency();
  using Element = typename Config::Element;
  constexpr int kVector = 16 / int(sizeof(Element));
  int64_t const index = int64_t(blockIdx.x) * 256 + threadIdx.x, row = index / p.vectors;
  int const first = int(index % p.vectors) * kVector;
  if (row >= p.rows) return;
  bool const is_a = row < p.rows_a;
  auto const* from = static_cast<Element const*>(is_a ? p.from_a : p.from_b) + (is_a ? row : row - p.rows_a) * p.depth;
  cutlass::AlignedArray<Element, kVector> filled;
  filled.clear();
  CUTLASS_PRAGMA_UNROLL
  for (int i = 0; i < kVector; i += kRead) {
    if (first + i >= p.depth) break;
    auto const part = *reinterpret_cast<cutlass::AlignedArray<Element, kRead> const*>(from + first + i);
    CUTLASS_PRAGMA_UNROLL
    for (int j = 0; j < kRead; ++j) filled[i + j] = part[j];
  }
  static_cast<cutlass::AlignedArray<Element, kVector>*>(p.to)[index] = filled;
}

template <class Config, class Operands, int kRead>
struct Padded {
  using Inner = split::Runner<Config, Operands>;
  using Element = typename Config::Element;
  static constexpr int kVector = split::kTmaBytes / int(sizeof(Element));

  static int check(bolt_args const& args) {
    if (depth(args) <= 0 || depth(args) % kRead) return BOLT_E_UNSUPPORTED;
    if (!aligned(args.a, kRead * sizeof(Element)) || !aligned(args.b, kRead * sizeof(Element))) return BOLT_E_UNSUPPORTED;
    if (!Operands::kConv && !dense(args)) return BOLT_E_UNSUPPORTED;
    constexpr uintptr_t kAnywhere = 256;  // the copy's place is not known yet, only its alignment
    return Inner::check(filled(args, reinterpret_cast<void*>(kAnywhere)));
  }

  static size_t workspace(bolt_args const& args) { return size_t(rows_a(args) + rows_b(args)) * padded(args) * sizeof(Element); }

  static int run(bolt_args const& args, cudaStream_t stream) {
    if (int refused = check(args)) return refused;
    if (!args.workspace || !aligned(args.workspace, split::kTmaBytes) || args.workspace_bytes < workspace(args)) {
      return BOLT_E_WORKSPACE;
    }
    int64_t const rows = rows_a(args) + rows_b(args);
    FillParams const fill = {args.a, args.b, args.workspace, rows_a(args), rows, depth(args), padded(args) / kVector};
    unsigned const blocks = unsigned((rows * fill.vectors + 255) / 256);
    if (int error = launch(fill_rows<Config, kRead>, dim3(blocks), 256, 0, args.pdl != 0, stream, fill)) return error;
    return Inner::run(filled(args, args.workspace), stream);
  }

 private:
  static int depth(bolt_args const& args) { return Operands::kConv ? args.c : args.k; }
  static int padded(bolt_args const& args) { return (depth(args) + kVector - 1) / kVector * kVector; }
  static int64_t batch(bolt_args const& args) { return args.batch > 1 ? args.batch : 1; }

  static int64_t rows_a(bolt_args const& args) {
    return Operands::kConv ? int64_t(args.cn) * args.h * args.w : batch(args) * args.m;
  }
  static int64_t rows_b(bolt_args const& args) {
    return Operands::kConv ? int64_t(args.cout) * args.r * args.s : (args.stride_b ? batch(args) : 1) * args.n;
  }
  static bool dense(bolt_args const& args) {
    bool const batches = args.batch <= 1 || (args.stride_a == int64_t(args.m) * args.k &&
                                             (!args.stride_b || args.stride_b == int64_t(args.n) * args.k));
    return args.lda == args.k && args.ldb == args.k && batches;
  }

  // The arguments of the kernel that reads the copy. Both its operands come from the kernel in front of it (pdl = 2).
  static bolt_args filled(bolt_args const& args, void* copy) {
    bolt_args inner = args;
    int const wide = padded(args);
    inner.a = copy;
    inner.b = static_cast<Element*>(copy) + rows_a(args) * wide;
    inner.pdl = args.pdl ? 2 : 0;
    if (Operands::kConv) {
      inner.c = wide;
    } else {
      inner.k = wide;
      inner.lda = inner.ldb = wide;
      inner.stride_a = int64_t(args.m) * wide;
      inner.stride_b = args.stride_b ? int64_t(args.n) * wide : 0;
    }
    return inner;
  }
};

}  // namespace bolt
