// Stands for templates/include/bolt/sm90_ptx.cuh on the CPU. Barriers count arrivals and bytes, TMA boxes are copied at
// once in their swizzle, wgmma waits for wgmma_wait: it reads its operands as late as the hardware may. Written from the
// PTX ISA (mbarrier, tensor copies with the 128-byte swizzle), not from the kernels.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "bolt/sm80_ptx.cuh"

namespace bolt::attention {
extern unsigned char shared[];
}

namespace bolt::ptx {

// An address of shared memory is an offset that begins inside a swizzle atom, as a real one may.
constexpr uint32_t kWindow = 512;
inline uint32_t shared_address(void const* p) {
  return uint32_t(static_cast<unsigned char const*>(p) - bolt::attention::shared) + kWindow;
}
inline unsigned char* at(uint32_t address) { return bolt::attention::shared + (address - kWindow); }
// The 128-byte swizzle is a function of the address: 16-byte units of a row are exchanged by the row's number.
inline unsigned char* swizzled(uint32_t address) { return at(address ^ (address >> 7 & 7) << 4); }

struct Mbarrier {
  int arrivals = 0, missing = 0;
  int64_t bytes = 0;
  uint32_t phase = 0;
  void advance() {
    if (missing > 0 || bytes != 0) return;
    missing = arrivals;
    phase ^= 1;
  }
};
inline std::map<uint32_t, Mbarrier> mbarriers;

inline void barrier_init(uint32_t barrier, int arrivals) {
  mbarriers[barrier] = {arrivals, arrivals};
}
inline void barrier_init_fence() {}
inline void barrier_arrive(uint32_t barrier) {
  Mbarrier& b = mbarriers.at(barrier);
  if (--b.missing < 0) std::abort();
  b.advance();
}
inline void barrier_arrive_expect(uint32_t barrier, int bytes) {
  Mbarrier& b = mbarriers.at(barrier);
  b.bytes += bytes;
  if (--b.missing < 0) std::abort();
  b.advance();
}
inline void barrier_wait(uint32_t barrier, uint32_t parity) {
  emulator::until([&] { return mbarriers.at(barrier).phase != parity; });
}

struct Ring {
  int stage = 0;
  uint32_t parity = 0;
  void next(int stages) {
    if (++stage == stages) stage = 0, parity ^= 1;
  }
};

struct Named {
  int arrived = 0;
  uint64_t rounds = 0;
};
inline Named named[16];
inline uint64_t arrive(int id, int threads) {
  Named& n = named[id];
  uint64_t const round = n.rounds;
  if (++n.arrived == threads) {
    n.arrived = 0;
    ++n.rounds;
  }
  return round;
}
inline void named_arrive(int id, int threads) {
  arrive(id, threads);
}
inline void named_sync(int id, int threads) {
  uint64_t const round = arrive(id, threads);
  emulator::until([&] { return named[id].rounds != round; });
}

struct Map {
  unsigned char* pointer;
  uint64_t extents[4], strides[3];
  uint32_t box[4];
};
static_assert(sizeof(Map) <= sizeof(CUtensorMap));

template <class Use>  // of (address in shared memory, place in the tensor or null outside), 16 bytes at a time
void each_unit(CUtensorMap const* map, uint32_t address, int x, int y, int z, int w, Use use) {
  Map m;
  std::memcpy(&m, map, sizeof m);
  if (address % 1024 || m.box[0] * 2 != 128) std::abort();
  for (uint32_t row = 0; row < m.box[1]; ++row)
    for (uint32_t e = 0; e < m.box[0]; ++e) {
      uint64_t const at_x = x + e, at_y = y + row;
      bool const inside = at_x < m.extents[0] && at_y < m.extents[1];
      unsigned char* const place = m.pointer + at_x * 2 + at_y * m.strides[0] + z * m.strides[1] + w * m.strides[2];
      use(address + row * 128 + e * 2, inside ? place : nullptr);
    }
}
inline void prefetch_descriptor(CUtensorMap const*) {}
inline void load_4d(uint32_t to, CUtensorMap const* map, uint32_t barrier, int x, int y, int z, int w) {
  int64_t bytes = 0;
  each_unit(map, to, x, y, z, w, [&](uint32_t address, unsigned char* place) {
    uint16_t value = 0;
    if (place) std::memcpy(&value, place, 2);
    std::memcpy(swizzled(address), &value, 2);
    bytes += 2;
  });
  Mbarrier& b = mbarriers.at(barrier);
  b.bytes -= bytes;
  b.advance();
}
inline void store_4d(CUtensorMap const* map, uint32_t from, int x, int y, int z, int w) {
  each_unit(map, from, x, y, z, w, [&](uint32_t address, unsigned char* place) {
    if (place) std::memcpy(place, swizzled(address), 2);
  });
}
inline void wait_stores_read() {}
inline void store_word(uint32_t to, uint32_t word) { std::memcpy(at(to), &word, 4); }
inline void fence_async_proxy() {}
inline void launch_dependents() {}
inline void wait_for_previous_grid() {}

// What this thread has enqueued, by committed group.
using Group = std::vector<std::function<void()>>;
inline Group open_groups[1024];
inline std::vector<Group> committed[1024];
inline void wgmma_fence() {}
inline void wgmma_commit() {
  Group& open = open_groups[threadIdx.x];
  committed[threadIdx.x].push_back(std::move(open));
  open.clear();
}
template <int kPending>
void wgmma_wait() {
  auto& groups = committed[threadIdx.x];
  while (groups.size() > kPending) {
    for (auto& work : groups.front()) work();
    groups.erase(groups.begin());
  }
  warp_meets();  // .sync.aligned: what a lane does next, it does after the products of the whole warp
}
template <int kCount>
void fence_registers(float (&)[kCount]) {}
template <int kRegisters>
void registers_release() {}
template <int kRegisters>
void registers_acquire() {}

template <class Element, int kRank>
bool encode(CUtensorMap& map, void const* pointer, cuuint64_t const (&extents)[kRank],
            cuuint64_t const (&strides)[kRank - 1], cuuint32_t const (&box)[kRank]) {
  static_assert(kRank == 4);
  Map m{static_cast<unsigned char*>(const_cast<void*>(pointer))};
  std::memcpy(m.extents, extents, sizeof m.extents);
  std::memcpy(m.strides, strides, sizeof m.strides);
  std::memcpy(m.box, box, sizeof m.box);
  std::memcpy(&map, &m, sizeof m);
  for (uint64_t stride : strides)
    if (stride % 16 || stride == 0) return false;
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && box[1] <= 256;
}

}  // namespace bolt::ptx
