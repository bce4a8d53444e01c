// What every kernel shares: names of types, ranking keys, reductions over a warp and a block.
//
// The same sources compile for a GPU (nvcc) and, with LIVINGRAG_HOST, as C++20 on the CPU (tests/host_cuda).
// Rules: IEEE arithmetic (no fast math; a fused multiply-add only where fmaf is written, the compiler contracts nothing: -fmad=false);
// no float atomics, a destination owns its sum and adds in an order that neither the block size nor the batch changes.
// blockDim.x is a multiple of 32 and at most 1024.
#pragma once

#ifdef LIVINGRAG_HOST
#include "shim.hpp"
#endif

typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL extern "C" __global__ void
#define FULL 0xffffffffu
#define NONE 0xffffffffu

__device__ inline u32 lane_id() { return threadIdx.x & 31u; }
__device__ inline u32 warp_id() { return threadIdx.x >> 5; }
__device__ inline u32 warps() { return blockDim.x >> 5; }

// A candidate of a ranking: a key that grows with the score, and an id. Ranked by (key desc, id asc).
struct Ranked {
    u64 key;
    u32 id;
};

__device__ inline Ranked nothing() { return Ranked{0, NONE}; }

__device__ inline bool before(Ranked a, Ranked b) { return a.key > b.key || (a.key == b.key && a.id < b.id); }

// Unsigned integers in the order of the floats, NaN lowest (0).
__device__ inline u64 order_key_f32(float v) {
    if (v != v) return 0;
    u32 bits = __float_as_uint(v);
    return (bits >> 31) ? ~bits : (bits | 0x80000000u);
}

__device__ inline u64 order_key_f64(double v) {
    if (v != v) return 0;
    u64 bits = (u64)__double_as_longlong(v);
    return (bits >> 63) ? ~bits : (bits | 0x8000000000000000ull);
}

// The best candidate of a warp, told to all its lanes.
__device__ inline Ranked warp_best(Ranked mine) {
    for (u32 step = 16; step > 0; step >>= 1) {
        Ranked other;
        other.key = __shfl_xor_sync(FULL, mine.key, step);
        other.id = __shfl_xor_sync(FULL, mine.id, step);
        if (before(other, mine)) mine = other;
    }
    return mine;
}

// The best candidate of a block, told to all its threads. `scratch` is shared memory, [32].
__device__ inline Ranked block_best(Ranked mine, Ranked* scratch) {
    mine = warp_best(mine);
    __syncthreads();  // readers of an earlier call are done with scratch
    if (lane_id() == 0) scratch[warp_id()] = mine;
    __syncthreads();
    Ranked best = scratch[0];
    for (u32 w = 1; w < warps(); ++w) {
        if (before(scratch[w], best)) best = scratch[w];
    }
    return best;
}

// First position in list[low, high) whose value is not below `wanted`; the list ascends.
__device__ inline u32 lower_bound(const u32* list, u32 low, u32 high, u32 wanted) {
    while (low < high) {
        u32 middle = low + (high - low) / 2;
        if (list[middle] < wanted) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

// Sums of strided slots, then a fixed tree: SLOTS does not depend on the block size, so neither does the sum.
#define SLOTS 256u

// Adds slots[0..SLOTS) as a tree into slots[0]; all threads of the block call it. `slots` is shared memory.
__device__ inline void add_slots(double* slots) {
    for (u32 half = SLOTS / 2; half > 0; half /= 2) {
        __syncthreads();
        for (u32 i = threadIdx.x; i < half; i += blockDim.x) slots[i] += slots[i + half];
    }
    __syncthreads();
}
