// Fused attention by mma.sync (sm75 and later): O = softmax(scale Q K^T + mask) V, any strides, lengths and widths.
//
// A block computes 16 kWarps queries of one head, each warp 16 of them; keys pass by kColumns at a time. What moves:
//
//   queries       global -> shared once; every warp reads its own rows back as A fragments.
//   keys, values  global -> shared, kColumns rows a tile, by cp.async. With kStages = 2 the next tile's copies run
//                 behind this one's products; with 1 (one tile of keys, or much to keep) they follow them.
//   scores        stay in registers: accumulators of the first product, A operand of the second (bolt/attention.cuh).
//   result        registers -> the warp's own rows of the queries' memory -> global, in whole accesses.
//
// Shared rows are padded by 16 bytes, which makes them an odd number of 16-byte units: the eight rows that ldmatrix
// reads at a time then lie in different banks. Rows and columns beyond the problem are zeros there and never stored.
//
// Shared memory in bytes (the tuner computes the same, templates/sm80_attention/space.py):
//   2 (16 kWarps (max(head, value) + 8) + kStages kColumns (head + 8 + value + 8)),  head and value in steps of 16
#pragma once
#include "bolt/attention.cuh"
#include "bolt/launch_2x.h"

namespace bolt::attention {

constexpr int kWarp = 32, kDepth = 16;  // of an mma
constexpr int kPadding = 8;             // elements: 16 bytes
constexpr int kKeptQueries = 128;       // head widths up to this keep their queries in registers

template <class Config>
struct MmaAttention {
  using Element = typename Config::Element;
  static constexpr int kHead = Config::kHeadDim, kValue = Config::kValueDim;  // padded to whole mma depths
  static constexpr int kWarps = Config::kWarps, kColumns = Config::kColumns, kStages = Config::kStages;
  static constexpr int kAccess = Config::kAccess;  // elements of a global access
  static constexpr Mask kMask = Mask(Config::kMask);
  static constexpr bool kCausal = Config::kCausal;
  static constexpr int kThreads = kWarps * kWarp, kRows = kWarps * kWarpRows;
  static constexpr int kWide = kHead > kValue ? kHead : kValue;
  static constexpr int kQueryPitch = kWide + kPadding, kKeyPitch = kHead + kPadding, kValuePitch = kValue + kPadding;
  static constexpr int kKeyTile = kColumns * kKeyPitch, kValueTile = kColumns * kValuePitch;
  static constexpr int kSharedBytes = int(sizeof(Element)) * (kRows * kQueryPitch + kStages * (kKeyTile + kValueTile));
  static constexpr int kScores = kColumns / 2, kResults = kValue / 2;  // accumulators of a lane
  static_assert(sizeof(Element) == 2, "operands of 16 bits");
  static_assert(kHead % kDepth == 0 && kValue % kDepth == 0 && kColumns % kDepth == 0, "whole products only");
  static_assert(kStages == 1 || kStages == 2, "the loop counts its outstanding copies for one or two stages");
  static_assert(kDepth % kAccess == 0, "padding starts at a whole access");

  Problem const& p;
  Element *queries, *keys, *values;
  int warp, lane;
  Problem::Place at;
  int first_row, tiles;  // the block's first query; tiles of keys it looks at
  Element const *from_k, *from_v;
  float results[kResults] = {};

  __device__ __forceinline__ MmaAttention(Problem const& problem, Element const* k, Element const* v, Element* shared,
                                          int block, int thread)
      : p(problem), queries(shared), keys(queries + kRows * kQueryPitch), values(keys + kStages * kKeyTile),
        warp(thread / kWarp), lane(thread % kWarp) {
    at = p.place(block, (p.q_length + kRows - 1) / kRows, kCausal);
    first_row = at.tile * kRows;
    int const seen = kCausal && first_row + kRows < p.kv_length ? first_row + kRows : p.kv_length;
    tiles = (seen + kColumns - 1) / kColumns;
    from_k = k + p.k.at(at.batch, p.kv_head(at.head), 0);
    from_v = v + p.v.at(at.batch, p.kv_head(at.head), 0);
  }

  // kTileRows rows of kWidth elements to shared memory, zeros beyond `rows` rows and `width` elements.
  template <int kTileRows, int kWidth>
  __device__ __forceinline__ void load(Element* to, int pitch, Element const* from, int64_t stride, int rows,
                                       int width) const {
    constexpr int kAccesses = kWidth / kAccess;
    for (int i = warp * kWarp + lane; i < kTileRows * kAccesses; i += kThreads) {
      int const row = i / kAccesses, column = i % kAccesses * kAccess;
      bool const inside = row < rows && column < width;
      ptx::copy_async<kAccess * sizeof(Element)>(to + row * pitch + column,
                                                 inside ? from + row * stride + column : from, inside);
    }
  }
  // One group of copies each. A tile beyond the last is an empty group, which keeps the count.
  __device__ __forceinline__ void load_keys(int tile) const {
    if (tile < tiles) {
      load<kColumns, kHead>(keys + tile % kStages * kKeyTile, kKeyPitch, from_k + int64_t(tile) * kColumns * p.k.row,
                            p.k.row, p.kv_length - tile * kColumns, p.head_dim);
    }
    ptx::copies_commit();
  }
  __device__ __forceinline__ void load_values(int tile) const {
    if (tile < tiles) {
      load<kColumns, kValue>(values + tile % kStages * kValueTile, kValuePitch,
                             from_v + int64_t(tile) * kColumns * p.v.row, p.v.row, p.kv_length - tile * kColumns,
                             p.value_dim);
    }
    ptx::copies_commit();
  }

  // The warp's queries of depth [16 k, 16 k + 16): matrices (rows 0-7, 8-15) of its first eight, then its last eight.
  __device__ __forceinline__ void query_operand(int k, uint32_t (&a)[4]) const {
    int const row = warp * kWarpRows + lane % 16, column = k * kDepth + lane / 16 * 8;
    ptx::matrices(a, queries + row * kQueryPitch + column);
  }

  // scores = Q K^T. A key is a column of B: rows of the tile as they are, two blocks of 8 keys by 16 of depth a time.
  template <class Operand>
  __device__ __forceinline__ void multiply_keys(float (&scores)[kScores], Element const* tile, Operand operand) const {
#pragma unroll
    for (int i = 0; i < kScores; ++i) scores[i] = 0.f;
#pragma unroll
    for (int k = 0; k < kHead / kDepth; ++k) {
      uint32_t a[4];
      operand(k, a);
#pragma unroll
      for (int n = 0; n < kColumns / 16; ++n) {
        uint32_t b[4];
        int const row = n * 16 + lane / 16 * 8 + lane % 8, column = k * kDepth + lane / 8 % 2 * 8;
        ptx::matrices(b, tile + row * kKeyPitch + column);
        ptx::mma<Element>(scores + 8 * n, a, b[0], b[1]);
        ptx::mma<Element>(scores + 8 * n + 4, a, b[2], b[3]);
      }
    }
  }

  // results += P V. A value is a row of B: transposed on the way, 16 of depth by two blocks of 8 columns at a time.
  __device__ __forceinline__ void multiply_values(float const (&numerators)[kScores], Element const* tile) {
#pragma unroll
    for (int k = 0; k < kColumns / kDepth; ++k) {
      uint32_t a[4];
      as_operand<Element>(numerators, k, a);
#pragma unroll
      for (int n = 0; n < kValue / 16; ++n) {
        uint32_t b[4];
        int const row = k * kDepth + lane / 8 % 2 * 8 + lane % 8, column = n * 16 + lane / 16 * 8;
        ptx::matrices_transposed(b, tile + row * kValuePitch + column);
        ptx::mma<Element>(results + 8 * n, a, b[0], b[1]);
        ptx::mma<Element>(results + 8 * n + 4, a, b[2], b[3]);
      }
    }
  }

  __device__ __forceinline__ void store(Element* d) {
    Element* const own = queries + warp * kWarpRows * kQueryPitch;  // read by this warp alone, and for the last time
#pragma unroll
    for (int i = 0; i < kResults; i += 2) {
      int const row = lane / 4 + i / 2 % 2 * 8, column = i / 4 * kFragmentColumns + lane % 4 * 2;
      uint32_t const pair = packed<Element>(results[i], results[i + 1]);
      memcpy(own + row * kQueryPitch + column, &pair, sizeof pair);
    }
    __syncwarp();
    struct alignas(kAccess * sizeof(Element)) Access {
      Element value[kAccess];
    };
    constexpr int kAccesses = kValue / kAccess;
    Element* const to = d + p.out.at(at.batch, at.head, 0);
    for (int i = lane; i < kWarpRows * kAccesses; i += kWarp) {
      int const row = i / kAccesses, column = i % kAccesses * kAccess;
      int const query = first_row + warp * kWarpRows + row;
      if (query >= p.q_length || column >= p.value_dim) continue;
      *reinterpret_cast<Access*>(to + query * p.out.row + column) =
          *reinterpret_cast<Access const*>(own + row * kQueryPitch + column);
    }
  }

  __device__ __forceinline__ void run(Element const* q, void const* mask, Element* d) {
    load<kRows, kHead>(queries, kQueryPitch, q + p.q.at(at.batch, at.head, first_row), p.q.row, p.q_length - first_row,
                       p.head_dim);
    load_keys(0);  // one group with the queries
    load_values(0);
    ptx::copies_wait<1>();
    __syncthreads();
    constexpr bool kKept = kHead <= kKeptQueries;
    uint32_t kept[kKept ? kHead / kDepth : 1][4];
    if constexpr (kKept) {
#pragma unroll
      for (int k = 0; k < kHead / kDepth; ++k) query_operand(k, kept[k]);
    }
    auto const operand = [&](int k, uint32_t(&a)[4]) {
      if constexpr (kKept) {
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = kept[k][i];
      } else {
        query_operand(k, a);
      }
    };
    Rows<Element, kMask, kCausal> const rows(p, mask, at.batch, at.head, first_row + warp * kWarpRows + lane / 4);
    Softmax<kMask == Mask::kAdd> softmax;
    float factor[2];
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      if (tile > 0) {
        ptx::copies_wait<1>();  // this tile's keys; its values may be on their way
        __syncthreads();        // and everybody is done with the tile before
      }
      if constexpr (kStages == 2) {
        load_keys(tile + 1);
        load_values(tile + 1);
      }
      float scores[kScores];
      multiply_keys(scores, keys + tile % kStages * kKeyTile, operand);
      rows.apply(scores, tile * kColumns + lane % 4 * 2, p.scale);
      softmax.step(scores, p.scale, factor);
      rescale(results, factor);
      ptx::copies_wait<kStages == 2 ? 2 : 0>();  // this tile's values
      __syncthreads();
      multiply_values(scores, values + tile % kStages * kValueTile);
      if constexpr (kStages == 1) {
        __syncthreads();  // everybody is done with this tile
        load_keys(tile + 1);
        load_values(tile + 1);
      }
    }
    softmax.finish(factor);
    rescale(results, factor);
    store(d);
  }
};

template <class Config>
static __global__ void __launch_bounds__(MmaAttention<Config>::kThreads)
    mma_attention(Problem const problem, typename Config::Element const* q, typename Config::Element const* k,
                  typename Config::Element const* v, void const* mask, typename Config::Element* d) {
  extern __shared__ __align__(16) unsigned char shared[];
  grid_dependency();
  MmaAttention<Config>(problem, k, v, reinterpret_cast<typename Config::Element*>(shared), int(blockIdx.x),
                       int(threadIdx.x))
      .run(q, mask, d);
}

// Whether every row of the operand begins at a whole access and is a whole number of them.
template <int kAccess>
bool in_accesses(void const* pointer, Strides const& s, int width) {
  bool const rows = s.batch % kAccess == 0 && s.head % kAccess == 0 && s.row % kAccess == 0;
  return rows && width % kAccess == 0 && aligned(pointer, kAccess * 2);
}

template <class Config>
int mma_check(bolt_args const& a) {
  using Kernel = MmaAttention<Config>;
  constexpr int kAccess = Kernel::kAccess;
  constexpr int64_t kMostBlocks = 0x7FFFFFFF;
  if (!sensible(a, Kernel::kMask) || a.head_dim > Kernel::kHead || a.value_dim > Kernel::kValue) {
    return BOLT_E_UNSUPPORTED;
  }
  Problem const p(a);
  int64_t const blocks = int64_t(p.batch) * p.heads * ((p.q_length + Kernel::kRows - 1) / Kernel::kRows);
  bool const reachable = in_accesses<kAccess>(a.a, p.q, p.head_dim) && in_accesses<kAccess>(a.b, p.k, p.head_dim) &&
                         in_accesses<kAccess>(a.b1, p.v, p.value_dim) && in_accesses<kAccess>(a.d, p.out, p.value_dim);
  return reachable && blocks <= kMostBlocks ? BOLT_OK : BOLT_E_UNSUPPORTED;
}

template <class Config>
int mma_run(bolt_args const& a, cudaStream_t stream) {
  using Kernel = MmaAttention<Config>;
  using Element = typename Config::Element;
  if (int const refused = mma_check<Config>(a)) return refused;
  Problem const p(a);
  int const tiles = (p.q_length + Kernel::kRows - 1) / Kernel::kRows;
  return launch(mma_attention<Config>, dim3(unsigned(p.batch * p.heads * tiles)), Kernel::kThreads,
                size_t(Kernel::kSharedBytes), a.pdl != 0, stream, p, static_cast<Element const*>(a.a),
                static_cast<Element const*>(a.b), static_cast<Element const*>(a.b1), a.source,
                static_cast<Element*>(a.d));
}

}  // namespace bolt::attention
