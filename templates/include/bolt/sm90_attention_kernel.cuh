// Fused attention for Hopper (sm_90a): TMA brings queries, keys and values, wgmma multiplies, scores stay in registers.
// O = softmax(scale Q K^T + mask) V, 16-bit operands, fp32 accumulation.
//
// Persistent: a CTA walks tiles of 64 kGroups queries of one head. kGroups consumer warp groups compute 64 queries
// each, one thread of a producer warp group feeds them. What moves:
//
//   queries  One box a tile, [64 kGroups rows][64 elements] for each 64 of the width: 128-byte rows, 128-byte swizzle.
//            Free again when the last scores of the tile are computed, so the next tile's come behind its softmax.
//   keys     Boxes of kColumns rows through a ring of kStages. Operand B of the first product, its depth along a row
//            (K-major).
//   values   The same boxes through a ring of their own. Operand B of the second product: a row is one step of its
//            depth, its columns are neighbours (MN-major), and nothing is transposed.
//   scores   Accumulators of the first product; after the softmax, rounded, register operand A of the second
//            (bolt/attention.cuh tells why no element moves).
//   result   registers -> [64 rows][64 elements] boxes of the group's own -> TMA store, which clips at the last query.
//
// TMA fills zeros beyond a tensor's end, so rows and widths that are no multiples of the boxes need no other care than
// the softmax's column limit. The first product takes the width in steps of 16, not of whole boxes.
//
// Order of a group: the scores of tile j + 1 are multiplied beside the values of tile j, and the softmax of j + 1 runs
// behind them. With kTurns the two groups take turns to enqueue, so that one's softmax runs behind the other's products
// (the ping-pong of Shah et al., "FlashAttention-3", arXiv 2407.08608, sections 3.1 and 3.2).
//
// Shared memory in bytes (the tuner computes the same, templates/sm90_attention/space.py), widths in whole boxes of 64:
//   2048 (alignment, barriers) + 2 (64 kGroups + kStages kColumns) (head + value)
#pragma once
#include "bolt/attention.cuh"
#include "bolt/sm90_ptx.cuh"
#include "bolt/sm90_wgmma.cuh"
#include "cute/tensor.hpp"

namespace bolt::attention {

constexpr int kGroupThreads = 128, kGroupRows = 64;
constexpr int kBox = 64;                  // elements of a box's row
constexpr int kBoxRow = 128, kAtom = 1024;  // bytes; the swizzle repeats after 8 rows
constexpr int kWgmmaDepth = 16;
constexpr int kUnit = 16;  // bytes that a descriptor counts in
constexpr int kBarrier = 8;
constexpr int kStoreBarrier = 1, kTurnBarrier = 4;  // named barriers of the groups

struct HopperParams {
  CUtensorMap q, k, v, out;
  Problem problem;
  void const* mask;
  int tiles, head_tiles;  // all tiles; those of one head
};

// Compile-time facts of an instance.
template <class Config>
struct HopperInstance {
  using Element = typename Config::Element;
  static constexpr int kGroups = Config::kGroups, kColumns = Config::kColumns, kStages = Config::kStages;
  static constexpr int kHead = Config::kHeadDim, kValue = Config::kValueDim;
  static constexpr int kRows = kGroups * kGroupRows;
  static constexpr int kThreads = (kGroups + 1) * kGroupThreads;
  static constexpr int kHeadBoxes = (kHead + kBox - 1) / kBox, kValueBoxes = kValue / kBox;
  static constexpr int kQueryBytes = kRows * kBoxRow * kHeadBoxes, kResultBytes = kRows * kBoxRow * kValueBoxes;
  static constexpr int kKeyBytes = kColumns * kBoxRow * kHeadBoxes, kValueBytes = kColumns * kBoxRow * kValueBoxes;
  static constexpr int kOverhead = 2 * kAtom;
  static constexpr int kSharedBytes = kOverhead + kQueryBytes + kResultBytes + kStages * (kKeyBytes + kValueBytes);
  static_assert(sizeof(Element) == 2 && kBox * sizeof(Element) == kBoxRow, "a box's row is one row of the swizzle");
  static_assert(kHead % kWgmmaDepth == 0, "whole steps of depth; narrower queries and keys are filled with zeros");
  static_assert(kValue % kBox == 0, "whole boxes; narrower values are filled with zeros");
  static_assert(kColumns % kWgmmaDepth == 0 && kColumns <= 256, "keys are the first product's columns, at most a box");
  static_assert(!Config::kTurns || kGroups == 2, "two groups take turns");
  static_assert((2 + 4 * kStages) * kBarrier <= kAtom, "barriers fit before the operands");
};

// Addresses in shared memory, all but the barriers on whole swizzle atoms.
template <class Config>
struct HopperMemory {
  using I = HopperInstance<Config>;
  uint32_t base;
  __device__ __forceinline__ explicit HopperMemory(uint32_t shared) : base((shared + kAtom - 1) / kAtom * kAtom) {}
  __device__ __forceinline__ uint32_t queries() const { return base + kAtom; }
  __device__ __forceinline__ uint32_t result(int group) const {
    return queries() + I::kQueryBytes + group * (I::kResultBytes / I::kGroups);
  }
  __device__ __forceinline__ uint32_t keys(int stage) const {
    return queries() + I::kQueryBytes + I::kResultBytes + stage * I::kKeyBytes;
  }
  __device__ __forceinline__ uint32_t values(int stage) const { return keys(I::kStages) + stage * I::kValueBytes; }
  // Full: the boxes have arrived. Free: every consumer warp is done with them.
  __device__ __forceinline__ uint32_t queries_full() const { return base; }
  __device__ __forceinline__ uint32_t queries_free() const { return base + kBarrier; }
  __device__ __forceinline__ uint32_t keys_full(int stage) const { return base + (2 + stage) * kBarrier; }
  __device__ __forceinline__ uint32_t keys_free(int stage) const { return keys_full(I::kStages + stage); }
  __device__ __forceinline__ uint32_t values_full(int stage) const { return keys_full(2 * I::kStages + stage); }
  __device__ __forceinline__ uint32_t values_free(int stage) const { return keys_full(3 * I::kStages + stage); }
};

// A wgmma descriptor without its address, as CuTe makes it for the layout of the boxes. Rows of depth:
template <class Element, int kRows>
__device__ __forceinline__ uint64_t rows_of_depth() {
  using namespace cute;
  auto const layout = tile_to_shape(SM90::GMMA::Layout_K_SW128_Atom<Element>{}, Shape<Int<kRows>, Int<kBox>>{});
  auto const whole = make_tensor(make_smem_ptr(static_cast<Element*>(nullptr)), layout);
  auto const one = local_tile(whole, Shape<Int<kRows>, Int<kWgmmaDepth>>{}, make_coord(0, 0));
  return SM90::GMMA::make_gmma_desc<SM90::GMMA::Major::K>(one).desc_ & ~uint64_t(0x3FFF);
}
// Rows of columns, kDepth of them in each box of 64 columns:
template <class Element, int kColumns, int kDepth>
__device__ __forceinline__ uint64_t rows_of_columns() {
  using namespace cute;
  auto const layout = tile_to_shape(SM90::GMMA::Layout_MN_SW128_Atom<Element>{}, Shape<Int<kColumns>, Int<kDepth>>{},
                                    Step<_2, _1>{});
  auto const whole = make_tensor(make_smem_ptr(static_cast<Element*>(nullptr)), layout);
  auto const one = local_tile(whole, Shape<Int<kColumns>, Int<kWgmmaDepth>>{}, make_coord(0, 0));
  return SM90::GMMA::make_gmma_desc<SM90::GMMA::Major::MN>(one).desc_ & ~uint64_t(0x3FFF);
}

// The tile that a CTA computes next. Under a causal mask the tiles that see most come first, over all heads; otherwise
// tiles of one head are neighbours.
template <class Config>
struct HopperTile {
  Problem::Place at;
  int first_row, steps;  // its first query; tiles of keys it looks at
  __device__ __forceinline__ HopperTile(HopperParams const& params, int number) {
    using I = HopperInstance<Config>;
    Problem const& p = params.problem;
    if constexpr (Config::kCausal) {
      int const all_heads = p.batch * p.heads, tile = number / all_heads, rest = number - tile * all_heads;
      at = {params.head_tiles - 1 - tile, rest % p.heads, rest / p.heads};
    } else {
      at = p.place(number, params.head_tiles, false);
    }
    first_row = at.tile * I::kRows;
    int const seen = Config::kCausal && first_row + I::kRows < p.kv_length ? first_row + I::kRows : p.kv_length;
    steps = (seen + I::kColumns - 1) / I::kColumns;
  }
};

// All loads, by one thread. A ring's parity begins at 1 here: its stages are free at first.
template <class Config>
__device__ void feed(HopperParams const& params, HopperMemory<Config> const& memory) {
  using I = HopperInstance<Config>;
  Problem const& p = params.problem;
  ptx::Ring keys{0, 1}, values{0, 1};
  uint32_t queries = 1;
  for (int number = blockIdx.x; number < params.tiles; number += gridDim.x) {
    HopperTile<Config> const tile(params, number);
    int const head = p.kv_head(tile.at.head);
    ptx::barrier_wait(memory.queries_free(), queries);
    queries ^= 1;
    ptx::barrier_arrive_expect(memory.queries_full(), I::kQueryBytes);
    for (int box = 0; box < I::kHeadBoxes; ++box) {
      ptx::load_4d(memory.queries() + box * I::kRows * kBoxRow, &params.q, memory.queries_full(), box * kBox,
                   tile.first_row, tile.at.head, tile.at.batch);
    }
    for (int step = 0; step < tile.steps; ++step) {
      int const row = step * I::kColumns;
      ptx::barrier_wait(memory.keys_free(keys.stage), keys.parity);
      ptx::barrier_arrive_expect(memory.keys_full(keys.stage), I::kKeyBytes);
      for (int box = 0; box < I::kHeadBoxes; ++box) {
        ptx::load_4d(memory.keys(keys.stage) + box * I::kColumns * kBoxRow, &params.k, memory.keys_full(keys.stage),
                     box * kBox, row, head, tile.at.batch);
      }
      ptx::barrier_wait(memory.values_free(values.stage), values.parity);
      ptx::barrier_arrive_expect(memory.values_full(values.stage), I::kValueBytes);
      for (int box = 0; box < I::kValueBoxes; ++box) {
        ptx::load_4d(memory.values(values.stage) + box * I::kColumns * kBoxRow, &params.v,
                     memory.values_full(values.stage), box * kBox, row, head, tile.at.batch);
      }
      keys.next(I::kStages);
      values.next(I::kStages);
    }
  }
}

template <class Config>
struct HopperConsumer {
  using I = HopperInstance<Config>;
  using Element = typename Config::Element;
  static constexpr Mask kMask = Mask(Config::kMask);
  static constexpr int kScores = I::kColumns / 2, kResults = I::kValue / 2, kDepths = I::kColumns / kWgmmaDepth;

  HopperParams const& params;
  HopperMemory<Config> const memory;
  int const group, thread, lane, warp_row;  // warp_row: the lane's upper row within the group
  uint64_t const query_form, key_form, value_form;
  ptx::Ring keys{}, values{};
  uint32_t queries = 0;
  float scores[kScores], results[kResults];
  uint32_t numerators[kDepths][4];

  __device__ __forceinline__ HopperConsumer(HopperParams const& given, HopperMemory<Config> const& at, int index)
      : params(given), memory(at), group(index / kGroupThreads), thread(index % kGroupThreads), lane(thread % 32),
        warp_row(thread / 32 * kWarpRows + lane / 4), query_form(rows_of_depth<Element, kGroupRows>()),
        key_form(rows_of_depth<Element, I::kColumns>()),
        value_form(rows_of_columns<Element, I::kValue, I::kColumns>()) {}

  // One arrival of each warp.
  __device__ __forceinline__ void release(uint32_t barrier) const {
    if (lane == 0) ptx::barrier_arrive(barrier);
  }

  // Enqueues scores = Q K^T of the next stage of keys.
  __device__ __forceinline__ void enqueue_scores() {
    ptx::barrier_wait(memory.keys_full(keys.stage), keys.parity);
    uint32_t const q = memory.queries() + group * kGroupRows * kBoxRow, k = memory.keys(keys.stage);
    ptx::fence_registers(scores);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < I::kHead / kWgmmaDepth; ++i) {
      uint32_t const box = i * kWgmmaDepth / kBox, inside = i * kWgmmaDepth % kBox * sizeof(Element);
      uint64_t const a = query_form | (q + box * I::kRows * kBoxRow + inside) / kUnit;
      uint64_t const b = key_form | (k + box * I::kColumns * kBoxRow + inside) / kUnit;
      ptx::wgmma<Element>(scores, a, b, i > 0);
    }
    ptx::wgmma_commit();
  }

  // Enqueues results (+)= P V of the next stage of values.
  __device__ __forceinline__ void enqueue_results(bool accumulate) {
    ptx::barrier_wait(memory.values_full(values.stage), values.parity);
    uint32_t const v = memory.values(values.stage);
    ptx::fence_registers(results);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < kDepths; ++i) {
      uint64_t const b = value_form | (v + i * kWgmmaDepth * kBoxRow) / kUnit;
      ptx::wgmma<Element>(results, numerators[i], b, accumulate || i > 0);
    }
    ptx::wgmma_commit();
  }

  template <int kPending>
  __device__ __forceinline__ void finish_scores() {
    ptx::wgmma_wait<kPending>();
    ptx::fence_registers(scores);
    release(memory.keys_free(keys.stage));
    keys.next(I::kStages);
  }
  __device__ __forceinline__ void finish_results() {
    ptx::wgmma_wait<0>();
    ptx::fence_registers(results);
    release(memory.values_free(values.stage));
    values.next(I::kStages);
  }
  __device__ __forceinline__ void round_numerators() {
#pragma unroll
    for (int i = 0; i < kDepths; ++i) as_operand<Element>(scores, i, numerators[i]);
  }

  __device__ __forceinline__ void take_turn() const {
    if constexpr (Config::kTurns) ptx::named_sync(kTurnBarrier + group, 2 * kGroupThreads);
  }
  __device__ __forceinline__ void pass_turn() const {
    if constexpr (Config::kTurns) ptx::named_arrive(kTurnBarrier + (group ^ 1), 2 * kGroupThreads);
  }

  __device__ __forceinline__ void compute(HopperTile<Config> const& tile) {
    float const scale = params.problem.scale;
    Rows<Element, kMask, Config::kCausal> const rows(params.problem, params.mask, tile.at.batch, tile.at.head,
                                                     tile.first_row + group * kGroupRows + warp_row);
    Softmax<kMask == Mask::kAdd> softmax;
    float factor[2];
    int const column = lane % 4 * 2;
    ptx::barrier_wait(memory.queries_full(), queries);
    queries ^= 1;
    enqueue_scores();
    finish_scores<0>();
    rows.apply(scores, column, scale);
    softmax.step(scores, scale, factor);
    round_numerators();
#pragma unroll 1
    for (int step = 1; step < tile.steps; ++step) {
      take_turn();
      enqueue_scores();
      enqueue_results(step > 1);
      pass_turn();
      finish_scores<1>();
      rows.apply(scores, step * I::kColumns + column, scale);
      softmax.step(scores, scale, factor);
      finish_results();
      rescale(results, factor);
      round_numerators();
    }
    release(memory.queries_free());
    enqueue_results(tile.steps > 1);
    finish_results();
    softmax.finish(factor);
    rescale(results, factor);
  }

  // The group's rows to its boxes, in the swizzle that TMA undoes, and out.
  __device__ __forceinline__ void store(HopperTile<Config> const& tile) {
    uint32_t const to = memory.result(group);
    if (thread == 0) ptx::wait_stores_read();
    ptx::named_sync(kStoreBarrier + group, kGroupThreads);
#pragma unroll
    for (int i = 0; i < kResults; i += 2) {
      int const row = warp_row + i / 2 % 2 * 8, unit = i / 4 % 8, box = i / 32;
      uint32_t const place = box * kGroupRows * kBoxRow + row * kBoxRow + (unit ^ row % 8) * kUnit + lane % 4 * 4;
      ptx::store_word(to + place, packed<Element>(results[i], results[i + 1]));
    }
    ptx::fence_async_proxy();
    ptx::named_sync(kStoreBarrier + group, kGroupThreads);
    if (thread == 0) {
      for (int box = 0; box < I::kValueBoxes; ++box) {
        ptx::store_4d(&params.out, to + box * kGroupRows * kBoxRow, box * kBox, tile.first_row + group * kGroupRows,
                      tile.at.head, tile.at.batch);
      }
    }
  }

  __device__ __forceinline__ void run() {
    if (Config::kTurns && group == 1) pass_turn();  // the first group begins
    for (int number = blockIdx.x; number < params.tiles; number += gridDim.x) {
      HopperTile<Config> const tile(params, number);
      compute(tile);
      store(tile);
    }
    if (Config::kTurns && group == 0) take_turn();  // the turn that the second group passed last
    if (thread == 0) ptx::wait_stores_read();
  }
};

template <class Config>
static __global__ void __launch_bounds__(HopperInstance<Config>::kThreads, 1)
    hopper_attention(__grid_constant__ HopperParams const params) {
  using I = HopperInstance<Config>;
  extern __shared__ uint8_t shared[];
  HopperMemory<Config> const memory(ptx::shared_address(shared));
  int const group = __shfl_sync(~0u, int(threadIdx.x) / kGroupThreads, 0);
  constexpr int kConsumerWarps = I::kGroups * kGroupThreads / 32;
  if (threadIdx.x == 0) {
    ptx::barrier_init(memory.queries_full(), 1);
    ptx::barrier_init(memory.queries_free(), kConsumerWarps);
    for (int stage = 0; stage < I::kStages; ++stage) {
      ptx::barrier_init(memory.keys_full(stage), 1);
      ptx::barrier_init(memory.keys_free(stage), kConsumerWarps);
      ptx::barrier_init(memory.values_full(stage), 1);
      ptx::barrier_init(memory.values_free(stage), kConsumerWarps);
    }
    ptx::barrier_init_fence();
    for (CUtensorMap const* map : {&params.q, &params.k, &params.v, &params.out}) ptx::prefetch_descriptor(map);
  }
  __syncthreads();
  ptx::launch_dependents();
  ptx::wait_for_previous_grid();  // queries, keys, values and mask are all made by kernels before
  // Registers move from the producer to the consumers: 512 a thread of each warp group's quarter in sum.
  if (group == I::kGroups) {
    if constexpr (I::kGroups == 2) ptx::registers_release<24>();
    if constexpr (I::kGroups == 3) ptx::registers_release<32>();
    if (threadIdx.x % kGroupThreads == 0) feed<Config>(params, memory);
  } else {
    if constexpr (I::kGroups == 2) ptx::registers_acquire<240>();
    if constexpr (I::kGroups == 3) ptx::registers_acquire<160>();
    HopperConsumer<Config>(params, memory, int(threadIdx.x)).run();
  }
}

}  // namespace bolt::attention
