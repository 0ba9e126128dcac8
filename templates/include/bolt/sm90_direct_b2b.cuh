// Host side of the direct convolution pair (bolt/sm90_direct_b2b_kernel.cuh): plan, check, launch.
#pragma once
#include "bolt/sm90_conv_direct.cuh"
#include "bolt/sm90_direct_b2b_kernel.cuh"

namespace bolt::direct {

// How an instance is laid over a pair; the tuner knows the same arithmetic, templates/sm90_direct_b2b/geometry.py.
template <class Config>
struct PairPlan {
  using I = Instance<Config>;
  Plan<Config> first;
  PairParams params{};
  int smem = 0, grid = 0;

  bool make(bolt_args const& a) {
    if (!first.lay(a) || first.params.channel_tiles != 1) return false;
    if (a.cout <= kChannels * (I::kChannelGroups - 1)) return false;  // a group without channels
    if (a.n1 <= 0 || a.n1 % 8 || a.ldb1 < a.cout || a.ldb1 % 8 || a.ldd < a.n1 || a.ldd % 8) return false;
    if (Config::Outer::Chain::kSource && (a.ldsource1 < a.n1 || a.ldsource1 % 8)) return false;
    params.bias1 = a.bias1;
    params.channels1 = a.n1;
    params.passes = Plan<Config>::ceil_div(a.n1, I::kWeightRows);
    if (Config::kReuse && params.passes != 1) return false;
    Params const& p = first.params;
    grid = Plan<Config>::least(Config::kResident ? p.blocks : p.tiles, a.sm_count * Config::kBlocksPerSm);
    return split_shared_memory();
  }

  // Descriptors; false if the driver refuses one. Call `make` before.
  bool encode(bolt_args const& a) {
    using Element = typename Config::Element;
    using Extent = cuuint64_t;
    using Box = cuuint32_t;
    constexpr Extent kSize = sizeof(Element);
    Params& p = first.params;
    Extent const c = a.c, w = a.w, h = a.h, n = a.cn, n0 = a.cout, n1 = a.n1, q = a.q, rows = a.p, taps = p.taps;
    Extent const ldb1 = a.ldb1;
    Box const weight_box[3] = {kChannels, Box(I::kWeightRows), 1};
    bool good = ptx::encode<Element, 4>(p.input, a.a, {c, w, h, n}, {c * kSize, w * c * kSize, h * w * c * kSize},
                                        {kChannels, Box(first.pitch), Box(first.box_height), 1});
    good = good && ptx::encode<Element, 3>(p.weights, a.b, {c, n0, taps}, {taps * c * kSize, c * kSize}, weight_box);
    good = good && ptx::encode<Element, 3>(params.weights1, a.b1, {n0, n1, 1}, {ldb1 * kSize, n1 * ldb1 * kSize},
                                           weight_box);
    auto result = [&](CUtensorMap& map, void const* pointer, Extent pitch) {
      return ptx::encode<Element, 4>(map, pointer, {n1, q, rows, n},
                                     {pitch * kSize, q * pitch * kSize, rows * q * pitch * kSize},
                                     {kChannels, Box(p.block_width), Box(p.block_height), 1});
    };
    good = good && result(p.output, a.d, a.ldd);
    if (Config::Outer::Chain::kSource) good = good && result(p.source, a.source1, a.ldsource1);
    params.first = p;
    return good;
  }

 private:
  bool split_shared_memory() {
    Params& p = first.params;
    int const results = I::kGroups * (I::kResultBytes + (Config::kReuse ? 0 : I::kPixels * kRowBytes));
    int const room = kSmemPerSm / Config::kBlocksPerSm - kReservedPerBlock - kOverhead - results;
    int const pixel_bytes = I::kPixelGroups * p.pixel_stage_bytes;
    int const needed = p.taps * p.chunks + params.passes * I::kChannelGroups;  // weight stages of a tile
    int const least_pixels = p.chunks > 1 ? 2 : 1;  // a pixel stage is released one chunk late
    if (Config::kResident) {
      if (needed > kMaxResidentStages) return false;
      p.weight_stages = needed;
      p.pixel_stages = Plan<Config>::least((room - needed * I::kWeightStage) / pixel_bytes, kMaxPixelStages);
    } else {
      p.pixel_stages = 2;
      p.weight_stages = (room - 2 * pixel_bytes) / I::kWeightStage;
      if (p.weight_stages < 2 && p.chunks == 1) {
        p.pixel_stages = 1;
        p.weight_stages = (room - pixel_bytes) / I::kWeightStage;
      }
      p.weight_stages = Plan<Config>::least(p.weight_stages, kMaxWeightStages);
      if (p.weight_stages < 2) return false;
    }
    if (p.pixel_stages < least_pixels) return false;
    smem = kOverhead + results + p.pixel_stages * pixel_bytes + p.weight_stages * I::kWeightStage;
    return true;
  }
};

template <class Config>
int check_pair(bolt_args const& args) {
  if (!args.a || !args.b || !args.b1 || !args.d || args.batch > 1) return BOLT_E_UNSUPPORTED;
  if (Config::Inner::Chain::kBias && !args.bias) return BOLT_E_UNSUPPORTED;
  if (Config::Outer::Chain::kBias && !args.bias1) return BOLT_E_UNSUPPORTED;
  if (Config::Outer::Chain::kSource && !args.source1) return BOLT_E_UNSUPPORTED;
  PairPlan<Config> plan;
  return plan.make(args) ? BOLT_OK : BOLT_E_UNSUPPORTED;
}

template <class Config>
int run_pair(bolt_args const& args, cudaStream_t stream) {
  if (int refused = check_pair<Config>(args)) return refused;
  PairPlan<Config> plan;
  if (!plan.make(args) || !plan.encode(args)) return BOLT_E_UNSUPPORTED;
  return launch<kSmemPerBlock>(conv_direct_pair<Config>, dim3(unsigned(plan.grid)), Instance<Config>::kThreads, plan.smem,
                               args.pdl != 0, stream, plan.params);
}

}  // namespace bolt::direct
