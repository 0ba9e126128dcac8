// Host side of the stem convolution (bolt/sm90_conv_stem_kernel.cuh): plan, check, launch.
#pragma once
#include "bolt/abi.h"
#include "bolt/launch.h"
#include "bolt/sm90_conv_stem_kernel.cuh"

namespace bolt::stem {

// How an instance is laid over a problem; templates/sm90_stem/geometry.py knows the same arithmetic.
// `bolt_args.variant` is the output rows of a block; 0 stands for one row for each consumer group.
template <class Config>
struct Plan {
  using I = Instance<Config>;
  Params params{};
  int smem = 0, grid = 0, box_rows = 0;

  bool make(bolt_args const& a) {
    Params& p = params;
    if ((a.c != 4 && a.c != 8) || a.c * a.stride_w * I::kPhases != kUnitElements || a.cout <= 0 || a.cout % 8) {
      return false;
    }
    if (a.groups > 1 || a.dilation_h != 1 || a.dilation_w != 1 || a.w * a.c % kUnitElements) return false;
    if (a.stride_h <= 0 || a.r <= 0 || a.s <= 0 || a.p <= 0 || a.q <= 0 || a.sm_count <= 0 || a.variant < 0) {
      return false;
    }
    if (a.p != (a.h + a.pad_top + a.pad_bottom - a.r) / a.stride_h + 1) return false;
    if (a.q != (a.w + a.pad_left + a.pad_right - a.s) / a.stride_w + 1) return false;
    p.row_elements = a.s * a.c;
    p.filter_rows = a.r;
    // A box starts at the unit that holds the first window's first element; each phase's windows start from there.
    int const before = ceil_div(a.pad_left * a.c, kUnitElements), slack = before * kUnitElements - a.pad_left * a.c;
    int lead = 0, shift = 0;
    for (int phase = 0; phase < I::kPhases; ++phase) {
      int const start = slack + phase * a.stride_w * a.c;
      p.shift[phase] = start / kUnitElements;
      p.lead[phase] = start % kUnitElements / kPiece;
      lead = p.lead[phase] > lead ? p.lead[phase] : lead;
      shift = p.shift[phase] > shift ? p.shift[phase] : shift;
    }
    p.row_units = ceil_div(p.row_elements + lead * kPiece, kUnitElements);
    p.row_units_inverse = 65536 / p.row_units + 1;
    p.units = a.r * p.row_units;
    p.steps = ceil_div(p.units, 2);
    p.row_pitch = I::kColumns + p.row_units - 1 + shift;
    p.block_rows = a.variant ? a.variant : I::kGroups;
    box_rows = (p.block_rows - 1) * a.stride_h + a.r;
    if (p.units < 2 || p.steps > kMaxSteps) return false;
    if (p.block_rows > kMaxBox || box_rows > kMaxBox || p.row_pitch * kPiecesPerUnit > kMaxBox) return false;
    for (int i = 0; i < p.steps; ++i) {
      int const high = address_of(unit_of(p.units, i, 1)), first = unit_of(p.units, i, 0);
      int const low = first < 0 ? address_of(p.units - 2) : address_of(first);
      p.step[i] = uint32_t(low) | uint32_t(high - low) << 16;
    }
    p.output_rows = a.p;
    p.channels = a.cout;
    p.channel_tiles = ceil_div(a.cout, kChannels);
    p.blocks_across = ceil_div(a.q, I::kPixels);
    p.blocks_per_image = p.blocks_across * ceil_div(a.p, p.block_rows);
    p.blocks = a.cn * p.blocks_per_image;
    p.column_step = I::kPixels * a.stride_w * a.c / kPiece;
    p.first_column = -before * kPiecesPerUnit;
    p.row_step = a.stride_h;
    p.first_row = -a.pad_top;
    p.box_bytes = box_rows * p.row_pitch * kUnit;
    p.stage_bytes = ceil_div(p.box_bytes, kTmaAlign) * kTmaAlign;
    p.weights = a.b;
    p.bias = a.bias;
    p.weights_constant = a.pdl != 2;
    int const results = I::kGroups * Config::kBuffers * I::kResultBytes;
    int const fixed = kOverhead + results + I::kPhases * p.channel_tiles * p.steps * kTileBytes;
    if (fixed + 2 * p.stage_bytes > kSmemPerBlock) return false;
    int const stages = (kSmemPerBlock - fixed) / p.stage_bytes;
    p.stages = stages < kMaxStages ? stages : kMaxStages;
    smem = fixed + p.stages * p.stage_bytes;
    grid = p.blocks < a.sm_count ? p.blocks : a.sm_count;
    return true;
  }

  // Descriptors; false if the driver refuses one.
  bool encode(bolt_args const& a) {
    using Element = typename Config::Element;
    using Extent = cuuint64_t;
    constexpr Extent kSize = sizeof(Element);
    Params& p = params;
    Extent const row_bytes = Extent(a.w) * a.c * kSize, k = a.cout, q = a.q, rows = a.p, n = a.cn;
    Extent const extents[3] = {row_bytes / kPieceBytes, Extent(a.h), n}, strides[2] = {row_bytes, row_bytes * a.h};
    cuuint32_t const box[3] = {cuuint32_t(p.row_pitch * kPiecesPerUnit), cuuint32_t(box_rows), 1}, every[3] = {1, 1, 1};
    auto const encoder = ptx::encoder();
    if (!encoder) return false;
    CUresult const input = encoder(&p.input, CU_TENSOR_MAP_DATA_TYPE_UINT64, 3, const_cast<void*>(a.a), extents,
                                   strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                   CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return input == CUDA_SUCCESS &&
           ptx::encode<Element, 4>(p.output, a.d, {k, q, rows, n}, {k * kSize, q * k * kSize, rows * q * k * kSize},
                                   {kChannels, I::kPixels, 1, 1});
  }

 private:
  static int ceil_div(int a, int b) { return (a + b - 1) / b; }
  // Units from a stage's start to the first pixel's unit `unit` of the flattened filter.
  int address_of(int unit) const {
    return unit / params.row_units * params.row_pitch + unit % params.row_units;
  }
};

template <class Config>
int check(bolt_args const& args) {
  static_assert(!Config::Chain::kSource, "the family has no way to read a source tensor");
  if (Config::Chain::kBias && !args.bias) return BOLT_E_UNSUPPORTED;
  Plan<Config> plan;
  return plan.make(args) ? BOLT_OK : BOLT_E_UNSUPPORTED;
}

template <class Config>
int run(bolt_args const& args, cudaStream_t stream) {
  if (int refused = check<Config>(args)) return refused;
  Plan<Config> plan;
  if (!plan.make(args) || !plan.encode(args)) return BOLT_E_UNSUPPORTED;
  return launch<kSmemPerBlock>(conv_stem<Config>, dim3(unsigned(plan.grid)), Instance<Config>::kThreads, plan.smem,
                               args.pdl != 0, stream, plan.params);
}

}  // namespace bolt::stem
