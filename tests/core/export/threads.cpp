// Two exported libraries in one process without Python: four threads, two to each library, all through one handle each.
// Prints "same" if every run gave what the first one did.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "one.hpp"
#include "two.hpp"

using Blocks = std::vector<std::vector<char>>;

// Of C functions that both libraries have; a run's inputs are fp32 numbers that differ from one to the next.
struct Interface {
  int (*inputs)();
  int (*outputs)();
  size_t (*input_bytes)(int);
  size_t (*output_bytes)(int);
};

template <class Model>
Blocks run(Model const& model, Interface const& of) {
  Blocks in, out;
  std::vector<void const*> inputs;
  std::vector<void*> outputs;
  for (int i = 0; i < of.inputs(); ++i) {
    in.emplace_back(of.input_bytes(i));
    float* const numbers = reinterpret_cast<float*>(in.back().data());
    for (size_t k = 0; k < in.back().size() / sizeof(float); ++k) numbers[k] = float(k * 2654435761u % 1000) / 500 - 1;
  }
  for (int i = 0; i < of.outputs(); ++i) out.emplace_back(of.output_bytes(i), char(0xFF));
  for (auto& block : in) inputs.push_back(block.data());
  for (auto& block : out) outputs.push_back(block.data());
  model.run_host(inputs.data(), outputs.data());
  return out;
}

template <class Model>
void repeat(Model const& model, Interface const& of, Blocks const& wanted, int runs, int* wrong) {
  for (int i = 0; i < runs; ++i) *wrong += run(model, of) != wanted;
}

int main(int, char** arguments) try {
  int const runs = std::atoi(arguments[1]);
  Interface const first{one_input_count, one_output_count, one_input_bytes, one_output_bytes};
  Interface const second{two_input_count, two_output_count, two_input_bytes, two_output_bytes};
  bolt::one::Model const one;
  bolt::two::Model const two;
  Blocks const wanted[] = {run(one, first), run(two, second)};
  if (wanted[0] == wanted[1]) return std::puts("the libraries compute the same"), 1;
  int wrong[4] = {};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    if (i % 2 == 0)
      threads.emplace_back([&, i] { repeat(one, first, wanted[0], runs, &wrong[i]); });
    else
      threads.emplace_back([&, i] { repeat(two, second, wanted[1], runs, &wrong[i]); });
  }
  for (auto& thread : threads) thread.join();
  for (int const count : wrong)
    if (count) return std::printf("%d runs differ\n", count), 1;
  return std::puts("same"), 0;
} catch (std::exception const& error) {
  return std::puts(error.what()), 1;
}
