// Output operator of CUTLASS 2.x epilogues for a generated chain: D = convert(Chain::apply(accumulator, bias, source)).
//
// Fits epilogue::threadblock::EpilogueWithBroadcast (single source): bias is the broadcast vector along N, the source
// is the C tensor. A chain without a source never loads C, one without a bias is run with a null vector pointer.
#pragma once
#include "bolt/activations.h"
#include "cutlass/array.h"
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/threadblock/epilogue_with_broadcast.h"
#include "cutlass/numeric_conversion.h"

namespace bolt {

template <class Chain, class ElementOutput_, class ElementBias_, int kElements>
struct ChainOp {
  using ElementOutput = ElementOutput_;
  using ElementC = ElementOutput_;
  using ElementD = ElementOutput_;
  using ElementZ = ElementOutput_;
  using ElementT = ElementOutput_;
  using ElementVector = ElementBias_;
  using ElementAccumulator = float;
  using ElementCompute = float;
  static int const kElementsPerAccess = kElements;
  static int const kCount = kElements;
  static bool const kStoreZ = true;
  static bool const kStoreT = false;
  static bool const kIsSingleSource = true;
  static bool const kIsHeavy = false;

  using FragmentAccumulator = cutlass::Array<float, kElements>;
  using FragmentCompute = cutlass::Array<float, kElements>;
  using FragmentC = cutlass::Array<ElementOutput, kElements>;
  using FragmentZ = cutlass::Array<ElementOutput, kElements>;
  using FragmentT = cutlass::Array<ElementOutput, kElements>;

  struct Params {};

  CUTLASS_HOST_DEVICE ChainOp(Params const&) {}
  CUTLASS_HOST_DEVICE static constexpr bool is_source_needed() { return Chain::kSource; }
  CUTLASS_HOST_DEVICE void set_k_partition(int, int) {}

  CUTLASS_HOST_DEVICE void operator()(FragmentZ& z, FragmentT&, FragmentAccumulator const& accumulator,
                                      FragmentC const& source, FragmentCompute const& bias) const {
    cutlass::NumericArrayConverter<float, ElementOutput, kElements> widen;
    FragmentCompute wide = widen(source);
    store(z, accumulator, wide, bias);
  }

  CUTLASS_HOST_DEVICE void operator()(FragmentZ& z, FragmentT&, FragmentAccumulator const& accumulator,
                                      FragmentCompute const& bias) const {
    FragmentCompute none;
    none.clear();
    store(z, accumulator, none, bias);
  }

 private:
  CUTLASS_HOST_DEVICE static void store(FragmentZ& z, FragmentAccumulator const& accumulator,
                                        FragmentCompute const& source, FragmentCompute const& bias) {
    FragmentCompute result;
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kElements; ++i) result[i] = Chain::apply(accumulator[i], bias[i], source[i]);
    cutlass::NumericArrayConverter<ElementOutput, float, kElements> narrow;
    z = narrow(result);
  }
};

// Reads the staged accumulators with tile offsets in rows.
//
// When EpilogueWithBroadcast reads a source, it steps from one slice of K to the next by add_tile_offset in rows, but
// CUTLASS's iterators count that offset in tiles of eight rows (epilogue_with_broadcast.h compute_source_needed_,
// shared_load_iterator.h): it would add what lies behind the sums of the other warps.
template <class Load, int kColumns>
struct RowOffsetLoad : Load {
  using Load::Load;
  CUTLASS_DEVICE void add_tile_offset(cutlass::MatrixCoord const& offset) {
    this->add_pointer_offset(offset.row() * kColumns + offset.column());
  }
};

// The epilogue, with RowOffsetLoad where warps share a tile along K.
template <class Epilogue>
struct SlicedK;
template <class Shape, class Warp, int kSlices, class Out, class Tensor, class Vector, class Fragment, class Stage,
          class Load, class Op, class Padding, int kFragments, int kUnroll, bool kSingle>
struct SlicedK<cutlass::epilogue::threadblock::EpilogueWithBroadcast<Shape, Warp, kSlices, Out, Tensor, Vector, Fragment,
                                                                     Stage, Load, Op, Padding, kFragments, kUnroll, kSingle>> {
  template <class L>
  using With = cutlass::epilogue::threadblock::EpilogueWithBroadcast<Shape, Warp, kSlices, Out, Tensor, Vector, Fragment,
                                                                     Stage, L, Op, Padding, kFragments, kUnroll, kSingle>;
  using Staged = typename With<Load>::BaseSharedStorage::StorageShape;
  static_assert(kSlices == 1 || Staged::kRow / kSlices * Staged::kColumn == With<Load>::kSmemPointerOffset,
                "the slices lie elsewhere than where the epilogue without a source reads them");
  using type = With<typename cutlass::platform::conditional<(kSlices > 1), RowOffsetLoad<Load, Staged::kColumn>, Load>::type>;
};

}  // namespace bolt
