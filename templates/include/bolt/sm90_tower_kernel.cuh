// Two or three products in one Hopper kernel (sm_90a), every intermediate in shared memory: what MLP towers are made of.
//
//   D (M, Nlast) = outer( inner( A (M, K) * B0^T ) * B1^T [ ... ] )        B0 (N0, K), B1 (N1, N0), ...
//
// Each product is transposed, as in bolt/sm90_conv_direct_kernel.cuh: channels x rows = B * A^T. A wgmma's M is 64
// channels, its N is kRows rows of A. One CTA computes all channels of all products for its rows (the residence rule of
// the paper's section 3.1.1); no width is bounded by registers, and the weights are bounded by nothing, since they pass:
//
//   A        a ring of panels, [kRows][64 of K] with the 128-byte swizzle, one TMA box each. A product of several passes
//            reads A again for each, from L2.
//   weights  a ring of stages, 64 * kGroups channels x 64 of depth: for each product, for each pass of 64 * kGroups
//            channels, all chunks of its depth. They do not depend on the previous kernel, and come before the wait.
//   panels   The accumulators go through a product's chain into [kRows][64 channels], swizzled: the next product's B
//            operand as it lies. Depth past a width arrives as zeros in the weights, so that what a chain makes of zero
//            in those channels does not count.
//   result   The last product's accumulators -> chain -> [kRows][64 channels] -> one TMA store for each 64 channels, which
//            leaves out rows past M. A result whose rows are no multiples of 16 bytes is stored element by element. A
//            source tensor comes by TMA into the result's buffer while the products run, or element by element too.
//
// Warp groups: kGroups consumers, 64 channels each in every pass (one without channels in a pass hands the stages back
// unread), then one producer warp group: warp 0 loads A, warp 1 weights. The CTA walks over tiles of kRows rows.
//
// Consumers meet at one named barrier: before the first panel of a tile is written (nobody reads the last tile's) and
// after each product but the last (its panels are complete).
//
// Shared memory in bytes (the tuner computes the same, templates/sm90_tower_b2b/geometry.py):
//   2048 (alignment, barriers) + kRows * 128 * (A stages + panels of all products but the last + kGroups)
//        + weight stages * 8192 * kGroups
#pragma once
#include "bolt/sm90_conv_direct_kernel.cuh"

namespace bolt::tower {

using direct::kAtomBytes, direct::kBarrierBytes, direct::kChannels, direct::kRowBytes, direct::kUnit, direct::kWarp;
using direct::kWarpGroup, direct::kWgmmaK;

constexpr int kMaxLayers = 3;
constexpr int kMeeting = 10;  // the named barrier of all consumers; 1.. are the groups'
constexpr int kMaxStages = 16;  // of a ring: full and empty barriers of both share one kilobyte

struct Params {
  CUtensorMap input, weights[kMaxLayers], output, source;
  void const* bias[kMaxLayers];
  int width[kMaxLayers], chunks[kMaxLayers], passes[kMaxLayers];  // channels; depth in 64s; 64 * kGroups channels
  int m, tiles;
  int input_stages, weight_stages;
  bool weights_constant, elementwise;  // elementwise: the result can't be stored by TMA
  void* d;
  void const* source_elements;
  int64_t ldd, ldsource;
};

template <class Config>
struct Instance {
  static constexpr int kRows = Config::kRows, kGroups = Config::kGroups, kLayers = Config::kLayers;
  static constexpr int kPanelBytes = kRows * kRowBytes;
  static constexpr int kWeightRows = kChannels * kGroups;
  static constexpr int kWeightStage = kWeightRows * kRowBytes;
  static constexpr int kThreads = (kGroups + 1) * kWarpGroup;
  static_assert(kRows % 16 == 0, "panels are written in matrices of 16 rows, and begin at swizzle atoms of 8");
  static_assert(kLayers == 2 || kLayers == 3, "a tower has two products or three");
  static_assert(kGroups == 1 || kGroups == 2 || kGroups == 4, "consumer warp groups that can take registers evenly");
};

// Where everything lies in shared memory, as 32-bit addresses.
template <class Config>
struct Layout {
  using I = Instance<Config>;
  uint32_t weights, input, panels[kMaxLayers], results;
  uint32_t input_full, input_empty, weights_full, weights_empty, source_full;

  __device__ __forceinline__ Layout(Params const& p, uint32_t base) {
    weights = base;
    input = weights + p.weight_stages * I::kWeightStage;
    uint32_t next = input + p.input_stages * I::kPanelBytes;
#pragma unroll
    for (int layer = 0; layer < I::kLayers - 1; ++layer) {
      panels[layer] = next;
      next += (p.width[layer] + kChannels - 1) / kChannels * I::kPanelBytes;
    }
    results = next;
    input_full = results + I::kGroups * I::kPanelBytes;
    input_empty = at(input_full, kMaxStages);
    weights_full = at(input_empty, kMaxStages);
    weights_empty = at(weights_full, kMaxStages);
    source_full = at(weights_empty, kMaxStages);
  }
  __device__ __forceinline__ static uint32_t at(uint32_t barriers, int index) {
    return barriers + index * kBarrierBytes;
  }
};

template <class Config>
__device__ __forceinline__ void prepare(Params const& p, Layout<Config> const& at) {
  using I = Instance<Config>;
  constexpr int kWarps = kWarpGroup / kWarp * I::kGroups;
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.input_stages; ++i) {
      ptx::barrier_init(at.at(at.input_full, i), 1);
      ptx::barrier_init(at.at(at.input_empty, i), kWarps);
    }
    for (int i = 0; i < p.weight_stages; ++i) {
      ptx::barrier_init(at.at(at.weights_full, i), 1);
      ptx::barrier_init(at.at(at.weights_empty, i), kWarps);
    }
    for (int i = 0; i < I::kGroups; ++i) ptx::barrier_init(at.at(at.source_full, i), 1);
    ptx::barrier_init_fence();
  }
}

// One thread: A's panels, once for each pass of the first product.
template <class Config>
__device__ __forceinline__ void load_input(Params const& p, Layout<Config> const& at) {
  using I = Instance<Config>;
  ptx::wait_for_previous_grid();
  ptx::Ring ring;
  ring.parity = 1;
  for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
    for (int pass = 0; pass < p.passes[0]; ++pass) {
      for (int chunk = 0; chunk < p.chunks[0]; ++chunk) {
        uint32_t const full = at.at(at.input_full, ring.stage);
        ptx::barrier_wait(at.at(at.input_empty, ring.stage), ring.parity);
        ptx::barrier_arrive_expect(full, I::kPanelBytes);
        ptx::load_3d(at.input + ring.stage * I::kPanelBytes, &p.input, full, chunk * kChannels, tile * I::kRows, 0);
        ring.next(p.input_stages);
      }
    }
  }
}

// One thread: the weights of all products for every tile, in the order in which they are read.
template <class Config>
__device__ __forceinline__ void load_weights(Params const& p, Layout<Config> const& at) {
  using I = Instance<Config>;
  if (!p.weights_constant) ptx::wait_for_previous_grid();
  ptx::Ring ring;
  ring.parity = 1;
  for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) {
#pragma unroll
    for (int layer = 0; layer < I::kLayers; ++layer) {
      for (int pass = 0; pass < p.passes[layer]; ++pass) {
        for (int chunk = 0; chunk < p.chunks[layer]; ++chunk) {
          uint32_t const full = at.at(at.weights_full, ring.stage);
          ptx::barrier_wait(at.at(at.weights_empty, ring.stage), ring.parity);
          ptx::barrier_arrive_expect(full, I::kWeightStage);
          ptx::load_3d(at.weights + ring.stage * I::kWeightStage, &p.weights[layer], full, chunk * kChannels,
                       pass * I::kWeightRows, 0);
          ring.next(p.weight_stages);
        }
      }
    }
  }
}

// One consumer warp group: 64 channels of every pass.
template <class Config>
struct Consumer {
  using I = Instance<Config>;
  using Element = typename Config::Element;
  using Op = typename direct::Wgmma<I::kRows, Element>::Op;
  static constexpr int kRows = I::kRows, kLayers = I::kLayers;
  using Accumulator = float[kRows / 2];

  Params const& p;
  Layout<Config> const& at;
  int const group, warp, lane;
  bool const leader;  // owns this group's bulk copies
  uint32_t const result;
  uint32_t const place;  // this lane's row of its first 8x8 matrices in a panel; the next ones follow 16 rows later
  ptx::Ring input_ring, weight_ring;
  uint32_t source_parity = 0;

  __device__ __forceinline__ Consumer(Params const& p_, Layout<Config> const& at_, int warp_in_cta)
      : p(p_), at(at_), group(warp_in_cta / 4), warp(warp_in_cta % 4), lane(threadIdx.x % kWarp),
        leader(threadIdx.x % kWarpGroup == 0), result(at.results + group * I::kPanelBytes),
        place((lane / 16 * 8 + lane % 8) * kRowBytes + (((warp * 2 + lane / 8 % 2) ^ (lane % 8)) * kUnit)) {}

  __device__ __forceinline__ void run() {
    ptx::wait_for_previous_grid();  // before a bias or a source is read
    for (int tile = blockIdx.x; tile < p.tiles; tile += gridDim.x) layer<0>(tile);
    if (leader) ptx::wait_stores_read();  // shared memory must outlive the reads
  }

 private:
  __device__ __forceinline__ void meet() { ptx::named_sync(kMeeting, I::kGroups * kWarpGroup); }

  template <int kLayer>
  __device__ __forceinline__ void layer(int tile) {
    using Epilogue = typename Config::template Epilogue<kLayer>;
    constexpr bool kLast = kLayer == kLayers - 1;
#pragma unroll 1
    for (int pass = 0; pass < p.passes[kLayer]; ++pass) {
      int const panel = pass * I::kGroups + group, channel = panel * kChannels;
      if (channel >= p.width[kLayer]) {
        pass_stages<kLayer>();
        if (kLayer == 0 && pass == 0) meet();
        continue;
      }
      float bias[2] = {};
      if constexpr (Epilogue::Chain::kBias) load_bias(p.bias[kLayer], p.width[kLayer], channel, bias);
      if constexpr (kLast && Epilogue::Chain::kSource) {
        if (leader && !p.elementwise) request_source(tile, channel);
      }
      Accumulator accumulator;
      multiply<kLayer>(accumulator);
      if constexpr (!kLast) {
        if (kLayer == 0 && pass == 0) meet();  // every group is done with the last tile's panels
        write<Epilogue>(at.panels[kLayer] + panel * I::kPanelBytes, accumulator, bias);
      } else if (p.elementwise) {
        store_elements<Epilogue>(accumulator, bias, tile, channel);
      } else {
        store<Epilogue>(accumulator, bias, tile, channel);
      }
    }
    if constexpr (!kLast) {
      ptx::fence_async_proxy();
      meet();
      layer<kLayer + 1>(tile);
    }
  }

  // A lane holds two rows of the accumulator: channel + 16 * warp + lane / 4, and 8 below.
  __device__ __forceinline__ void load_bias(void const* from, int width, int channel, float (&bias)[2]) {
    Element const* const values = static_cast<Element const*>(from);
    int const row = channel + warp * 16 + lane / 4;
    if (row < width) bias[0] = float(values[row]);
    if (row + 8 < width) bias[1] = float(values[row + 8]);
  }

  // One pass: 64 channels x kRows over the product's whole depth. A stage is handed back one chunk late, when it is
  // certain that its products are over.
  template <int kLayer>
  __device__ __forceinline__ void multiply(Accumulator& accumulator) {
    constexpr int kStep = kWgmmaK * 2 / kUnit;
    constexpr auto kAdd = direct::gmma::ScaleOut::One;
    int used_weights = -1, used_input = -1;
    // Zeros rather than a first wgmma that overwrites: with that, ptxas keeps a second set of accumulators.
#pragma unroll
    for (float& value : accumulator) value = 0.f;
#pragma unroll 1
    for (int chunk = 0; chunk < p.chunks[kLayer]; ++chunk) {
      wait_stages<kLayer>();
      uint32_t const rows = kLayer == 0 ? at.input + input_ring.stage * I::kPanelBytes
                                        : at.panels[kLayer == 0 ? 0 : kLayer - 1] + chunk * I::kPanelBytes;
      uint32_t const weights = at.weights + weight_ring.stage * I::kWeightStage + group * kChannels * kRowBytes;
      uint64_t const a = direct::descriptor_base(kAtomBytes) | (weights / kUnit);
      uint64_t const b = direct::descriptor_base(kAtomBytes) | (rows / kUnit);
      ptx::fence_registers(accumulator);
      ptx::wgmma_fence();
#pragma unroll
      for (int q = 0; q < kChannels / kWgmmaK; ++q) {
        direct::wgmma<Op>(a + q * kStep, b + q * kStep, accumulator, kAdd, std::make_index_sequence<kRows / 2>{});
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      ptx::fence_registers(accumulator);
      hand_back(used_weights, used_input);
      next_stages<kLayer>(used_weights, used_input);
    }
    ptx::wgmma_wait<0>();
    ptx::fence_registers(accumulator);
    hand_back(used_weights, used_input);
  }

  // A pass in which this group has no channels.
  template <int kLayer>
  __device__ __forceinline__ void pass_stages() {
#pragma unroll 1
    for (int chunk = 0; chunk < p.chunks[kLayer]; ++chunk) {
      int used_weights = -1, used_input = -1;
      wait_stages<kLayer>();
      next_stages<kLayer>(used_weights, used_input);
      hand_back(used_weights, used_input);
    }
  }

  template <int kLayer>
  __device__ __forceinline__ void wait_stages() {
    ptx::barrier_wait(at.at(at.weights_full, weight_ring.stage), weight_ring.parity);
    if constexpr (kLayer == 0) ptx::barrier_wait(at.at(at.input_full, input_ring.stage), input_ring.parity);
  }

  template <int kLayer>
  __device__ __forceinline__ void next_stages(int& weights, int& input) {
    weights = weight_ring.stage;
    weight_ring.next(p.weight_stages);
    if constexpr (kLayer == 0) {
      input = input_ring.stage;
      input_ring.next(p.input_stages);
    }
  }

  __device__ __forceinline__ void hand_back(int weights, int input) {
    if (lane == 0 && weights >= 0) ptx::barrier_arrive(at.at(at.weights_empty, weights));
    if (lane == 0 && input >= 0) ptx::barrier_arrive(at.at(at.input_empty, input));
  }

  template <class Epilogue>
  __device__ __forceinline__ static uint32_t convert(float const* values, float bias, uint32_t source) {
    using Chain = typename Epilogue::Chain;
    float2 const from = Chain::kSource ? unpack_pair<Element>(source) : make_float2(0.f, 0.f);
    return pack_pair<Element, Epilogue::kFinalRelu>(Chain::apply(values[0], bias, from.x),
                                                    Chain::apply(values[1], bias, from.y));
  }

  // Chain and conversion into [kRows][64 channels] at `panel`; a source lies there already.
  template <class Epilogue>
  __device__ __forceinline__ void write(uint32_t panel, Accumulator const& accumulator, float const (&bias)[2]) {
    uint32_t source[4] = {};
#pragma unroll
    for (int j = 0; j < kRows / 16; ++j) {
      float const* v = accumulator + j * 8;
      uint32_t const to = panel + place + j * 16 * kRowBytes;
      if constexpr (Epilogue::Chain::kSource) ptx::load_matrices_4(to, source);
      ptx::store_matrices_4(to, convert<Epilogue>(v, bias[0], source[0]), convert<Epilogue>(v + 2, bias[1], source[1]),
                            convert<Epilogue>(v + 4, bias[0], source[2]), convert<Epilogue>(v + 6, bias[1], source[3]));
    }
  }

  // The result buffer becomes the source's as soon as the last store has read it.
  __device__ __forceinline__ void request_source(int tile, int channel) {
    uint32_t const full = at.at(at.source_full, group);
    ptx::wait_stores_read();
    ptx::barrier_arrive_expect(full, I::kPanelBytes);
    ptx::load_4d(result, &p.source, full, channel, tile * kRows, 0, 0);
  }

  template <class Epilogue>
  __device__ __forceinline__ void store(Accumulator const& accumulator, float const (&bias)[2], int tile, int channel) {
    if constexpr (Epilogue::Chain::kSource) {
      ptx::barrier_wait(at.at(at.source_full, group), source_parity);
      source_parity ^= 1;
    } else {
      if (leader) ptx::wait_stores_read();
      ptx::named_sync(group + 1, kWarpGroup);
    }
    write<Epilogue>(result, accumulator, bias);
    ptx::fence_async_proxy();
    ptx::named_sync(group + 1, kWarpGroup);
    if (leader) ptx::store_4d(&p.output, result, channel, tile * kRows, 0, 0);
  }

  // Value i of a lane: pairs of rows 2 (lane % 4) and the next, channels lane / 4 and 8 below, in turn; then 8 rows on.
  template <class Epilogue>
  __device__ __forceinline__ void store_elements(Accumulator const& accumulator, float const (&bias)[2], int tile,
                                                 int channel) {
    Element* const to = static_cast<Element*>(p.d);
    Element const* const from = static_cast<Element const*>(p.source_elements);
    constexpr auto kRelu = [](float x) { return Epilogue::kFinalRelu && x < 0.f ? 0.f : x; };
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) {
      int const row = tile * kRows + i / 4 * 8 + lane % 4 * 2 + i % 2, half = i / 2 % 2;
      int const column = channel + warp * 16 + lane / 4 + half * 8;
      if (row < p.m && column < p.width[kLayers - 1]) {
        float source = 0.f;
        if constexpr (Epilogue::Chain::kSource) source = float(from[row * p.ldsource + column]);
        to[row * p.ldd + column] = Element(kRelu(Epilogue::Chain::apply(accumulator[i], bias[half], source)));
      }
    }
  }
};

template <class Config>
__global__ void __launch_bounds__(Instance<Config>::kThreads, 1) tower(__grid_constant__ Params const p) {
  using I = Instance<Config>;
  extern __shared__ uint8_t shared[];
  Layout<Config> const at(p, (ptx::shared_address(shared) + kAtomBytes - 1) / kAtomBytes * kAtomBytes);
  int const warp = __shfl_sync(~0u, threadIdx.x / kWarp, 0), lane = threadIdx.x % kWarp;
  constexpr int kProducerWarp = I::kGroups * kWarpGroup / kWarp;

  if (threadIdx.x == kProducerWarp * kWarp) {
    ptx::prefetch_descriptor(&p.input);
    for (int layer = 0; layer < I::kLayers; ++layer) ptx::prefetch_descriptor(&p.weights[layer]);
    if (!p.elementwise) ptx::prefetch_descriptor(&p.output);
  }
  prepare(p, at);
  __syncthreads();
  ptx::launch_dependents();

  if (warp >= kProducerWarp) {
    if constexpr (I::kGroups == 4) ptx::registers_release<24>();
    if constexpr (I::kGroups == 2) ptx::registers_release<40>();
    if (warp == kProducerWarp && lane == 0) {
      load_input(p, at);
    } else if (warp == kProducerWarp + 1 && lane == 0) {
      load_weights(p, at);
    }
  } else {
    if constexpr (I::kGroups == 4) ptx::registers_acquire<112>();
    if constexpr (I::kGroups == 2) ptx::registers_acquire<232>();
    Consumer<Config>(p, at, warp).run();
  }
}

}  // namespace bolt::tower
