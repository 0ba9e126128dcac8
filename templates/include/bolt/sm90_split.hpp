// The cluster split-K kernel of bolt/sm90_split_kernel.hpp behind the arguments of bolt/abi.h: products and convolutions.
//
// A Config gives
//   Element, ElementD        types of A and B (float: computed as tf32) and of D, the source
//   Chain                    the epilogue, all of it (templates/epilogue.py)
//   kTileM, kTileN, kTileK   tile of the mainloop, of D^T where operands are swapped
//   kStages, kBlocksPerSm    load stages, CTAs that fit on an SM
//   kVec                     elements of D that are stored together; bias, source, D and N are multiples of it
//   kSwap, LayoutA, LayoutB  GEMM only
#pragma once
#include "bolt/abi.h"
#include "bolt/sm90_split_kernel.hpp"
#include "bolt/sm90_split_operands.hpp"

namespace bolt::split {

// The three functions of bolt/abi.h, for a product or a convolution.
template <class Config, class Operands>
struct Runner {
  using Kernel_ = Kernel<Config, Operands>;
  using Element = typename Config::Element;
  using ElementD = typename Config::ElementD;
  using Chain = typename Config::Chain;

  template <class T>
  static bool vectors_ok(void const* pointer, int64_t leading, int64_t batch) {
    return pointer && reinterpret_cast<uintptr_t>(pointer) % (Config::kVec * sizeof(T)) == 0 &&
           leading % Config::kVec == 0 && batch % Config::kVec == 0;
  }

  static int check(bolt_args const& args) {
    auto const out = output(args);
    if (out.rows <= 0 || out.columns <= 0 || out.columns % Config::kVec) return BOLT_E_UNSUPPORTED;
    if (!vectors_ok<ElementD>(out.d, out.ldd, out.stride_d) || out.ldd < out.columns) return BOLT_E_UNSUPPORTED;
    if (Chain::kSource && !vectors_ok<ElementD>(out.source, out.ldsource, out.stride_source)) return BOLT_E_UNSUPPORTED;
    if (Chain::kBias && !vectors_ok<Element>(out.bias, 0, 0)) return BOLT_E_UNSUPPORTED;
    if (args.splits > kMaxSplits || args.splits > Operands::k_tiles(args)) return BOLT_E_UNSUPPORTED;
    constexpr int kMaxBatch = 65535;  // of a grid along z
    if (batch(args) > kMaxBatch) return BOLT_E_UNSUPPORTED;
    return Operands::can_implement(args) ? BOLT_OK : BOLT_E_UNSUPPORTED;
  }

  static size_t workspace(bolt_args const&) { return 0; }

  static int run(bolt_args const& args, cudaStream_t stream) {
    if (int refused = check(args)) return refused;
    typename Kernel_::Params params{};
    params.operands = Operands::to_params(args);
    params.out = output(args);
    int const row_tiles = (params.out.rows + Kernel_::kRows - 1) / Kernel_::kRows;
    int const column_tiles = (params.out.columns + Kernel_::kColumns - 1) / Kernel_::kColumns;
    params.tiles_m = Config::kSwap ? column_tiles : row_tiles;
    params.tiles_n = Config::kSwap ? row_tiles : column_tiles;
    params.splits = args.splits > 1 ? args.splits : 1;
    params.along_m = args.raster == 1;
    params.weights_constant = args.pdl != 2;
    return Kernel_::launch(params, batch(args), stream, args.pdl != 0) == cudaSuccess ? BOLT_OK : BOLT_E_LAUNCH;
  }

 private:
  static int batch(bolt_args const& args) { return Operands::kConv || args.batch < 1 ? 1 : args.batch; }

  static Output<Element, ElementD> output(bolt_args const& args) {
    Output<Element, ElementD> out{};
    out.d = static_cast<ElementD*>(args.d);
    out.source = static_cast<ElementD const*>(args.source);
    out.bias = static_cast<Element const*>(args.bias);
    out.rows = Operands::kConv ? args.cn * args.p * args.q : args.m;
    out.columns = Operands::kConv ? args.cout : args.n;
    out.ldd = Operands::kConv && !args.ldd ? args.cout : args.ldd;
    out.ldsource = Operands::kConv ? args.cout : args.ldsource;
    if (!Operands::kConv) {
      out.stride_d = args.stride_d;
      out.stride_source = args.stride_source;
    }
    return out;
  }
};

}  // namespace bolt::split
