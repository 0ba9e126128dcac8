// Host side of the Hopper tower (bolt/sm90_tower_kernel.cuh): plan, check, launch, behind the arguments of bolt/abi.h.
#pragma once
#include <tuple>
#include "bolt/abi.h"
#include "bolt/launch.h"
#include "bolt/sm90_tower_kernel.cuh"

namespace bolt::tower {

constexpr int kSmemPerBlock = 232448, kOverhead = 2048;  // compute capability 9.0; alignment and barriers
constexpr int kMaxInputStages = 8;

// The products of a launch, the first one first.
struct Product {
  void const *weights, *bias;
  int64_t ld;
  int width, depth;
};

// How an instance is laid over a problem; the tuner knows the same arithmetic, templates/sm90_tower_b2b/geometry.py.
template <class Config>
struct Plan {
  using I = Instance<Config>;
  Params params{};
  Product products[kMaxLayers]{};
  int smem = 0, grid = 0;

  bool make(bolt_args const& a) {
    products[0] = {a.b, a.bias, a.ldb, a.n, a.k};
    products[1] = {a.b1, a.bias1, a.ldb1, a.n1, a.n};
    products[2] = {a.b2, a.bias2, a.ldb2, a.n2, a.n1};
    if (a.m <= 0 || a.sm_count <= 0 || a.batch > 1 || a.k % 8 || a.lda < a.k || a.lda % 8) return false;
    Params& p = params;
    int panels = 0;
    for (int i = 0; i < I::kLayers; ++i) {
      Product const& layer = products[i];
      if (layer.width <= 0 || layer.depth <= 0 || layer.ld < layer.depth || layer.ld % 8) return false;
      p.width[i] = layer.width;
      p.bias[i] = layer.bias;
      p.chunks[i] = ceil_div(layer.depth, kChannels);
      p.passes[i] = ceil_div(layer.width, I::kWeightRows);
      if (i + 1 < I::kLayers) panels += ceil_div(layer.width, kChannels);
    }
    int const last = p.width[I::kLayers - 1];
    p.m = a.m;
    p.tiles = ceil_div(a.m, I::kRows);
    p.elementwise = last % 8 || a.ldd % 8 || (Config::kSource && a.ldsource1 % 8);
    p.weights_constant = a.pdl != 2;
    p.d = a.d;
    p.ldd = a.ldd;
    p.source_elements = a.source1;
    p.ldsource = a.ldsource1;
    if (a.ldd < last || (Config::kSource && a.ldsource1 < last)) return false;
    grid = least(p.tiles, a.sm_count);
    // Half of what is free to weights, so that either ring holds some products' worth; what is left over to A.
    int const free_bytes = kSmemPerBlock - kOverhead - I::kPanelBytes * (panels + I::kGroups);
    p.input_stages = least(least(p.chunks[0], kMaxInputStages), free_bytes / 4 / I::kPanelBytes);
    if (p.input_stages < 2) p.input_stages = 2;
    p.weight_stages = least((free_bytes - p.input_stages * I::kPanelBytes) / I::kWeightStage, kMaxStages);
    if (p.weight_stages < 2) return false;
    smem = kOverhead + I::kPanelBytes * (panels + I::kGroups + p.input_stages) + p.weight_stages * I::kWeightStage;
    return true;
  }

  // Descriptors; false if the driver refuses one. Call `make` before.
  bool encode(bolt_args const& a) {
    using Element = typename Config::Element;
    using Extent = cuuint64_t;
    using Box = cuuint32_t;
    auto matrix = [](CUtensorMap& map, void const* pointer, Extent rows, Extent columns, Extent ld, int box_rows) {
      Extent const row = ld * sizeof(Element);
      return ptx::encode<Element, 3>(map, pointer, {columns, rows, 1}, {row, row * rows},
                                     {kChannels, Box(box_rows), 1});
    };
    auto result = [&](CUtensorMap& map, void const* pointer, Extent ld) {
      Extent const row = ld * sizeof(Element), rows = a.m, columns = params.width[I::kLayers - 1];
      return ptx::encode<Element, 4>(map, pointer, {columns, rows, 1, 1}, {row, row * rows, row * rows},
                                     {kChannels, Box(I::kRows), 1, 1});
    };
    bool good = matrix(params.input, a.a, a.m, a.k, a.lda, I::kRows);
    for (int i = 0; i < I::kLayers; ++i) {
      Product const& layer = products[i];
      good = good && matrix(params.weights[i], layer.weights, layer.width, layer.depth, layer.ld, I::kWeightRows);
    }
    if (!params.elementwise) {
      good = good && result(params.output, a.d, a.ldd);
      if (Config::kSource) good = good && result(params.source, a.source1, a.ldsource1);
    }
    return good;
  }

 private:
  static int least(int a, int b) { return a < b ? a : b; }
  static int ceil_div(int a, int b) { return (a + b - 1) / b; }
};

template <class Config, int... kLayer>
bool biases_there(Product const (&products)[kMaxLayers], std::integer_sequence<int, kLayer...>) {
  return ((!Config::template Epilogue<kLayer>::Chain::kBias || products[kLayer].bias) && ...);
}

template <class Config>
int check(bolt_args const& args) {
  if (!args.a || !args.b || !args.b1 || !args.d) return BOLT_E_UNSUPPORTED;
  if (Config::kLayers > 2 ? !args.b2 : args.b2 != nullptr) return BOLT_E_UNSUPPORTED;
  if (Config::kSource && !args.source1) return BOLT_E_UNSUPPORTED;
  Plan<Config> plan;
  if (!plan.make(args)) return BOLT_E_UNSUPPORTED;
  bool const complete = biases_there<Config>(plan.products, std::make_integer_sequence<int, Config::kLayers>{});
  return complete ? BOLT_OK : BOLT_E_UNSUPPORTED;
}

template <class Config>
int run(bolt_args const& args, cudaStream_t stream) {
  if (int refused = check<Config>(args)) return refused;
  Plan<Config> plan;
  if (!plan.make(args) || !plan.encode(args)) return BOLT_E_UNSUPPORTED;
  return launch<kSmemPerBlock>(tower<Config>, dim3(unsigned(plan.grid)), Instance<Config>::kThreads, plan.smem,
                               args.pdl != 0, stream, plan.params);
}

}  // namespace bolt::tower
