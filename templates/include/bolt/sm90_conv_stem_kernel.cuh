// First layers ("stems") for Hopper (sm_90a): convolution forward of few input channels, NHWC 16-bit types, fp32
// accumulation, a generated epilogue. Serves C * stride_w = 8 in one phase (C = 4, stride 2; C = 8, stride 1) and
// C * stride_w = 4 in two (C = 4, stride 1); dilation 1.
//
// The product is transposed: D^T[channels x pixels] = W[channels x k] * X^T[k x pixels], a wgmma's M is 64 output
// channels, its N is kColumns output pixels. There is no im2col, in memory or in shared memory:
//
//   pixels   One filter row's window of output pixel q is a contiguous piece of the input row, and it starts 16 bytes
//            (C * stride_w = 8 elements, a `unit`) after the window of pixel q - 1. Without swizzle a wgmma core matrix
//            is 8 rows of 16 bytes, contiguous, and the descriptor's strides between core matrices are free
//            (PTX ISA, wgmma shared memory matrix layout; cute/atom/mma_traits_sm90_gmma.hpp, K-major INTERLEAVE:
//            ((8,n),2):((1,SBO),LBO)). So the raw row is the operand: 8 pixels are 8 units in a row, SBO is 128 bytes,
//            and the core matrices along K overlap. Units of all filter rows are paired into wgmma steps of 16
//            elements; LBO is the distance of a pair, one unit within a row, more where a pair crosses rows.
//            A window's units beyond its taps, and the odd unit out, meet zero weights.
//   loads    TMA sees an image row as elements of 8 bytes (4 channels), so a box spans 256 of them, and is filled with
//            zeros outside the image: that is the padding. A box has to start at a multiple of 16 bytes (an illegal
//            instruction otherwise), so with C = 4 it may start one pixel before the first window: that pixel meets
//            zero weights, the filter's rows are written `lead` pieces further on.
//   phases   With C = 4 and stride 1 a window starts every 8 bytes: even and odd output pixels are two products of the
//            same rows, with two copies of the weights, one of them led by a pixel of zeros.
//   weights  All of them in shared memory for the life of the CTA, written there by the consumers as core matrices.
//   result   accumulators -> chain -> transposed by stmatrix into [pixel][64 channels] -> one TMA store, which clips
//            at the row's end and at the last channel.
//
// A block is `block_rows` output rows x kPhases * kColumns pixels, all channels; its input rows are a stage of a ring.
// The kGroups consumer warp groups share the stage and take (row, 64 channels) items of it in turn: one's epilogue runs
// behind the others' products. Warp 0 of a further warp group loads.
//
// Shared memory in bytes (the tuner computes the same, templates/sm90_stem/geometry.py):
//   2048 (alignment, barriers) + groups * buffers * pixels * 128 + phases * channel tiles * steps * 2048
//   + stages * round_up(box rows * row pitch * 16, 128)
//   row pitch = kColumns + window units - 1, and one more where the phases' windows start in different units
//
// Programmatic dependent launch: weights are constants, so they are read before the wait for the previous kernel; `pdl`
// = 2 says that they are not. A value of infinity or NaN in the input may spread to the pixels whose padded window sees
// it, window units - 1 to the left and one pixel to the right.
#pragma once
#include "bolt/activations.h"
#include "bolt/sm90_convert.cuh"
#include "bolt/sm90_ptx.cuh"

namespace bolt::stem {

constexpr int kWarp = 32, kWarpGroup = 128;
constexpr int kChannels = 64;  // output channels of a wgmma
constexpr int kRowBytes = 128;  // kChannels of a result pixel
constexpr int kAtomBytes = 1024;  // 8 result rows: the store's swizzle repeats
constexpr int kUnit = 16;  // bytes; descriptors count in it
constexpr int kUnitElements = 8;
constexpr int kPiece = 4, kPieceBytes = 8, kPiecesPerUnit = 2;  // channels TMA moves as one element
constexpr int kMatrixBytes = 8 * kUnit;  // a core matrix
constexpr int kHalfBytes = kChannels / 8 * kMatrixBytes;  // weights of one unit, all 64 channels
constexpr int kTileBytes = 2 * kHalfBytes;  // weights of one wgmma step
constexpr int kTmaAlign = 128;  // of a box without swizzle in shared memory
constexpr int kMaxSteps = 64, kMaxStages = 6, kMaxBox = 256, kMaxPhases = 2;
constexpr int kOverhead = 2048;  // alignment to kAtomBytes, and kAtomBytes of barriers
constexpr int kSmemPerBlock = 232448;  // compute capability 9.0
constexpr int kBarrierBytes = 8;

struct Params {
  CUtensorMap input, output;
  void const *weights, *bias;
  int channels, channel_tiles;                      // output channels; tiles of 64
  int blocks, blocks_per_image, blocks_across, block_rows, output_rows;
  int filter_rows, row_elements, row_units, units;  // of a filter: elements and units of a row, units in all
  int row_units_inverse;                            // in 1 / 65536
  int steps, stages;
  int column_step, first_column;                    // input columns in pieces: of a block, of the first block
  int row_step, first_row;                          // input rows: of an output row, of the first one
  int row_pitch, stage_bytes, box_bytes;            // shared memory: in units; of a stage; what TMA brings for it
  int lead[kMaxPhases], shift[kMaxPhases];          // of a phase: pieces before its first tap; units to its windows
  bool weights_constant;
  uint32_t step[kMaxSteps];                         // low word of a step's pixel descriptor, less the stage's address
};

// Compile-time facts of an instance.
template <class Config>
struct Instance {
  static constexpr int kColumns = Config::kColumns, kPhases = Config::kPhases, kGroups = Config::kGroups;
  static constexpr int kPixels = kColumns * kPhases;
  static constexpr int kResultBytes = kPixels * kRowBytes;
  static constexpr int kThreads = (kGroups + 1) * kWarpGroup;
  static_assert(kColumns % 8 == 0 && kPixels <= kMaxBox, "a wgmma's N is a multiple of 8, the store is one box");
  static_assert(kPhases <= kMaxPhases, "pieces of 8 bytes fit twice into a unit");
};

// Which unit of the flattened filter (rows, then units) is half `half` of step `step`; -1 for zeros. An odd last unit
// is paired with the one before it, so that the descriptor stays within loaded pixels.
__host__ __device__ inline int unit_of(int units, int step, int half) {
  if (2 * step + 1 < units) return 2 * step + half;
  return half ? units - 1 : -1;
}

// A unit of channel `channel`'s weights (KRSC): 8 elements of one filter row that begins `lead` pieces late, zeros
// before it and past its end; zeros for unit -1.
template <class Pieces>
__host__ __device__ inline void load_unit(Params const& p, int channel, int unit, int lead,
                                          Pieces (&to)[kPiecesPerUnit]) {
  int const row = unit * p.row_units_inverse >> 16, first = (unit - row * p.row_units) * kPiecesPerUnit - lead;
  int const row_pieces = p.row_elements / kPiece;
  bool const exists = unit >= 0 && channel < p.channels;
  Pieces const* from = static_cast<Pieces const*>(p.weights) + (channel * p.filter_rows + row) * row_pieces;
  for (int i = 0; i < kPiecesPerUnit; ++i) {
    int const piece = first + i;
    to[i] = exists && piece >= 0 && piece < row_pieces ? from[piece] : Pieces{};
  }
}

__device__ __forceinline__ void store_unit(uint32_t to, uint2 const (&pieces)[kPiecesPerUnit]) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(pieces[0].x), "r"(pieces[0].y),
               "r"(pieces[1].x), "r"(pieces[1].y)
               : "memory");
}

// Where everything lies in shared memory, as 32-bit addresses; barriers last.
template <class Config>
struct Layout {
  using I = Instance<Config>;
  uint32_t results, weights, pixels, full, empty;

  __device__ __forceinline__ Layout(Params const& p, uint32_t base) {
    results = base;
    weights = results + I::kGroups * Config::kBuffers * I::kResultBytes;
    pixels = weights + p.channel_tiles * tile_bytes(p);
    full = pixels + p.stages * p.stage_bytes;
    empty = full + p.stages * kBarrierBytes;
  }
  __device__ __forceinline__ uint32_t stage(Params const& p, int index) const {
    return pixels + index * p.stage_bytes;
  }
  // Weights of 64 channels, all phases.
  __device__ __forceinline__ static uint32_t tile_bytes(Params const& p) { return I::kPhases * p.steps * kTileBytes; }
};

// Where a block lies: across a row of blocks, down the image, then images.
struct BlockOrigin {
  int across, row, image;
  __device__ __forceinline__ BlockOrigin(Params const& p, int block) {
    image = block / p.blocks_per_image;
    int const rest = block - image * p.blocks_per_image;
    int const down = rest / p.blocks_across;
    across = rest - down * p.blocks_across;
    row = down * p.block_rows;
  }
};

// One thread.
template <class Config>
__device__ __forceinline__ void init_barriers(Params const& p, Layout<Config> const& at) {
  for (int i = 0; i < p.stages; ++i) {
    ptx::barrier_init(at.full + i * kBarrierBytes, 1);
    ptx::barrier_init(at.empty + i * kBarrierBytes, Instance<Config>::kGroups * kWarpGroup / kWarp);
  }
  ptx::barrier_init_fence();
}

// All consumers: the weights. A unit of 8 channels is a core matrix.
template <class Config>
__device__ __forceinline__ void load_weights(Params const& p, Layout<Config> const& at) {
  using I = Instance<Config>;
  constexpr int kConsumers = I::kGroups * kWarpGroup, kAllConsumersBarrier = I::kGroups + 1;
  constexpr int kLanes = kConsumers / kChannels, kBatch = 4;  // loads in flight
  if (!p.weights_constant) ptx::wait_for_previous_grid();
  int const slots = 2 * p.steps, row = threadIdx.x % kChannels;
  for (int part = 0; part < p.channel_tiles * I::kPhases; ++part) {
    int const tile = part / I::kPhases, lead = p.lead[part % I::kPhases];
    uint32_t const to = at.weights + part * p.steps * kTileBytes + row * kUnit;
#pragma unroll 1
    for (int start = threadIdx.x / kChannels; start < slots; start += kBatch * kLanes) {
      uint2 pieces[kBatch][kPiecesPerUnit];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        int const slot = start + j * kLanes;
        int const unit = slot < slots ? unit_of(p.units, slot / 2, slot % 2) : -1;
        load_unit(p, tile * kChannels + row, unit, lead, pieces[j]);
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        int const slot = start + j * kLanes;
        if (slot < slots) store_unit(to + slot * kHalfBytes, pieces[j]);
      }
    }
  }
  ptx::fence_async_proxy();
  ptx::named_sync(kAllConsumersBarrier, kConsumers);
}

// One thread: the input rows of every block.
template <class Config>
__device__ __forceinline__ void load_pixels(Params const& p, Layout<Config> const& at) {
  ptx::wait_for_previous_grid();
  ptx::Ring ring;
  ring.parity = 1;
  for (int block = blockIdx.x; block < p.blocks; block += gridDim.x) {
    BlockOrigin const origin(p, block);
    uint32_t const full = at.full + ring.stage * kBarrierBytes;
    ptx::barrier_wait(at.empty + ring.stage * kBarrierBytes, ring.parity);
    ptx::barrier_arrive_expect(full, p.box_bytes);
    ptx::load_3d(at.stage(p, ring.stage), &p.input, full, origin.across * p.column_step + p.first_column,
                 origin.row * p.row_step + p.first_row, origin.image);
    ring.next(p.stages);
  }
}

// One consumer warp group.
template <class Config>
struct Consumer {
  using I = Instance<Config>;
  using Element = typename Config::Element;
  using Chain = typename Config::Chain;
  static constexpr int kColumns = I::kColumns, kPhases = I::kPhases, kGroups = I::kGroups;
  static constexpr int kBuffers = Config::kBuffers;
  static constexpr uint32_t kGroupOffset = kMatrixBytes / kUnit;  // SBO of both operands: 8 rows to the next 8
  using Accumulator = float[kPhases][kColumns / 2];

  Params const& p;
  Layout<Config> const& at;
  int const group, warp, lane;
  bool const leader;  // owns this group's bulk stores
  int buffer = 0;

  __device__ __forceinline__ Consumer(Params const& p_, Layout<Config> const& at_, int warp_in_cta)
      : p(p_), at(at_), group(warp_in_cta / 4), warp(warp_in_cta % 4), lane(threadIdx.x % kWarp),
        leader(threadIdx.x % kWarpGroup == 0) {}

  __device__ __forceinline__ void run() {
    ptx::wait_for_previous_grid();  // the output may be what the kernel before still reads
    ptx::Ring ring;
    float bias[2] = {};
    if constexpr (Chain::kBias) load_bias(0, bias);
    int first = group;  // the groups' turns go on from block to block
    for (int block = blockIdx.x; block < p.blocks; block += gridDim.x) {
      BlockOrigin const origin(p, block);
      int const rows_left = p.output_rows - origin.row;
      int const items = (rows_left < p.block_rows ? rows_left : p.block_rows) * p.channel_tiles;
      uint32_t const empty = at.empty + ring.stage * kBarrierBytes;
      ptx::barrier_wait(at.full + ring.stage * kBarrierBytes, ring.parity);
      if (first >= items && lane == 0) ptx::barrier_arrive(empty);
      int item = first;
#pragma unroll 1
      for (; item < items; item += kGroups) {
        int row = item, tile = 0;
        if (p.channel_tiles > 1) {
          row = item / p.channel_tiles;
          tile = item - row * p.channel_tiles;
          if constexpr (Chain::kBias) load_bias(tile * kChannels, bias);
        }
        Accumulator accumulator;
        multiply(accumulator, ring.stage, row, tile);
        if (item + kGroups >= items && lane == 0) ptx::barrier_arrive(empty);
        finish(accumulator, bias, origin, row, tile * kChannels);
      }
      first = item - items;
      ring.next(p.stages);
    }
    if (leader) ptx::wait_stores_read();  // shared memory must outlive the reads
  }

 private:
  // A lane holds two rows of the accumulator: channel + 16 * warp + lane / 4, and 8 below.
  __device__ __forceinline__ void load_bias(int channel, float (&bias)[2]) {
    Element const* from = static_cast<Element const*>(p.bias);
    int const row = channel + warp * 16 + lane / 4;
    bias[0] = row < p.channels ? float(from[row]) : 0.f;
    bias[1] = row + 8 < p.channels ? float(from[row + 8]) : 0.f;
  }

  // All of one item's products; returns when they are over and the result buffer may be written.
  __device__ __forceinline__ void multiply(Accumulator& accumulator, int stage, int row, int tile) {
    constexpr uint64_t kStrides = uint64_t(kGroupOffset) << 32;  // no swizzle: layout type 0
    constexpr uint32_t kHalfOffset = (kHalfBytes / kUnit) << 16;
    constexpr int kTurn = 2;  // products issued back to back
    uint32_t const weights = ((at.weights + tile * at.tile_bytes(p)) / kUnit) | kHalfOffset;
    uint32_t const phase_weights = p.steps * (kTileBytes / kUnit);
    uint32_t const pixels = at.stage(p, stage) / kUnit + row * p.row_step * p.row_pitch;
    auto const add = [&](int step) {
      uint32_t const filter = weights + step * (kTileBytes / kUnit), window = pixels + p.step[step];
#pragma unroll
      for (int phase = 0; phase < kPhases; ++phase) {
        Config::multiply(accumulator[phase], kStrides | (filter + phase * phase_weights),
                         kStrides | (window + p.shift[phase]), step);
      }
    };
#pragma unroll
    for (int phase = 0; phase < kPhases; ++phase) ptx::fence_registers(accumulator[phase]);
    ptx::wgmma_fence();
    // Committed in the loop: a commit that does not follow its products directly becomes a product of its own in SASS,
    // with a null descriptor.
    int step = 0;
#pragma unroll 1
    for (; step + kTurn <= p.steps; step += kTurn) {
#pragma unroll
      for (int i = 0; i < kTurn; ++i) add(step + i);
      ptx::wgmma_commit();
    }
    if (step < p.steps) {
      add(step);
      ptx::wgmma_commit();
    }
    if (leader) {
      asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kBuffers - 1) : "memory");
    }
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int phase = 0; phase < kPhases; ++phase) ptx::fence_registers(accumulator[phase]);
  }

  // Chain and conversion of two accumulators of one channel.
  __device__ __forceinline__ static uint32_t convert(float const* values, float bias) {
    return pack_pair<Element, Config::kFinalRelu>(Chain::apply(values[0], bias, 0.f),
                                                  Chain::apply(values[1], bias, 0.f));
  }

  // Epilogue: chain, transposition into [pixel][64 channels], one TMA store. Column j of a phase is pixel
  // j * kPhases + phase; its low three bits, which swizzle the store, are the same for every 16 columns.
  __device__ __forceinline__ void finish(Accumulator const& accumulator, float const (&bias)[2],
                                         BlockOrigin const& origin, int row, int channel) {
    ptx::named_sync(group + 1, kWarpGroup);  // the leader has seen an earlier store read the buffer
    uint32_t const result = at.results + (group * kBuffers + buffer) * I::kResultBytes;
#pragma unroll
    for (int phase = 0; phase < kPhases; ++phase) {
      int const pixel = (lane / 16 * 8 + lane % 8) * kPhases + phase;
      uint32_t const place = result + pixel * kRowBytes + (((warp * 2 + lane / 8 % 2) ^ (pixel & 7)) * kUnit);
#pragma unroll
      for (int j = 0; j < kColumns / 16; ++j) {
        float const* v = accumulator[phase] + j * 8;
        ptx::store_matrices_4(place + j * 16 * kPhases * kRowBytes, convert(v, bias[0]), convert(v + 2, bias[1]),
                              convert(v + 4, bias[0]), convert(v + 6, bias[1]));
      }
      if constexpr (kColumns % 16 != 0) {
        constexpr int kLast = kColumns / 16;
        float const* v = accumulator[phase] + kLast * 8;
        ptx::store_matrices_2(place + kLast * 16 * kPhases * kRowBytes, convert(v, bias[0]), convert(v + 2, bias[1]));
      }
    }
    ptx::fence_async_proxy();
    ptx::named_sync(group + 1, kWarpGroup);
    if (leader) {
      ptx::store_4d(&p.output, result, channel, origin.across * I::kPixels, origin.row + row, origin.image);
    }
    if constexpr (kBuffers == 2) buffer ^= 1;
  }
};

template <class Config>
__global__ void __launch_bounds__(Instance<Config>::kThreads, 1) conv_stem(__grid_constant__ Params const p) {
  using I = Instance<Config>;
  extern __shared__ uint8_t shared[];
  Layout<Config> const at(p, (ptx::shared_address(shared) + kAtomBytes - 1) / kAtomBytes * kAtomBytes);
  int const warp = __shfl_sync(~0u, threadIdx.x / kWarp, 0), lane = threadIdx.x % kWarp;
  constexpr int kProducerWarp = I::kGroups * kWarpGroup / kWarp;

  if (threadIdx.x == kProducerWarp * kWarp) {
    ptx::prefetch_descriptor(&p.input);
    ptx::prefetch_descriptor(&p.output);
  }
  if (threadIdx.x == 0) init_barriers(p, at);
  __syncthreads();
  ptx::launch_dependents();

  // Registers move from the producers to the consumers where their sum allows it: two or four consumer groups.
  if (warp >= kProducerWarp) {
    if constexpr (I::kGroups == 4) ptx::registers_release<24>();
    if constexpr (I::kGroups == 2) ptx::registers_release<40>();
    if (warp == kProducerWarp && lane == 0) load_pixels(p, at);
  } else {
    if constexpr (I::kGroups == 4) ptx::registers_acquire<112>();
    if constexpr (I::kGroups == 2) ptx::registers_acquire<232>();
    load_weights(p, at);
    Consumer<Config>(p, at, warp).run();
  }
}

}  // namespace bolt::stem
