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
#include "bolt/abi.h"
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
constexpr int kChannels = 64;                             // output channels of a wgmma, input channels of a chunk
constexpr int kRowBytes = 128;                            // one pixel (or one output channel) x kChannels x 2 bytes
constexpr int kAtomBytes = 1024;                          // 8 rows: the swizzle repeats
constexpr int kUnit = 16;                                 // descriptors count in 16 bytes
constexpr int kWgmmaK = 16;                               // input channels of one wgmma
constexpr int kSmemPerSm = 233472, kSmemPerBlock = 232448;  // compute capability 9.0
constexpr int kOverhead = 2048;                           // alignment to kAtomBytes, and kAtomBytes of barriers
constexpr int kReservedPerBlock = 1024;                   // what the runtime takes of each resident CTA
constexpr int kMaxPixelStages = 4, kMaxWeightStages = 8, kMaxResidentStages = 32;
constexpr int kMaxBox = 256;                              // extent of a TMA box
constexpr int kTurnBarrier = 8;                           // named barriers 8 and 9 pass the turn; 1.. are the groups'
constexpr int kBarrierBytes = 8;

enum Geometry : int { kChoose = 0, kPatch = 1, kRows = 2 };

template <int kPixels, class Element>
struct Wgmma;
#define BOLT_WGMMA(N)                                                             \
  template <>                                                                     \
  struct Wgmma<N, cutlass::half_t> {                                              \
    using Op = gmma::MMA_64x##N##x16_F32F16F16_SS<gmma::Major::K, gmma::Major::K>; \
  };                                                                              \
  template <>                                                                     \
  struct Wgmma<N, cutlass::bfloat16_t> {                                          \
    using Op = gmma::MMA_64x##N##x16_F32BF16BF16_SS<gmma::Major::K, gmma::Major::K>; \
  };
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
  int channels;                         // output channels
  int blocks, blocks_per_image, blocks_across;
  int block_height, block_width;        // output pixels a block stores
  int columns, columns_inverse;         // wgmma pixel j is row j / columns, column j % columns; inverse in 1 / 65536
  int group_bytes;                      // from 8 pixels to the next 8 in shared memory
  int taps, filter_width, chunks;       // chunks: of 64 input channels
  int pad_top, pad_left;
  int box_bytes, pixel_stage_bytes;     // what TMA brings; what a stage takes
  int pixel_stages, weight_stages;
  int tiles, channel_tiles;             // streamed weights: CTA tiles, channels fastest
  int column_step, row_step;            // a filter column, a filter row in shared memory, in descriptor units
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

template <class Config>
__global__ void __launch_bounds__(Instance<Config>::kThreads, Config::kBlocksPerSm)
    conv_direct(__grid_constant__ Params const p) {
  using I = Instance<Config>;
  using Element = typename Config::Element;
  using Chain = typename Config::Chain;
  using Op = typename Wgmma<Config::kPixels, Element>::Op;
  constexpr int kPixels = I::kPixels, kPixelGroups = I::kPixelGroups, kChannelGroups = I::kChannelGroups;
  constexpr int kGroups = I::kGroups, kRings = I::kRings, kTapsPerStage = Config::kTapsPerStage;
  constexpr bool kResident = Config::kResident, kAlternate = Config::kAlternate;

  extern __shared__ uint8_t shared[];
  uint32_t const base = (ptx::shared_address(shared) + kAtomBytes - 1) / kAtomBytes * kAtomBytes;
  int const groups_of_taps = p.taps / kTapsPerStage;
  int const stages_per_tile = groups_of_taps * p.chunks;
  int const weight_stages = kResident ? stages_per_tile : p.weight_stages;
  uint32_t const weights = base;
  uint32_t const pixels = weights + kRings * weight_stages * I::kWeightStage;
  uint32_t const results = pixels + kPixelGroups * p.pixel_stages * p.pixel_stage_bytes;
  uint32_t const pixels_full = results + kGroups * I::kResultBytes;
  uint32_t const pixels_empty = pixels_full + kPixelGroups * p.pixel_stages * kBarrierBytes;
  uint32_t const weights_full = pixels_empty + kPixelGroups * p.pixel_stages * kBarrierBytes;
  uint32_t const weights_empty = weights_full + kRings * weight_stages * kBarrierBytes;
  uint32_t const source_full = weights_empty + kRings * weight_stages * kBarrierBytes;
  auto at = [](uint32_t barriers, int index) { return barriers + index * kBarrierBytes; };

  int const warp = __shfl_sync(~0u, threadIdx.x / kWarp, 0), lane = threadIdx.x % kWarp;
  constexpr int kProducerWarp = kGroups * kWarpGroup / kWarp;

  if (threadIdx.x == kProducerWarp * kWarp) {
    ptx::prefetch_descriptor(&p.input);
    ptx::prefetch_descriptor(&p.weights);
    ptx::prefetch_descriptor(&p.output);
    if constexpr (Chain::kSource) ptx::prefetch_descriptor(&p.source);
  }
  if (threadIdx.x == 0) {
    constexpr int kWarpsPerGroup = kWarpGroup / kWarp;
    for (int i = 0; i < kPixelGroups * p.pixel_stages; ++i) {
      ptx::barrier_init(at(pixels_full, i), 1);
      ptx::barrier_init(at(pixels_empty, i), kWarpsPerGroup * kChannelGroups);
    }
    for (int i = 0; i < kRings * weight_stages; ++i) {
      ptx::barrier_init(at(weights_full, i), 1);
      ptx::barrier_init(at(weights_empty, i), kWarpsPerGroup * kGroups / kRings);
    }
    for (int i = 0; i < kGroups; ++i) ptx::barrier_init(at(source_full, i), 1);
    ptx::barrier_init_fence();
  }
  // The pixels just past each box stand for the right padding of its last row: zero for good, TMA never writes there.
  int const slack = (p.pixel_stage_bytes - p.box_bytes) / kUnit;
  for (int i = threadIdx.x; i < kPixelGroups * p.pixel_stages * slack; i += blockDim.x) {
    int const stage = i / slack;
    uint32_t const to = pixels + stage * p.pixel_stage_bytes + p.box_bytes + (i - stage * slack) * kUnit;
    asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(to), "r"(0) : "memory");
  }
  ptx::fence_async_proxy();
  __syncthreads();
  ptx::launch_dependents();

  // Resident weights: each pixel group walks blocks of its own. Streamed: the groups walk tiles together.
  auto block_of = [&](int step, int group) {
    return kResident ? step + group * int(gridDim.x) : (step / p.channel_tiles) * kPixelGroups + group;
  };
  int const step_size = kResident ? gridDim.x * kPixelGroups : gridDim.x;
  int const step_end = kResident ? p.blocks : p.tiles;

  if (warp >= kProducerWarp) {
    if constexpr (kGroups == 4) ptx::registers_release<24>();
    if constexpr (kGroups == 2) ptx::registers_release<40>();
    if (warp == kProducerWarp && lane == 0) {  // ---- pixels
      ptx::wait_for_previous_grid();
      ptx::Ring ring;
      ring.parity = 1;
      for (int step = blockIdx.x; step < step_end; step += step_size) {
        for (int chunk = 0; chunk < p.chunks; ++chunk) {
#pragma unroll 1
          for (int group = 0; group < kPixelGroups; ++group) {
            int const block = block_of(step, group);
            if (block >= p.blocks) break;
            BlockOrigin const origin(p, block);
            int const stage = group * p.pixel_stages + ring.stage;
            ptx::barrier_wait(at(pixels_empty, stage), ring.parity);
            ptx::barrier_arrive_expect(at(pixels_full, stage), p.box_bytes);
            ptx::load_4d(pixels + stage * p.pixel_stage_bytes, &p.input, at(pixels_full, stage), chunk * kChannels,
                         origin.x - p.pad_left, origin.y - p.pad_top, origin.image);
          }
          ring.next(p.pixel_stages);
        }
      }
    } else if (warp > kProducerWarp && warp <= kProducerWarp + kRings && lane == 0) {  // ---- weights
      int const ring_index = warp - kProducerWarp - 1, first_stage = ring_index * weight_stages;
      if (!p.weights_constant) ptx::wait_for_previous_grid();
      ptx::Ring ring;
      ring.parity = 1;
      int const end = kResident ? blockIdx.x + 1 : p.tiles;
      for (int step = blockIdx.x; step < end; step += step_size) {
        int const channel = kResident ? 0 : (step % p.channel_tiles) * kChannels * kChannelGroups + ring_index * I::kWeightRows;
        for (int chunk = 0; chunk < p.chunks; ++chunk) {
          for (int group = 0; group < groups_of_taps; ++group) {
            int const stage = first_stage + ring.stage;
            if constexpr (!kResident) ptx::barrier_wait(at(weights_empty, stage), ring.parity);
            ptx::barrier_arrive_expect(at(weights_full, stage), I::kWeightStage);
            ptx::load_3d(weights + stage * I::kWeightStage, &p.weights, at(weights_full, stage), chunk * kChannels,
                         channel, group * kTapsPerStage);
            ring.next(weight_stages);
          }
        }
      }
    }
    return;
  }

  // ---- consumers
  if constexpr (kGroups == 4) ptx::registers_acquire<112>();
  if constexpr (kGroups == 2) ptx::registers_acquire<232>();
  int const group = warp / 4, channel_group = group % kChannelGroups, pixel_group = group / kChannelGroups;
  int const warp_in_group = warp % 4;
  bool const leader = threadIdx.x % kWarpGroup == 0;  // owns this group's bulk copies
  uint64_t const weight_descriptor = descriptor_base(kAtomBytes), pixel_descriptor = descriptor_base(p.group_bytes);
  uint32_t const result = results + group * I::kResultBytes;
  int const column_step = p.column_step, row_step = p.row_step;
  int const first_stage = kAlternate ? channel_group * weight_stages : 0;
  ptx::Ring pixel_ring, weight_ring;
  uint32_t source_parity = 0;
  bool first_tile = true;

  // Where this lane's 8x8 matrices lie in the result buffer; pixels outside the image share the spare row.
  constexpr int kMatrixRows = (kPixels + 8) / 16;
  uint32_t place[kMatrixRows];
#pragma unroll
  for (int j = 0; j < kMatrixRows; ++j) {
    int const pixel = (j * 2 + lane / 16) * 8 + lane % 8;
    int const y = (pixel * p.columns_inverse) >> 16, x = pixel - y * p.columns;
    int const row = x < p.block_width ? y * p.block_width + x : kPixels;
    place[j] = result + row * kRowBytes + (((warp_in_group * 2 + lane / 8 % 2) ^ (row & 7)) * kUnit);
  }
  ptx::wait_for_previous_grid();  // before the bias and the source are read
  if (kAlternate && channel_group == 1) ptx::named_arrive(kTurnBarrier, 2 * kWarpGroup);

  for (int step = blockIdx.x; step < step_end; step += step_size) {
    int const block = block_of(step, pixel_group);
    int const channel0 = (kResident ? 0 : (step % p.channel_tiles) * kChannels * kChannelGroups) + channel_group * kChannels;
    if (block >= p.blocks) {
      if constexpr (!kResident) {  // the other groups use these weights: hand the stages back unread
        for (int i = 0; i < stages_per_tile; ++i) {
          ptx::barrier_wait(at(weights_full, weight_ring.stage), weight_ring.parity);
          if (lane == 0) ptx::barrier_arrive(at(weights_empty, weight_ring.stage));
          weight_ring.next(weight_stages);
        }
      }
      continue;
    }
    bool const stores = channel0 < p.channels;
    int const channel = channel0 + warp_in_group * 16 + lane / 4;  // and channel + 8
    float bias0 = 0.f, bias1 = 0.f;
    if constexpr (Chain::kBias) {
      Element const* bias = static_cast<Element const*>(p.bias);
      if (channel < p.channels) bias0 = float(bias[channel]);
      if (channel + 8 < p.channels) bias1 = float(bias[channel + 8]);
    }

    float accumulator[kPixels / 2];
    auto scale = gmma::ScaleOut::Zero;
    int used_pixels = -1, used_weights = -1;
    if constexpr (kResident) weight_ring.stage = 0;
#pragma unroll 1
    for (int chunk = 0; chunk < p.chunks; ++chunk) {
      int const stage = pixel_group * p.pixel_stages + pixel_ring.stage;
      ptx::barrier_wait(at(pixels_full, stage), pixel_ring.parity);
      if constexpr (kAlternate) ptx::named_sync(kTurnBarrier + channel_group, 2 * kWarpGroup);  // my turn
      uint32_t tap_address = (pixels + stage * p.pixel_stage_bytes) / kUnit;
      int filter_column = 0;
#pragma unroll 1
      for (int tap = 0; tap < p.taps; tap += kTapsPerStage) {
        int const weight_stage = first_stage + weight_ring.stage;
        if (!kResident || first_tile) ptx::barrier_wait(at(weights_full, weight_stage), kResident ? 0 : weight_ring.parity);
        uint32_t const weight_address =
            (weights + weight_stage * I::kWeightStage + (kAlternate ? 0 : channel_group * kChannels * kRowBytes)) / kUnit;
        ptx::fence_registers(accumulator);
        ptx::wgmma_fence();
#pragma unroll
        for (int k = 0; k < kTapsPerStage; ++k) {
          uint64_t const a = weight_descriptor | (weight_address + k * (I::kWeightTile / kUnit));
          uint64_t const b = pixel_descriptor | tap_address;
          constexpr int kStep = kWgmmaK * 2 / kUnit;
#pragma unroll
          for (int q = 0; q < kChannels / kWgmmaK; ++q) {
            wgmma<Op>(a + q * kStep, b + q * kStep, accumulator, scale, std::make_index_sequence<kPixels / 2>{});
            scale = gmma::ScaleOut::One;
          }
          tap_address += column_step;
          if (++filter_column == p.filter_width) {
            filter_column = 0;
            tap_address += row_step - p.filter_width * column_step;
          }
        }
        ptx::wgmma_commit();
        bool const last_of_all = channel_group == 1 && chunk + 1 == p.chunks && step + step_size >= step_end;
        if (kAlternate && tap + kTapsPerStage == p.taps && !last_of_all) {
          ptx::named_arrive(kTurnBarrier + (channel_group ^ 1), 2 * kWarpGroup);  // all issued: the other's turn
        }
        if constexpr (Chain::kSource) {
          // The result buffer becomes the source's as soon as the last store has read it: behind the products.
          if (leader && stores && chunk == 0 && tap == 0) {
            BlockOrigin const origin(p, block);
            ptx::wait_stores_read();
            ptx::barrier_arrive_expect(at(source_full, group), p.block_height * p.block_width * kRowBytes);
            ptx::load_4d(result, &p.source, at(source_full, group), channel0, origin.x, origin.y, origin.image);
          }
        }
        ptx::wgmma_wait<1>();
        ptx::fence_registers(accumulator);
        if (lane == 0) {  // every product before this stage's is finished
          if (!kResident && used_weights >= 0) ptx::barrier_arrive(at(weights_empty, used_weights));
          if (tap == 0 && used_pixels >= 0) ptx::barrier_arrive(at(pixels_empty, used_pixels));
        }
        used_weights = weight_stage;
        weight_ring.next(weight_stages);
      }
      used_pixels = stage;
      pixel_ring.next(p.pixel_stages);
    }
    if (!Chain::kSource && leader) ptx::wait_stores_read();
    ptx::wgmma_wait<0>();
    ptx::fence_registers(accumulator);
    if (lane == 0) {
      if (!kResident) ptx::barrier_arrive(at(weights_empty, used_weights));
      ptx::barrier_arrive(at(pixels_empty, used_pixels));
    }
    first_tile = false;
    if (!stores) continue;
    if constexpr (Chain::kSource) {
      ptx::barrier_wait(at(source_full, group), source_parity);
      source_parity ^= 1;
    } else {
      ptx::named_sync(group + 1, kWarpGroup);  // the buffer is free for all
    }

    // Chain, conversion, transposition into [pixel][64 channels]. `row` 0 is `channel`, 1 is `channel` + 8.
    auto finish = [&](float const* values, int row, uint32_t source) {
      float2 const from = Chain::kSource ? unpack_pair<Element>(source) : make_float2(0.f, 0.f);
      float const bias = row ? bias1 : bias0;
      return pack_pair<Element, Config::kFinalRelu>(Chain::apply(values[0], bias, from.x),
                                                    Chain::apply(values[1], bias, from.y));
    };
    uint32_t source[4] = {};
#pragma unroll
    for (int j = 0; j < kPixels / 16; ++j) {
      float const* v = accumulator + j * 8;
      if constexpr (Chain::kSource) ptx::load_matrices_4(place[j], source);
      ptx::store_matrices_4(place[j], finish(v, 0, source[0]), finish(v + 2, 1, source[1]),
                            finish(v + 4, 0, source[2]), finish(v + 6, 1, source[3]));
    }
    if constexpr (kPixels % 16 != 0) {
      constexpr int kLast = kPixels / 16;
      float const* v = accumulator + kLast * 8;
      if constexpr (Chain::kSource) ptx::load_matrices_2(place[kLast], source);
      ptx::store_matrices_2(place[kLast], finish(v, 0, source[0]), finish(v + 2, 1, source[1]));
    }
    ptx::fence_async_proxy();
    ptx::named_sync(group + 1, kWarpGroup);
    if (leader) {
      BlockOrigin const origin(p, block);
      ptx::store_4d(&p.output, result, channel0, origin.x, origin.y, origin.image);
    }
  }
  if (leader) ptx::wait_stores_read();  // shared memory must outlive the reads
}

// The smallest grid geometry and shared-memory split for a problem. False when the instance does not serve it.
template <class Config>
struct Plan {
  using I = Instance<Config>;
  Params params{};
  int smem = 0, grid = 0;
  int pitch = 0, box_height = 0;

  // `geometry` as asked for; kChoose takes the one with fewer blocks.
  bool make(bolt_args const& a) {
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
    grid = least(Config::kResident ? p.blocks : p.tiles, a.sm_count * Config::kBlocksPerSm);
    return split_shared_memory();
  }

  // Descriptors; false if the driver refuses one.
  bool encode(bolt_args const& a) {
    using Element = typename Config::Element;
    using Extent = cuuint64_t;
    using Box = cuuint32_t;
    constexpr Extent kSize = sizeof(Element);
    Params& p = params;
    Extent const c = a.c, w = a.w, h = a.h, n = a.cn, k = a.cout, q = a.q, rows = a.p, taps = p.taps;
    Box const block[4] = {kChannels, Box(p.block_width), Box(p.block_height), 1};
    bool good = ptx::encode<Element, 4>(p.input, a.a, {c, w, h, n}, {c * kSize, w * c * kSize, h * w * c * kSize},
                                        {kChannels, Box(pitch), Box(box_height), 1});
    good = good && ptx::encode<Element, 3>(p.weights, a.b, {c, k, taps}, {taps * c * kSize, c * kSize},
                                           {kChannels, Box(I::kWeightRows), Box(Config::kTapsPerStage)});
    good = good && ptx::encode<Element, 4>(p.output, a.d, {k, q, rows, n},
                                           {k * kSize, q * k * kSize, rows * q * k * kSize}, block);
    if (Config::Chain::kSource) {
      good = good && ptx::encode<Element, 4>(p.source, a.source, {k, q, rows, n},
                                             {k * kSize, q * k * kSize, rows * q * k * kSize}, block);
    }
    return good;
  }

 private:
  static int least(int a, int b) { return a < b ? a : b; }
  static int ceil_div(int a, int b) { return (a + b - 1) / b; }

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
  auto kernel = conv_direct<Config>;
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemPerBlock) != cudaSuccess) {
    return BOLT_E_LAUNCH;
  }
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = plan.grid;
  config.blockDim = Instance<Config>::kThreads;
  config.dynamicSmemBytes = plan.smem;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = args.pdl ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, plan.params) == cudaSuccess ? BOLT_OK : BOLT_E_LAUNCH;
}

}  // namespace bolt::direct
