// What the encoder kernels share: numbers of 32 or 16 bits in memory, 32 bits in registers.
#pragma once
#include "common.cuh"

#ifndef LIVINGRAG_HOST
#include <cuda_fp16.h>
#endif

typedef __half f16;

__device__ inline float load(const float* from, size_t at) { return from[at]; }
__device__ inline float load(const f16* from, size_t at) { return __half2float(from[at]); }
__device__ inline void store(float* to, size_t at, float v) { to[at] = v; }
__device__ inline void store(f16* to, size_t at, float v) { to[at] = __float2half_rn(v); }

// As `store` leaves it, read back.
__device__ inline float rounded(const float*, float v) { return v; }
__device__ inline float rounded(const f16*, float v) { return __half2float(__float2half_rn(v)); }

// Adds slots[0..SLOTS) as a tree into slots[0]; all threads of the block call it. `slots` is shared memory.
__device__ inline void add_slots_f32(float* slots) {
    for (u32 half = SLOTS / 2; half > 0; half /= 2) {
        __syncthreads();
        for (u32 i = threadIdx.x; i < half; i += blockDim.x) slots[i] += slots[i + half];
    }
    __syncthreads();
}
