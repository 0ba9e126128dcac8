// Direct ("halo") convolution forward for Hopper (sm_90a): stride 1, any filter, padding and dilation, NHWC 16-bit
// types, fp32 accumulation, a generated epilogue.
//
// The product is transposed: D^T[channels x pixels] = W[channels x k] * X^T[k x pixels]. A wgmma's M is 64 output
// channels, its N is kPixels output pixels (any multiple of 8). What moves:
//
//   pixels   The pixels of a block, their halo included, are loaded once for 64 input channels: one TMA box, one pixel
//            a row of 128 bytes, 128-byte swizzle. Every filter tap is the same box read through a shifted descriptor.
//            One pixel is one swizzle row and the swizzle is a function of the absolute shared-memory address, so every
//            shift is legal with the descriptor's base offset left at 0.
//   weights  64 input channels x kTapsPerStage taps x the channels of the consumers: a stage of a ring, or, when
//            kResident, all of them once for the life of the CTA.
//   result   accumulators -> chain -> transposed by stmatrix into [pixel][64 channels] -> one TMA store, which clips
//            at the image's edge. A source tensor takes the way back: TMA load into the same buffer, ldmatrix.
//
// Block geometry, chosen at run time:
//   patch    8 pixels wide, kPixels / 8 high.
//   rows     whole image rows at a pitch of Q + halo - shared: the left zero padding of the next row serves as the
//            right padding of this one, so `shared` pixels a row are neither loaded nor computed twice.
//
// Warp groups: kChannelGroups (64 channels each) x kPixelGroups (one block each) consumers, then one producer warp
// group: warp 0 loads pixels, warp 1 (and 2 if kAlternate) weights.
//   kResident   Weights stay; each pixel group walks its own blocks.
//   kAlternate  (two channel groups) each consumer has its own weight ring and the two take turns on the tensor cores,
//               64 input channels a turn: one's epilogue runs behind the other's products.
//
// Shared memory of an instance, in bytes (the tuner computes the same, templates/sm90_direct/geometry.py):
//   2048 (alignment, barriers) + groups * (kPixels + 8) * 128 + pixel groups * pixel stages * pixel stage
//        + weight stages * 64 * channel groups * 128 * kTapsPerStage
//   pixel stage = round_up(box height * pitch * 128 [+ shared * 128 for rows], 1024)
//
// Programmatic dependent launch: the weights are constants, so their loads start before the wait for the previous
// kernel; everything else waits. `pdl` = 2 says that the weights are not constants.
#pragma once
#include "bolt/activations.h"
#include "bolt/sm90_convert.cuh"
#include "bolt/sm90_ptx.cuh"
#ifndef CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED
#error "compile with -DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED: the pixel counts are not powers of two"
#endif
#include <utility>
#include "cute/arch/mma_sm90_gmma.hpp"

namespace bolt::direct {

namespace gmma = cute::SM90::GMMA;

constexpr int kWarp = 32, kWarpGroup = 128;
constexpr int kChannels = 64;  // output channels of a wgmma, input channels of a chunk
constexpr int kRowBytes = 128;  // one pixel (or one output channel) x kChannels x 2 bytes
constexpr int kAtomBytes = 1024;  // 8 rows: the swizzle repeats
constexpr int kUnit = 16;  // descriptors count in 16 bytes
constexpr int kWgmmaK = 16;  // input channels of one wgmma
constexpr int kTurnBarrier = 8;  // named barriers 8 and 9 pass the turn; 1.. are the groups'
constexpr int kBarrierBytes = 8;

template <int kPixels, class Element>
struct Wgmma;
#define BOLT_WGMMA(N)                                                                \
  template <>                                                                        \
  struct Wgmma<N, cutlass::half_t> {                                                 \
    using Op = gmma::MMA_64x##N##x16_F32F16F16_SS<gmma::Major::K, gmma::Major::K>;   \
  };                                                                                 \
  template <>                                                                        \
  struct Wgmma<N, cutlass::bfloat16_t> {                                             \
    using Op = gmma::MMA_64x##N##x16_F32BF16BF16_SS<gmma::Major::K, gmma::Major::K>; \
  };
BOLT_WGMMA(16)
BOLT_WGMMA(32)
BOLT_WGMMA(64)
BOLT_WGMMA(112)
BOLT_WGMMA(128)
BOLT_WGMMA(208)
BOLT_WGMMA(216)
BOLT_WGMMA(224)
#undef BOLT_WGMMA

template <class Op, int kCount, size_t... I>
__device__ __forceinline__ void wgmma(uint64_t a, uint64_t b, float (&d)[kCount], gmma::ScaleOut scale,
                                      std::index_sequence<I...>) {
  Op::fma(a, b, d[I]..., scale);
}

// K-major operand with the 128-byte swizzle; `group_bytes` from one group of 8 rows to the next.
__device__ __forceinline__ uint64_t descriptor_base(int group_bytes) {
  constexpr uint64_t kSwizzle128 = 1ull << 62, kLeadingUnused = 1ull << 16;
  return kSwizzle128 | (uint64_t(group_bytes / kUnit) << 32) | kLeadingUnused;
}

struct Params {
  CUtensorMap input, weights, output, source;
  void const* bias;
  int channels;  // output channels
  int blocks, blocks_per_image, blocks_across;
  int block_height, block_width;     // output pixels a block stores
  int columns, columns_inverse;      // wgmma pixel j is row j / columns, column j % columns; inverse in 1 / 65536
  int group_bytes;                   // from 8 pixels to the next 8 in shared memory
  int taps, filter_width, chunks;    // chunks: of 64 input channels
  int pad_top, pad_left;
  int box_bytes, pixel_stage_bytes;  // what TMA brings; what a stage takes
  int pixel_stages, weight_stages;
  int tiles, channel_tiles;          // streamed weights: CTA tiles, channels fastest
  int column_step, row_step;         // a filter column, a filter row in shared memory, in descriptor units
  bool weights_constant;
};

// Where a block lies. `block` counts rows of blocks within an image, then images.
struct BlockOrigin {
  int x, y, image;
  __device__ __forceinline__ BlockOrigin(Params const& p, int block) {
    image = block / p.blocks_per_image;
    int const rest = block - image * p.blocks_per_image;
    y = rest / p.blocks_across;
    x = (rest - y * p.blocks_across) * p.block_width;
    y *= p.block_height;
  }
};

// Compile-time facts of an instance.
template <class Config>
struct Instance {
  static constexpr int kPixels = Config::kPixels;
  static constexpr int kChannelGroups = Config::kChannelGroups, kPixelGroups = Config::kPixelGroups;
  static constexpr int kGroups = kChannelGroups * kPixelGroups;
  static constexpr int kRings = Config::kAlternate ? kChannelGroups : 1;
  static constexpr int kWeightRows = kChannels * kChannelGroups / kRings;
  static constexpr int kWeightTile = kWeightRows * kRowBytes;
  static constexpr int kWeightStage = kWeightTile * Config::kTapsPerStage;
  static constexpr int kResultBytes = (kPixels + 8) * kRowBytes;  // one spare row takes the pixels outside the image
  static constexpr int kThreads = (kGroups + 1) * kWarpGroup;
  static_assert(kPixels % 8 == 0, "a wgmma's N is a multiple of 8");
  static_assert(!Config::kAlternate || (kChannelGroups == 2 && kPixelGroups == 1 && !Config::kResident),
                "turns are taken by two channel groups with streamed weights");
};

// Where everything lies in shared memory, as 32-bit addresses; barriers last.
template <class Config>
struct Layout {
  using I = Instance<Config>;
  int groups_of_taps, stages_per_tile, weight_stages;  // weight stages of one ring; resident: all there are
  uint32_t weights, pixels, results;
  uint32_t pixels_full, pixels_empty, weights_full, weights_empty, source_full;

  __device__ __forceinline__ Layout(Params const& p, uint32_t base) {
    groups_of_taps = p.taps / Config::kTapsPerStage;
    stages_per_tile = groups_of_taps * p.chunks;
    weight_stages = p.weight_stages;
    weights = base;
    pixels = weights + I::kRings * weight_stages * I::kWeightStage;
    results = pixels + I::kPixelGroups * p.pixel_stages * p.pixel_stage_bytes;
    pixels_full = results + I::kGroups * I::kResultBytes;
    pixels_empty = at(pixels_full, I::kPixelGroups * p.pixel_stages);
    weights_full = at(pixels_empty, I::kPixelGroups * p.pixel_stages);
    weights_empty = at(weights_full, I::kRings * weight_stages);
    source_full = at(weights_empty, I::kRings * weight_stages);
  }
  __device__ __forceinline__ static uint32_t at(uint32_t barriers, int index) {
    return barriers + index * kBarrierBytes;
  }
};

// The persistent walk over the output. Resident weights: each pixel group takes blocks of its own. Streamed: the groups
// advance together over tiles of kPixelGroups blocks x all channel groups, channels fastest.
template <class Config>
struct Walk {
  using I = Instance<Config>;
  Params const& p;
  int step = blockIdx.x;
  int const stride = Config::kResident ? int(gridDim.x) * I::kPixelGroups : int(gridDim.x);
  int const end = Config::kResident ? p.blocks : p.tiles;

  __device__ __forceinline__ explicit Walk(Params const& p_) : p(p_) {}
  __device__ __forceinline__ bool valid() const { return step < end; }
  __device__ __forceinline__ bool last() const { return step + stride >= end; }
  __device__ __forceinline__ void next() { step += stride; }
  __device__ __forceinline__ int block(int pixel_group) const {
    return Config::kResident ? step + pixel_group * int(gridDim.x)
                             : (step / p.channel_tiles) * I::kPixelGroups + pixel_group;
  }
  __device__ __forceinline__ int channel() const {
    return Config::kResident ? 0 : (step % p.channel_tiles) * kChannels * I::kChannelGroups;
  }
};

// All threads: barriers, and the zeros that stand for the right padding of a box's last row just past it. TMA never
// writes there, so they hold for good.
template <class Config>
__device__ __forceinline__ void prepare(Params const& p, Layout<Config> const& at) {
  using I = Instance<Config>;
  constexpr int kWarpsPerGroup = kWarpGroup / kWarp;
  if (threadIdx.x == 0) {
    for (int i = 0; i < I::kPixelGroups * p.pixel_stages; ++i) {
      ptx::barrier_init(at.at(at.pixels_full, i), 1);
      ptx::barrier_init(at.at(at.pixels_empty, i), kWarpsPerGroup * I::kChannelGroups);
    }
    for (int i = 0; i < I::kRings * at.weight_stages; ++i) {
      ptx::barrier_init(at.at(at.weights_full, i), 1);
      ptx::barrier_init(at.at(at.weights_empty, i), kWarpsPerGroup * I::kGroups / I::kRings);
    }
    for (int i = 0; i < I::kGroups; ++i) ptx::barrier_init(at.at(at.source_full, i), 1);
    ptx::barrier_init_fence();
  }
  int const slack = (p.pixel_stage_bytes - p.box_bytes) / kUnit;
  for (int i = threadIdx.x; i < I::kPixelGroups * p.pixel_stages * slack; i += blockDim.x) {
    int const stage = i / slack;
    ptx::store_zeros(at.pixels + stage * p.pixel_stage_bytes + p.box_bytes + (i - stage * slack) * kUnit);
  }
  ptx::fence_async_proxy();
}

// One thread: the boxes of every pixel group.
template <class Config>
__device__ __forceinline__ void load_pixels(Params const& p, Layout<Config> const& at) {
  ptx::wait_for_previous_grid();
  ptx::Ring ring;
  ring.parity = 1;
  for (Walk<Config> walk(p); walk.valid(); walk.next()) {
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
#pragma unroll 1
      for (int group = 0; group < Config::kPixelGroups; ++group) {
        int const block = walk.block(group);
        if (block >= p.blocks) break;
        BlockOrigin const origin(p, block);
        int const stage = group * p.pixel_stages + ring.stage;
        uint32_t const full = at.at(at.pixels_full, stage);
        ptx::barrier_wait(at.at(at.pixels_empty, stage), ring.parity);
        ptx::barrier_arrive_expect(full, p.box_bytes);
        ptx::load_4d(at.pixels + stage * p.pixel_stage_bytes, &p.input, full, chunk * kChannels, origin.x - p.pad_left,
                     origin.y - p.pad_top, origin.image);
      }
      ring.next(p.pixel_stages);
    }
  }
}

// One thread for each ring: weights of every tile, or all of them once.
template <class Config>
__device__ __forceinline__ void load_weights(Params const& p, Layout<Config> const& at, int ring_index) {
  using I = Instance<Config>;
  if (!p.weights_constant) ptx::wait_for_previous_grid();
  ptx::Ring ring;
  ring.parity = 1;
  for (Walk<Config> walk(p); walk.valid(); walk.next()) {
    int const channel = walk.channel() + ring_index * I::kWeightRows;
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      for (int group = 0; group < at.groups_of_taps; ++group) {
        int const stage = ring_index * at.weight_stages + ring.stage;
        uint32_t const full = at.at(at.weights_full, stage);
        if constexpr (!Config::kResident) ptx::barrier_wait(at.at(at.weights_empty, stage), ring.parity);
        ptx::barrier_arrive_expect(full, I::kWeightStage);
        ptx::load_3d(at.weights + stage * I::kWeightStage, &p.weights, full, chunk * kChannels, channel,
                     group * Config::kTapsPerStage);
        ring.next(at.weight_stages);
      }
    }
    if constexpr (Config::kResident) break;
  }
}

// One consumer warp group.
template <class Config>
struct Consumer {
  using I = Instance<Config>;
  using Element = typename Config::Element;
  using Chain = typename Config::Chain;
  using Op = typename Wgmma<Config::kPixels, Element>::Op;
  static constexpr int kPixels = Config::kPixels, kTapsPerStage = Config::kTapsPerStage;
  static constexpr bool kResident = Config::kResident, kAlternate = Config::kAlternate;
  static constexpr int kMatrixRows = (kPixels + 8) / 16;  // stmatrix of 16 pixels each, the last may be half
  using Accumulator = float[kPixels / 2];

  Params const& p;
  Layout<Config> const& at;
  int const group, channel_group, pixel_group, warp, lane;
  bool const leader;  // owns this group's bulk copies
  uint32_t const result;
  ptx::Ring pixel_ring, weight_ring;
  uint32_t source_parity = 0;
  bool first_tile = true;
  uint32_t place[kMatrixRows];  // this lane's row of each 8x8 matrix in the result buffer

  __device__ __forceinline__ Consumer(Params const& p_, Layout<Config> const& at_, int warp_in_cta)
      : p(p_), at(at_), group(warp_in_cta / 4), channel_group(group % I::kChannelGroups),
        pixel_group(group / I::kChannelGroups), warp(warp_in_cta % 4), lane(threadIdx.x % kWarp),
        leader(threadIdx.x % kWarpGroup == 0), result(at.results + group * I::kResultBytes) {
#pragma unroll
    for (int j = 0; j < kMatrixRows; ++j) {
      int const pixel = (j * 2 + lane / 16) * 8 + lane % 8;
      int const y = (pixel * p.columns_inverse) >> 16, x = pixel - y * p.columns;
      int const row = x < p.block_width ? y * p.block_width + x : kPixels;  // outside the image: the spare row
      place[j] = result + row * kRowBytes + (((warp * 2 + lane / 8 % 2) ^ (row & 7)) * kUnit);
    }
  }

  __device__ __forceinline__ void run() {
    ptx::wait_for_previous_grid();  // before the bias and the source are read
    if (kAlternate && channel_group == 1) ptx::named_arrive(kTurnBarrier, 2 * kWarpGroup);
    for (Walk<Config> walk(p); walk.valid(); walk.next()) {
      int const block = walk.block(pixel_group), channel = walk.channel() + channel_group * kChannels;
      if (block >= p.blocks) {
        if constexpr (!kResident) pass_weights();
        continue;
      }
      bool const stores = channel < p.channels;
      float bias[2] = {};
      if constexpr (Chain::kBias) load_bias(channel, bias);
      Accumulator accumulator;
      multiply(accumulator, block, channel, stores, walk.last());
      first_tile = false;
      if (stores) finish(accumulator, bias, block, channel);
    }
    if (leader) ptx::wait_stores_read();  // shared memory must outlive the reads
  }

 protected:  // bolt/sm90_direct_b2b_kernel.cuh continues the same products
  // The other groups use this tile's weights: hand the stages back unread.
  __device__ __forceinline__ void pass_weights() {
    for (int i = 0; i < at.stages_per_tile; ++i) {
      ptx::barrier_wait(at.at(at.weights_full, weight_ring.stage), weight_ring.parity);
      if (lane == 0) ptx::barrier_arrive(at.at(at.weights_empty, weight_ring.stage));
      weight_ring.next(at.weight_stages);
    }
  }

  // A lane holds two rows of the accumulator: channel + 16 * warp + lane / 4, and 8 below.
  __device__ __forceinline__ void load_bias(int channel, float (&bias)[2]) {
    Element const* from = static_cast<Element const*>(p.bias);
    int const row = channel + warp * 16 + lane / 4;
    if (row < p.channels) bias[0] = float(from[row]);
    if (row + 8 < p.channels) bias[1] = float(from[row + 8]);
  }

  // The result buffer becomes the source's as soon as the last store has read it.
  __device__ __forceinline__ void request_source(int block, int channel) {
    BlockOrigin const origin(p, block);
    uint32_t const full = at.at(at.source_full, group);
    ptx::wait_stores_read();
    ptx::barrier_arrive_expect(full, p.block_height * p.block_width * kRowBytes);
    ptx::load_4d(result, &p.source, full, channel, origin.x, origin.y, origin.image);
  }

  // Products of one weight stage: its taps against the shifted pixels. Leaves the address of the next tap.
  __device__ __forceinline__ void multiply_stage(Accumulator& accumulator, gmma::ScaleOut& scale, int weight_stage,
                                                 uint32_t& tap_address, int& filter_column) {
    constexpr int kStep = kWgmmaK * 2 / kUnit;
    uint32_t const own_rows = kAlternate ? 0 : channel_group * kChannels * kRowBytes;
    uint32_t const weight_address = (at.weights + weight_stage * I::kWeightStage + own_rows) / kUnit;
    ptx::fence_registers(accumulator);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kTapsPerStage; ++k) {
      uint64_t const a = descriptor_base(kAtomBytes) | (weight_address + k * (I::kWeightTile / kUnit));
      uint64_t const b = descriptor_base(p.group_bytes) | tap_address;
#pragma unroll
      for (int q = 0; q < kChannels / kWgmmaK; ++q) {
        wgmma<Op>(a + q * kStep, b + q * kStep, accumulator, scale, std::make_index_sequence<kPixels / 2>{});
        scale = gmma::ScaleOut::One;
      }
      tap_address += p.column_step;
      if (++filter_column == p.filter_width) {
        filter_column = 0;
        tap_address += p.row_step - p.filter_width * p.column_step;
      }
    }
    ptx::wgmma_commit();
  }

  // One tile. A stage is handed back one group of products late, when it is certain that they are over.
  __device__ __forceinline__ void multiply(Accumulator& accumulator, int block, int channel, bool stores, bool last) {
    auto scale = gmma::ScaleOut::Zero;
    int used_pixels = -1, used_weights = -1;
    if constexpr (kResident) weight_ring.stage = 0;
#pragma unroll 1
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      int const stage = pixel_group * p.pixel_stages + pixel_ring.stage;
      ptx::barrier_wait(at.at(at.pixels_full, stage), pixel_ring.parity);
      if constexpr (kAlternate) ptx::named_sync(kTurnBarrier + channel_group, 2 * kWarpGroup);  // my turn
      uint32_t tap_address = (at.pixels + stage * p.pixel_stage_bytes) / kUnit;
      int filter_column = 0;
#pragma unroll 1
      for (int tap = 0; tap < p.taps; tap += kTapsPerStage) {
        int const weight_stage = (kAlternate ? channel_group * at.weight_stages : 0) + weight_ring.stage;
        if (!kResident || first_tile) {
          ptx::barrier_wait(at.at(at.weights_full, weight_stage), kResident ? 0 : weight_ring.parity);
        }
        multiply_stage(accumulator, scale, weight_stage, tap_address, filter_column);
        if constexpr (kAlternate) {  // all of the chunk issued: the other's turn, if it has one left
          bool const over = channel_group == 1 && chunk + 1 == p.chunks && last;
          if (tap + kTapsPerStage == p.taps && !over) {
            ptx::named_arrive(kTurnBarrier + (channel_group ^ 1), 2 * kWarpGroup);
          }
        }
        if constexpr (Chain::kSource) {
          if (leader && stores && chunk == 0 && tap == 0) request_source(block, channel);
        }
        ptx::wgmma_wait<1>();
        ptx::fence_registers(accumulator);
        if (lane == 0) {
          if (!kResident && used_weights >= 0) ptx::barrier_arrive(at.at(at.weights_empty, used_weights));
          if (tap == 0 && used_pixels >= 0) ptx::barrier_arrive(at.at(at.pixels_empty, used_pixels));
        }
        used_weights = weight_stage;
        weight_ring.next(at.weight_stages);
      }
      used_pixels = stage;
      pixel_ring.next(p.pixel_stages);
    }
    if (!Chain::kSource && leader) ptx::wait_stores_read();
    ptx::wgmma_wait<0>();
    ptx::fence_registers(accumulator);
    if (lane == 0) {
      if (!kResident) ptx::barrier_arrive(at.at(at.weights_empty, used_weights));
      ptx::barrier_arrive(at.at(at.pixels_empty, used_pixels));
    }
  }

  // Chain and conversion of two neighbouring pixels of one channel.
  __device__ __forceinline__ static uint32_t convert(float const* values, float bias, uint32_t source) {
    float2 const from = Chain::kSource ? unpack_pair<Element>(source) : make_float2(0.f, 0.f);
    return pack_pair<Element, Config::kFinalRelu>(Chain::apply(values[0], bias, from.x),
                                                  Chain::apply(values[1], bias, from.y));
  }

  // Epilogue: chain, transposition into [pixel][64 channels], one TMA store.
  __device__ __forceinline__ void finish(Accumulator const& accumulator, float const (&bias)[2], int block,
                                         int channel) {
    if constexpr (Chain::kSource) {
      ptx::barrier_wait(at.at(at.source_full, group), source_parity);
      source_parity ^= 1;
    } else {
      ptx::named_sync(group + 1, kWarpGroup);  // the leader has seen the last store read the buffer
    }
    uint32_t source[4] = {};
#pragma unroll
    for (int j = 0; j < kPixels / 16; ++j) {
      float const* v = accumulator + j * 8;
      if constexpr (Chain::kSource) ptx::load_matrices_4(place[j], source);
      ptx::store_matrices_4(place[j], convert(v, bias[0], source[0]), convert(v + 2, bias[1], source[1]),
                            convert(v + 4, bias[0], source[2]), convert(v + 6, bias[1], source[3]));
    }
    if constexpr (kPixels % 16 != 0) {
      constexpr int kLast = kPixels / 16;
      float const* v = accumulator + kLast * 8;
      if constexpr (Chain::kSource) ptx::load_matrices_2(place[kLast], source);
      ptx::store_matrices_2(place[kLast], convert(v, bias[0], source[0]), convert(v + 2, bias[1], source[1]));
    }
    ptx::fence_async_proxy();
    ptx::named_sync(group + 1, kWarpGroup);
    if (leader) {
      BlockOrigin const origin(p, block);
      ptx::store_4d(&p.output, result, channel, origin.x, origin.y, origin.image);
    }
  }
};

template <class Config>
__global__ void __launch_bounds__(Instance<Config>::kThreads, Config::kBlocksPerSm)
    conv_direct(__grid_constant__ Params const p) {
  using I = Instance<Config>;
  extern __shared__ uint8_t shared[];
  Layout<Config> const at(p, (ptx::shared_address(shared) + kAtomBytes - 1) / kAtomBytes * kAtomBytes);
  int const warp = __shfl_sync(~0u, threadIdx.x / kWarp, 0), lane = threadIdx.x % kWarp;
  constexpr int kProducerWarp = I::kGroups * kWarpGroup / kWarp;

  if (threadIdx.x == kProducerWarp * kWarp) {
    ptx::prefetch_descriptor(&p.input);
    ptx::prefetch_descriptor(&p.weights);
    ptx::prefetch_descriptor(&p.output);
    if constexpr (Config::Chain::kSource) ptx::prefetch_descriptor(&p.source);
  }
  prepare(p, at);
  __syncthreads();
  ptx::launch_dependents();

  // Registers move from the producers to the consumers where their sum allows it: two or four consumer groups.
  if (warp >= kProducerWarp) {
    if constexpr (I::kGroups == 4) ptx::registers_release<24>();
    if constexpr (I::kGroups == 2) ptx::registers_release<40>();
    if (warp == kProducerWarp && lane == 0) {
      load_pixels(p, at);
    } else if (warp > kProducerWarp && warp <= kProducerWarp + I::kRings && lane == 0) {
      load_weights(p, at, warp - kProducerWarp - 1);
    }
  } else {
    if constexpr (I::kGroups == 4) ptx::registers_acquire<112>();
    if constexpr (I::kGroups == 2) ptx::registers_acquire<232>();
    Consumer<Config>(p, at, warp).run();
  }
}

}  // namespace bolt::direct
