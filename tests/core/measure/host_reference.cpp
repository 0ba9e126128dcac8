// The measuring library's interface (core/measure/reference.h) on the host, for f16 operands and f16 or f32 outputs.
#include <cmath>
#include <cstring>
#include <vector>

#include "reference.h"

static float load(void const* p, int dtype, int64_t i) {
  return dtype == 0 ? float(static_cast<_Float16 const*>(p)[i]) : static_cast<float const*>(p)[i];
}
static void store(void* p, int dtype, int64_t i, float x) {
  if (dtype == 0) {
    static_cast<_Float16*>(p)[i] = _Float16(x);
  } else {
    static_cast<float*>(p)[i] = x;
  }
}

extern "C" {
int bolt_ref_fill(void* p, int dtype, int64_t n, uint64_t seed, float scale, cudaStream_t) {
  uint64_t state = seed * 2654435761u + 12345;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    if (dtype == 4) {
      static_cast<unsigned char*>(p)[i] = (state >> 61) != 0;
      continue;
    }
    store(p, dtype, i, (float(state >> 40) / 8388608.f - 1.f) * scale);
  }
  return 0;
}

static float sum_gemm(bolt_ref_problem const& p, void const* a, void const* b, int64_t z, int64_t i, int64_t j) {
  float sum = 0;
  int64_t const base_a = z * p.m * p.k, base_b = p.shared_b ? 0 : z * p.n * p.k;
  for (int64_t k = 0; k < p.k; ++k) {
    sum += load(a, p.dtype, base_a + (p.a_col ? k * p.m + i : i * p.k + k)) *
           load(b, p.dtype, base_b + (p.b_col ? j * p.k + k : k * p.n + j));
  }
  return sum;
}

int bolt_ref_run(bolt_ref_problem const* problem, bolt_ref_ops const* ops, void const* a, void const* b,
                 void const* bias, void const* source, float* out, cudaStream_t) {
  bolt_ref_problem const& p = *problem;
  if (p.is_conv) return 1;
  for (int64_t z = 0; z < p.batch; ++z)
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t j = 0; j < p.n; ++j) {
        int64_t const at = (z * p.m + i) * p.n + j;
        out[at] = bolt_ref::all(*ops, sum_gemm(p, a, b, z, i, j), bias ? load(bias, p.dtype, j) : 0,
                                source ? load(source, p.out_dtype, at) : 0);
      }
  return 0;
}

int bolt_ref_attend(bolt_ref_attention const* problem, void const* q, void const* k, void const* v, void const* mask,
                    float* out, cudaStream_t) {
  bolt_ref_attention const& p = *problem;
  auto const at = [](int64_t const (&s)[3], int64_t b, int64_t h, int64_t i) { return b * s[0] + h * s[1] + i * s[2]; };
  for (int64_t b = 0; b < p.batch; ++b)
    for (int64_t h = 0; h < p.heads; ++h)
      for (int64_t i = 0; i < p.q_length; ++i) {
        int64_t const shared = h / (p.heads / p.kv_heads);
        double total = 0;
        std::vector<double> sums(p.value_dim, 0.0);
        for (int64_t j = 0; j < p.kv_length && !(p.causal && j > i); ++j) {
          double score = 0;
          for (int64_t d = 0; d < p.head_dim; ++d) {
            score += load(q, 0, at(p.q, b, h, i) + d) * load(k, 0, at(p.k, b, shared, j) + d);
          }
          score *= p.scale;
          int64_t const place = at(p.mask, b, h, i) + j;
          if (p.mask_kind == 1) score += load(mask, 0, place);
          double weight = std::exp(score);
          if (p.mask_kind > 1 && bool(static_cast<unsigned char const*>(mask)[place]) == (p.mask_kind % 2 == 1)) {
            weight = p.mask_kind > 3 ? 1e-100 : 0;
          }
          total += weight;
          for (int64_t d = 0; d < p.value_dim; ++d) sums[d] += weight * load(v, 0, at(p.v, b, shared, j) + d);
        }
        for (int64_t d = 0; d < p.value_dim; ++d) out[at(p.out, b, h, i) + d] = total == 0 ? 0.f : float(sums[d] / total);
      }
  return 0;
}

int bolt_ref_round(float const* in, void* out, int dtype, int64_t n, cudaStream_t) {
  for (int64_t i = 0; i < n; ++i) store(out, dtype, i, in[i]);
  return 0;
}

int bolt_ref_compare(void const* d, int dtype, float const* reference, int64_t n, bolt_ref_result* result,
                     cudaStream_t) {
  bolt_ref_result found{};
  float worst = 0;
  for (int64_t i = 0; i < n; ++i) {
    float const x = load(d, dtype, i), y = reference[i];
    found.reference2 += double(y) * y;
    if (!std::isfinite(x)) {
      ++found.non_finite;
      continue;
    }
    found.difference2 += double(x - y) * (x - y);
    worst = std::fmax(worst, std::fabs(x - y));
  }
  std::memcpy(&found.max_abs_bits, &worst, 4);
  *result = found;
  return 0;
}

int bolt_ref_guard(void const* base, int64_t count, int64_t stride, int64_t begin, int64_t end, int value,
                   unsigned long long* changed, cudaStream_t) {
  *changed = 0;
  auto const* bytes = static_cast<unsigned char const*>(base);
  for (int64_t block = 0; block < count; ++block)
    for (int64_t i = 0; i < stride; ++i)
      if (i < begin || i >= end) *changed += bytes[block * stride + i] != value;
  return 0;
}

int bolt_ref_digest(void const* base, int64_t bytes, unsigned long long* sum, cudaStream_t) {
  *sum = 0;
  for (int64_t i = 0; i < bytes / 4; ++i) *sum += bolt_ref_mixed(static_cast<unsigned const*>(base)[i], i);
  return 0;
}

int bolt_ref_elementwise(void* d, int out_dtype, void const* bias, int bias_dtype, void const* source, int64_t rows,
                         int64_t columns, bolt_ref_ops const* ops, cudaStream_t) {
  for (int64_t i = 0; i < rows * columns; ++i) {
    store(d, out_dtype, i,
          bolt_ref::all(*ops, load(d, out_dtype, i), bias ? load(bias, bias_dtype, i % columns) : 0,
                        source ? load(source, out_dtype, i) : 0));
  }
  return 0;
}

// One value through the interpreter, for the test of its definitions.
float host_evaluate(bolt_ref_ops const* ops, float x, float bias, float source) {
  return bolt_ref::all(*ops, x, bias, source);
}
}
