// Host side of the direct convolution (bolt/sm90_conv_direct_kernel.cuh): plan, check, launch.
#pragma once
#include "bolt/abi.h"
#include "bolt/launch.h"
#include "bolt/sm90_conv_direct_kernel.cuh"

namespace bolt::direct {

constexpr int kSmemPerSm = 233472, kSmemPerBlock = 232448;  // compute capability 9.0
constexpr int kOverhead = 2048;  // alignment to kAtomBytes, and kAtomBytes of barriers
constexpr int kReservedPerBlock = 1024;  // what the runtime takes of each resident CTA
constexpr int kMaxPixelStages = 4, kMaxWeightStages = 8, kMaxResidentStages = 32;
constexpr int kMaxBox = 256;  // extent of a TMA box

// bolt_args.variant; kChoose takes the one with fewer blocks.
enum Geometry : int { kChoose = 0, kPatch = 1, kRows = 2 };

// How an instance is laid over a problem: geometry, split of shared memory, descriptors. The tuner knows the same
// arithmetic, templates/sm90_direct/geometry.py.
template <class Config>
struct Plan {
  using I = Instance<Config>;
  Params params{};
  int smem = 0, grid = 0;
  int pitch = 0, box_height = 0;

  bool make(bolt_args const& a) {
    if (!lay(a) || (a.ldd && (a.ldd < a.cout || a.ldd % 8))) return false;
    grid = least(Config::kResident ? params.blocks : params.tiles, a.sm_count * Config::kBlocksPerSm);
    return split_shared_memory();
  }

  // Blocks and what a stage holds, in the geometry asked for; kChoose takes the one with fewer blocks.
  bool lay(bolt_args const& a) {
    Params& p = params;
    if (a.stride_h != 1 || a.stride_w != 1 || a.groups > 1 || a.c % 8 || a.cout % 8) return false;
    if ((a.r * a.s) % Config::kTapsPerStage || a.p <= 0 || a.q <= 0 || a.sm_count <= 0) return false;
    int const halo_x = (a.s - 1) * a.dilation_w, halo_y = (a.r - 1) * a.dilation_h;
    if (a.p != a.h + a.pad_top + a.pad_bottom - halo_y || a.q != a.w + a.pad_left + a.pad_right - halo_x) return false;
    int const shared_pixels = least(least(a.pad_left, a.pad_right), halo_x);
    int const row_pitch = a.q + halo_x - shared_pixels;
    int const rows = least(I::kPixels / row_pitch, a.p);
    int const patch_blocks = ceil_div(a.p, I::kPixels / 8) * ceil_div(a.q, 8);
    int geometry = a.variant;
    if (geometry == kChoose) geometry = rows > 0 && ceil_div(a.p, rows) < patch_blocks ? kRows : kPatch;
    if (geometry == kRows && rows == 0) return false;
    bool const in_rows = geometry == kRows;
    p.block_height = in_rows ? rows : I::kPixels / 8;
    p.block_width = in_rows ? a.q : 8;
    p.blocks_across = in_rows ? 1 : ceil_div(a.q, 8);
    p.blocks_per_image = in_rows ? ceil_div(a.p, rows) : patch_blocks;
    p.blocks = a.cn * p.blocks_per_image;
    pitch = in_rows ? row_pitch : 8 + halo_x;
    box_height = p.block_height + halo_y;
    if (pitch > kMaxBox || box_height > kMaxBox || p.block_width > kMaxBox) return false;
    p.group_bytes = in_rows ? kAtomBytes : pitch * kRowBytes;
    p.columns = in_rows ? row_pitch : 8;
    p.columns_inverse = 65536 / p.columns + 1;
    p.channels = a.cout;
    p.taps = a.r * a.s;
    p.filter_width = a.s;
    p.chunks = ceil_div(a.c, kChannels);
    p.pad_top = a.pad_top;
    p.pad_left = a.pad_left;
    p.column_step = a.dilation_w * kRowBytes / kUnit;
    p.row_step = a.dilation_h * pitch * kRowBytes / kUnit;
    p.box_bytes = box_height * pitch * kRowBytes;
    p.pixel_stage_bytes = ceil_div(p.box_bytes + (in_rows ? shared_pixels * kRowBytes : 0), kAtomBytes) * kAtomBytes;
    p.channel_tiles = ceil_div(a.cout, kChannels * I::kChannelGroups);
    p.tiles = ceil_div(p.blocks, I::kPixelGroups) * p.channel_tiles;
    p.bias = a.bias;
    p.weights_constant = a.pdl != 2;
    return true;
  }

  // Descriptors; false if the driver refuses one.
  bool encode(bolt_args const& a) {
    using Element = typename Config::Element;
    using Extent = cuuint64_t;
    using Box = cuuint32_t;
    constexpr Extent kSize = sizeof(Element);
    Params& p = params;
    Extent const c = a.c, w = a.w, h = a.h, n = a.cn, k = a.cout, q = a.q, rows = a.p, taps = p.taps;
    Extent const pitch_d = a.ldd ? Extent(a.ldd) : k;  // from one output pixel to the next
    Box const block[4] = {kChannels, Box(p.block_width), Box(p.block_height), 1};
    bool good = ptx::encode<Element, 4>(p.input, a.a, {c, w, h, n}, {c * kSize, w * c * kSize, h * w * c * kSize},
                                        {kChannels, Box(pitch), Box(box_height), 1});
    good = good && ptx::encode<Element, 3>(p.weights, a.b, {c, k, taps}, {taps * c * kSize, c * kSize},
                                           {kChannels, Box(I::kWeightRows), Box(Config::kTapsPerStage)});
    good = good && ptx::encode<Element, 4>(p.output, a.d, {k, q, rows, n},
                                           {pitch_d * kSize, q * pitch_d * kSize, rows * q * pitch_d * kSize}, block);
    if (Config::Chain::kSource) {
      good = good && ptx::encode<Element, 4>(p.source, a.source, {k, q, rows, n},
                                             {k * kSize, q * k * kSize, rows * q * k * kSize}, block);
    }
    return good;
  }

  static int least(int a, int b) { return a < b ? a : b; }
  static int ceil_div(int a, int b) { return (a + b - 1) / b; }

 private:
  bool split_shared_memory() {
    Params& p = params;
    // All rings together; a pixel stage is released one chunk late, so more than one chunk needs two of them.
    int const weight_stage = kChannels * I::kChannelGroups * kRowBytes * Config::kTapsPerStage;
    int const resident = p.taps / Config::kTapsPerStage * p.chunks;
    int const room = kSmemPerSm / Config::kBlocksPerSm - kReservedPerBlock - kOverhead - I::kGroups * I::kResultBytes;
    int const pixel_bytes = I::kPixelGroups * p.pixel_stage_bytes;
    if (Config::kResident) {
      if (p.channel_tiles != 1 || resident > kMaxResidentStages) return false;
      p.weight_stages = resident;
      p.pixel_stages = least((room - resident * weight_stage) / pixel_bytes, kMaxPixelStages);
    } else {
      p.pixel_stages = 2;
      p.weight_stages = (room - 2 * pixel_bytes) / weight_stage;
      if (p.weight_stages < 2 && p.chunks == 1) {
        p.pixel_stages = 1;
        p.weight_stages = (room - pixel_bytes) / weight_stage;
      }
      if (p.weight_stages < 2) return false;
      p.weight_stages = least(p.weight_stages, kMaxWeightStages);
    }
    if (p.pixel_stages < (p.chunks > 1 ? 2 : 1)) return false;
    smem = kOverhead + I::kGroups * I::kResultBytes + p.pixel_stages * pixel_bytes + p.weight_stages * weight_stage;
    return true;
  }
};

template <class Config>
int check(bolt_args const& args) {
  if (Config::Chain::kBias && !args.bias) return BOLT_E_UNSUPPORTED;
  if (Config::Chain::kSource && !args.source) return BOLT_E_UNSUPPORTED;
  Plan<Config> plan;
  return plan.make(args) ? BOLT_OK : BOLT_E_UNSUPPORTED;
}

template <class Config>
int run(bolt_args const& args, cudaStream_t stream) {
  if (int refused = check<Config>(args)) return refused;
  Plan<Config> plan;
  if (!plan.make(args) || !plan.encode(args)) return BOLT_E_UNSUPPORTED;
  return launch<kSmemPerBlock>(conv_direct<Config>, dim3(unsigned(plan.grid)), Instance<Config>::kThreads, plan.smem,
                               args.pdl != 0, stream, plan.params);
}

}  // namespace bolt::direct
