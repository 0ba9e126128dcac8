// The epilogue of CUTLASS 3.x kernels (sm90): a generated chain as an epilogue visitor tree.
//
//   Sm90Compute<chain>( accumulator [, bias broadcast along M] [, source tensor] )
//
// The tree goes where CollectiveBuilder takes a fusion operation; the epilogue schedule must then be named, the
// builder's Auto schedule refuses custom trees. The bias is staged in shared memory once a tile, the source comes by
// TMA through the epilogue's load warp, and arithmetic is fp32.
#pragma once
#include "bolt/activations.h"
#include "bolt/sm90_convert.cuh"
#include "cutlass/array.h"
#include "cutlass/cutlass.h"
#include "cutlass/epilogue/fusion/sm90_callbacks_tma_warpspecialized.hpp"
#include "cutlass/functional.h"

namespace bolt {

// The compute node. `Chain::apply(accumulator, bias, source)` is every step but a final ReLU; that one, if
// `kFinalRelu`, is taken in the conversion to a 16-bit output, where it is free.
template <class Chain, class ElementD, bool kFinalRelu>
struct ChainNode {
  // Sm90Compute wants a template of one parameter, the fragment type.
  template <class Fragment>
  struct Compute {
    // `operands` are the fragments of the bias and of the source, in this order, those that the chain has.
    template <class... Operands>
    CUTLASS_DEVICE auto operator()(Fragment const& accumulator, Operands const&... operands) const {
      constexpr int kCount = Fragment::kElements;
      Fragment result;
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kCount; ++i) {
        result[i] = apply(accumulator[i], operands[i]...);
      }
      if constexpr (kFinalRelu && kPackable<ElementD>) {
        static_assert(kCount % 2 == 0, "a fragment holds pairs");
        cutlass::Array<ElementD, kCount> packed;
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kCount; i += 2) {
          reinterpret_cast<uint32_t*>(&packed)[i / 2] = pack_pair<ElementD, true>(result[i], result[i + 1]);
        }
        return packed;
      } else if constexpr (kFinalRelu) {
        CUTLASS_PRAGMA_UNROLL
        for (int i = 0; i < kCount; ++i) {
          result[i] = relu(result[i]);
        }
        return result;
      } else {
        return result;
      }
    }

   private:
    template <class... Operands>
    CUTLASS_DEVICE static float apply(float accumulator, Operands... operands) {
      static_assert(sizeof...(Operands) == int(Chain::kBias) + int(Chain::kSource), "one operand for each leaf");
      if constexpr (Chain::kBias && Chain::kSource) {
        return Chain::apply(accumulator, operands...);
      } else if constexpr (Chain::kBias) {
        return Chain::apply(accumulator, operands..., 0.f);
      } else if constexpr (Chain::kSource) {
        return Chain::apply(accumulator, 0.f, operands...);
      } else {
        return Chain::apply(accumulator, 0.f, 0.f);
      }
    }
  };
};

// The tree of one kernel. ElementC is the source's type, or void where the chain has none; then neither its load nor
// its shared memory exists. `kBiasDown`: the tile is of D^T, so the bias runs down its rows; it then comes from memory
// straight into registers.
template <class Chain, class TileShape, class ElementBias, class ElementD, bool kFinalRelu, bool kBiasDown = false>
struct Epilogue3x {
  using ElementC = cute::conditional_t<Chain::kSource, ElementD, void>;
  using Node =
      cutlass::epilogue::fusion::Sm90Compute<ChainNode<Chain, ElementD, kFinalRelu>::template Compute, ElementD, float,
                                             cutlass::FloatRoundStyle::round_to_nearest>;
  using Accumulator = cutlass::epilogue::fusion::Sm90AccFetch;
  static constexpr int kBiasAlign = 128 / cutlass::sizeof_bits<ElementBias>::value;
  using BiasAcross =
      cutlass::epilogue::fusion::Sm90RowBroadcast<0, TileShape, ElementBias, float,
                                                  cute::Stride<cute::_0, cute::_1, cute::_0>, kBiasAlign,
                                                  /*EnableNullptr=*/false>;
  using BiasDown =
      cutlass::epilogue::fusion::Sm90ColBroadcast<0, TileShape, ElementBias, float,
                                                  cute::Stride<cute::_1, cute::_0, cute::_0>, kBiasAlign,
                                                  /*EnableNullptr=*/false>;
  using Bias = cute::conditional_t<kBiasDown, BiasDown, BiasAcross>;
  using Source = cutlass::epilogue::fusion::Sm90SrcFetch<ElementC>;

  template <class... Leaves>
  using TreeOf = cutlass::epilogue::fusion::Sm90EVT<Node, Accumulator, Leaves...>;
  using Biased = cute::conditional_t<Chain::kSource, TreeOf<Bias, Source>, TreeOf<Bias>>;
  using Unbiased = cute::conditional_t<Chain::kSource, TreeOf<Source>, TreeOf<>>;
  using Tree = cute::conditional_t<Chain::kBias, Biased, Unbiased>;

  static typename Tree::Arguments arguments(void const* bias) {
    typename Tree::Arguments arguments{};
    if constexpr (Chain::kBias && kBiasDown) {
      arguments.op_1.ptr_col = static_cast<ElementBias const*>(bias);
    } else if constexpr (Chain::kBias) {
      arguments.op_1.ptr_row = static_cast<ElementBias const*>(bias);
    }
    return arguments;
  }
};

}  // namespace bolt
