// A convolution and the 1x1 convolution behind it in one Hopper kernel (sm_90a), the first one direct: stride 1, any
// filter, padding and dilation. The intermediate goes through shared memory, and no further.
//
//   D^T (N1 x pixels) = outer( W1 (N1 x N0) * inner( W0 (N0 x k) * X^T (k x pixels) ) )
//
// The first product is that of bolt/sm90_conv_direct_kernel.cuh: a wgmma's M is 64 channels, its N is kPixels pixels, the
// block's pixels and halo are loaded once. One CTA holds all channels of its pixels (kChannelGroups * 64 >= N0), which is
// the residence rule of the paper's section 3.1.1. What is added:
//
//   intermediate  Each channel group writes its accumulators, through the inner chain, as [pixel][64 channels] with the
//                 128-byte swizzle: what the direct kernel stores by TMA is here the second wgmma's B operand as it lies.
//                 Pixels past the block's own keep what was there before; each is a column of its own in the second
//                 product, and TMA never stores it.
//   W1            More stages of the ring that W0 comes through: after all taps of a tile, for every pass of
//                 kChannelGroups * 64 result channels, one stage for each 64 channels of the intermediate. They are on
//                 their way while the first epilogue runs. Resident: they stay, as W0 does.
//   result        Each group computes 64 channels of a pass from the intermediate of all groups of its block. Channels of
//                 W1 past N0 and rows past N1 arrive as zeros. kReuse: one pass, written over the intermediate when all
//                 groups have read it; else a buffer of its own, and any number of passes.
//   source        TMA into the result's buffer while the second product runs, as in the direct kernel.
//
// Named barrier kPairBarrier + pixel group joins the channel groups of one block: the intermediate is complete; and
// nobody reads it any more.
//
// Shared memory in bytes, beside what the direct kernel's formula gives for all stages: kGroups * kPixels * 128 for the
// results unless kReuse. The tuner computes the same (templates/sm90_direct_b2b/geometry.py).
#pragma once
#include "bolt/sm90_conv_direct_kernel.cuh"

namespace bolt::direct {

constexpr int kPairBarrier = 10;  // named barriers 10..13; 1..4 are the groups', 8 and 9 pass turns

struct PairParams {
  Params first;  // its `output` and `source` are those of the pair
  CUtensorMap weights1;
  void const* bias1;
  int channels1, passes;  // result channels; passes of kChannelGroups * 64 of them
};

// One thread: W0 and W1 of every tile in the order in which they are read, or all of them once.
template <class Config>
__device__ __forceinline__ void load_pair_weights(PairParams const& pair, Layout<Config> const& at) {
  using I = Instance<Config>;
  Params const& p = pair.first;
  if (!p.weights_constant) ptx::wait_for_previous_grid();
  ptx::Ring ring;
  ring.parity = 1;
  auto load = [&](CUtensorMap const& map, int from, int to, int tap) {
    uint32_t const full = at.at(at.weights_full, ring.stage);
    if constexpr (!Config::kResident) ptx::barrier_wait(at.at(at.weights_empty, ring.stage), ring.parity);
    ptx::barrier_arrive_expect(full, I::kWeightStage);
    ptx::load_3d(at.weights + ring.stage * I::kWeightStage, &map, full, from, to, tap);
    ring.next(at.weight_stages);
  };
  for (Walk<Config> walk(p); walk.valid(); walk.next()) {
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      for (int tap = 0; tap < p.taps; ++tap) load(p.weights, chunk * kChannels, 0, tap);
    }
    for (int pass = 0; pass < pair.passes; ++pass) {
      for (int chunk = 0; chunk < I::kChannelGroups; ++chunk) {
        load(pair.weights1, chunk * kChannels, pass * I::kWeightRows, 0);
      }
    }
    if constexpr (Config::kResident) break;
  }
}

// One consumer warp group: 64 channels of the intermediate, then 64 of each pass, of one block of pixels.
template <class Config>
struct PairConsumer : Consumer<Config> {
  using Base = Consumer<Config>;
  using I = Instance<Config>;
  using Element = typename Config::Element;
  using Inner = typename Config::Inner;
  using Outer = typename Config::Outer;
  using typename Base::Accumulator;
  using typename Base::Op;
  using Base::at, Base::channel_group, Base::first_tile, Base::group, Base::kPixels, Base::kResident, Base::lane;
  using Base::leader, Base::p, Base::pixel_group, Base::place, Base::source_parity, Base::warp, Base::weight_ring;
  static constexpr int kPairThreads = I::kChannelGroups * kWarpGroup;
  static_assert(Config::kTapsPerStage == 1 && !Config::kAlternate, "stages of W1 hold one tap, all groups share a ring");
  static_assert(Config::kBlocksPerSm == 1 || I::kGroups == 1, "groups that take registers leave none for a second CTA");
  static_assert(!Inner::Chain::kSource, "the intermediate never lies in memory, nor does a tensor to join it");
  static_assert(!Config::kReuse || !Outer::Chain::kSource, "a source needs a buffer that is not the intermediate");

  PairParams const& pair;
  uint32_t const output;    // this group's result tile
  uint32_t const place1;    // this lane's row in its first 8x8 matrices there; the next ones follow 16 pixels later

  __device__ __forceinline__ PairConsumer(PairParams const& pair_, Layout<Config> const& at_, int warp_in_cta)
      : Base(pair_.first, at_, warp_in_cta), pair(pair_),
        output(Config::kReuse ? this->result : at.pixels_full + kAtomBytes + group * kPixels * kRowBytes),
        place1(output + (lane / 16 * 8 + lane % 8) * kRowBytes + (((warp * 2 + lane / 8 % 2) ^ (lane % 8)) * kUnit)) {}

  __device__ __forceinline__ void run() {
    ptx::wait_for_previous_grid();  // before a bias or a source is read
    for (Walk<Config> walk(p); walk.valid(); walk.next()) {
      int const block = walk.block(pixel_group);
      if (block >= p.blocks) {
        if constexpr (!kResident) pass_all_weights();
        continue;
      }
      float bias[2] = {};
      if constexpr (Inner::Chain::kBias) this->load_bias(channel_group * kChannels, bias);
      Accumulator accumulator;
      this->multiply(accumulator, block, channel_group * kChannels, false, false);
      keep(accumulator, bias);
#pragma unroll 1
      for (int pass = 0; pass < pair.passes; ++pass) {
        int const channel = (pass * I::kChannelGroups + channel_group) * kChannels;
        bool const stores = channel < pair.channels1;
        if constexpr (Outer::Chain::kSource) {
          if (leader && stores) request_source1(block, channel);
        }
        multiply_intermediate(accumulator);
        if constexpr (Config::kReuse) sync_block();
        if (stores) finish_pair(accumulator, block, channel);
      }
      first_tile = false;
    }
    if (leader) ptx::wait_stores_read();  // shared memory must outlive the reads
  }

 private:
  // All channel groups of this block of pixels.
  __device__ __forceinline__ void sync_block() { ptx::named_sync(kPairBarrier + pixel_group, kPairThreads); }
  __device__ __forceinline__ void sync_group() { ptx::named_sync(group + 1, kWarpGroup); }

  __device__ __forceinline__ void pass_all_weights() {
    int const stages = at.stages_per_tile + pair.passes * I::kChannelGroups;
    for (int i = 0; i < stages; ++i) {
      ptx::barrier_wait(at.at(at.weights_full, weight_ring.stage), weight_ring.parity);
      if (lane == 0) ptx::barrier_arrive(at.at(at.weights_empty, weight_ring.stage));
      weight_ring.next(at.weight_stages);
    }
  }

  template <class Epilogue>
  __device__ __forceinline__ static uint32_t convert(float const* values, float bias, uint32_t source) {
    using Chain = typename Epilogue::Chain;
    float2 const from = Chain::kSource ? unpack_pair<Element>(source) : make_float2(0.f, 0.f);
    return pack_pair<Element, Epilogue::kFinalRelu>(Chain::apply(values[0], bias, from.x),
                                                    Chain::apply(values[1], bias, from.y));
  }

  // Inner chain; the intermediate into this group's buffer; all of the block's channels are there at the end.
  __device__ __forceinline__ void keep(Accumulator const& accumulator, float const (&bias)[2]) {
    if constexpr (Config::kReuse) {
      sync_group();  // the leader has seen the last store read the buffer
    } else {
      sync_block();  // every group has read the last tile's intermediate
    }
#pragma unroll
    for (int j = 0; j < kPixels / 16; ++j) {
      float const* v = accumulator + j * 8;
      ptx::store_matrices_4(place[j], convert<Inner>(v, bias[0], 0), convert<Inner>(v + 2, bias[1], 0),
                            convert<Inner>(v + 4, bias[0], 0), convert<Inner>(v + 6, bias[1], 0));
    }
    if constexpr (kPixels % 16 != 0) {
      float const* v = accumulator + kPixels / 16 * 8;
      ptx::store_matrices_2(place[kPixels / 16], convert<Inner>(v, bias[0], 0), convert<Inner>(v + 2, bias[1], 0));
    }
    ptx::fence_async_proxy();
    sync_block();
  }

  // 64 result channels x kPixels from all channels of the intermediate.
  __device__ __forceinline__ void multiply_intermediate(Accumulator& accumulator) {
    constexpr int kStep = kWgmmaK * 2 / kUnit;
    auto scale = gmma::ScaleOut::Zero;
    int used = -1;
#pragma unroll 1
    for (int chunk = 0; chunk < I::kChannelGroups; ++chunk) {
      int const stage = weight_ring.stage;
      if (!kResident || first_tile) {
        ptx::barrier_wait(at.at(at.weights_full, stage), kResident ? 0 : weight_ring.parity);
      }
      uint32_t const weights = at.weights + stage * I::kWeightStage + channel_group * kChannels * kRowBytes;
      uint32_t const pixels = at.results + (pixel_group * I::kChannelGroups + chunk) * I::kResultBytes;
      uint64_t const a = descriptor_base(kAtomBytes) | (weights / kUnit);
      uint64_t const b = descriptor_base(kAtomBytes) | (pixels / kUnit);
      ptx::fence_registers(accumulator);
      ptx::wgmma_fence();
#pragma unroll
      for (int q = 0; q < kChannels / kWgmmaK; ++q) {
        wgmma<Op>(a + q * kStep, b + q * kStep, accumulator, scale, std::make_index_sequence<kPixels / 2>{});
        scale = gmma::ScaleOut::One;
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      ptx::fence_registers(accumulator);
      if (!kResident && lane == 0 && used >= 0) ptx::barrier_arrive(at.at(at.weights_empty, used));
      used = stage;
      weight_ring.next(at.weight_stages);
    }
    ptx::wgmma_wait<0>();
    ptx::fence_registers(accumulator);
    if (!kResident && lane == 0) ptx::barrier_arrive(at.at(at.weights_empty, used));
  }

  __device__ __forceinline__ void request_source1(int block, int channel) {
    BlockOrigin const origin(p, block);
    uint32_t const full = at.at(at.source_full, group);
    ptx::wait_stores_read();
    ptx::barrier_arrive_expect(full, p.block_height * p.block_width * kRowBytes);
    ptx::load_4d(output, &p.source, full, channel, origin.x, origin.y, origin.image);
  }

  // A lane's two result channels, as Consumer::load_bias.
  __device__ __forceinline__ void load_bias1(int channel, float (&bias)[2]) {
    Element const* from = static_cast<Element const*>(pair.bias1);
    int const row = channel + warp * 16 + lane / 4;
    if (row < pair.channels1) bias[0] = float(from[row]);
    if (row + 8 < pair.channels1) bias[1] = float(from[row + 8]);
  }

  // Outer chain and store. The result lies without the gaps that pixels of the first product may have between rows.
  __device__ __forceinline__ void finish_pair(Accumulator const& accumulator, int block, int channel) {
    float bias[2] = {};
    if constexpr (Outer::Chain::kBias) load_bias1(channel, bias);
    if constexpr (Outer::Chain::kSource) {
      ptx::barrier_wait(at.at(at.source_full, group), source_parity);
      source_parity ^= 1;
    } else if constexpr (!Config::kReuse) {
      if (leader) ptx::wait_stores_read();
      sync_group();
    }
    uint32_t source[4] = {};
#pragma unroll
    for (int j = 0; j < kPixels / 16; ++j) {
      float const* v = accumulator + j * 8;
      uint32_t const to = place1 + j * 16 * kRowBytes;
      if constexpr (Outer::Chain::kSource) ptx::load_matrices_4(to, source);
      ptx::store_matrices_4(to, convert<Outer>(v, bias[0], source[0]), convert<Outer>(v + 2, bias[1], source[1]),
                            convert<Outer>(v + 4, bias[0], source[2]), convert<Outer>(v + 6, bias[1], source[3]));
    }
    if constexpr (kPixels % 16 != 0) {
      float const* v = accumulator + kPixels / 16 * 8;
      uint32_t const to = place1 + kPixels / 16 * 16 * kRowBytes;
      if constexpr (Outer::Chain::kSource) ptx::load_matrices_2(to, source);
      ptx::store_matrices_2(to, convert<Outer>(v, bias[0], source[0]), convert<Outer>(v + 2, bias[1], source[1]));
    }
    ptx::fence_async_proxy();
    sync_group();
    if (leader) {
      BlockOrigin const origin(p, block);
      ptx::store_4d(&p.output, output, channel, origin.x, origin.y, origin.image);
    }
  }
};

template <class Config>
__global__ void __launch_bounds__(Instance<Config>::kThreads, Config::kBlocksPerSm)
    conv_direct_pair(__grid_constant__ PairParams const pair) {
  using I = Instance<Config>;
  extern __shared__ uint8_t shared[];
  Params const& p = pair.first;
  Layout<Config> const at(p, (ptx::shared_address(shared) + kAtomBytes - 1) / kAtomBytes * kAtomBytes);
  int const warp = __shfl_sync(~0u, threadIdx.x / kWarp, 0), lane = threadIdx.x % kWarp;
  constexpr int kProducerWarp = I::kGroups * kWarpGroup / kWarp;

  if (threadIdx.x == kProducerWarp * kWarp) {
    for (auto* map : {&p.input, &p.weights, &pair.weights1, &p.output}) ptx::prefetch_descriptor(map);
    if constexpr (Config::Outer::Chain::kSource) ptx::prefetch_descriptor(&p.source);
  }
  prepare(p, at);
  __syncthreads();
  ptx::launch_dependents();

  // Registers move from the producers to the consumers where their sum allows it.
  if (warp >= kProducerWarp) {
    if constexpr (I::kGroups >= 3) ptx::registers_release<24>();
    if constexpr (I::kGroups == 2) ptx::registers_release<40>();
    if (warp == kProducerWarp && lane == 0) {
      load_pixels(p, at);
    } else if (warp == kProducerWarp + 1 && lane == 0) {
      load_pair_weights(pair, at);
    }
  } else {
    if constexpr (I::kGroups == 4) ptx::registers_acquire<112>();
    if constexpr (I::kGroups == 3) ptx::registers_acquire<160>();
    if constexpr (I::kGroups == 2) ptx::registers_acquire<232>();
    PairConsumer<Config>(pair, at, warp).run();
  }
}

}  // namespace bolt::direct
