// Kernels with mistakes on purpose, which the shim must catch, and their correct twins, which it must let pass.
#include "common.cuh"

// out[i] = in[n - 1 - i] through shared memory. grid (1), n <= 128
KERNEL planted_reverse_u32(const u32* in, u32 n, u32* out) {
    __shared__ u32 tile[128];
    if (threadIdx.x < n) tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < n) out[threadIdx.x] = tile[n - 1 - threadIdx.x];
}

// The same with its barrier left out.
KERNEL planted_no_barrier_u32(const u32* in, u32 n, u32* out) {
    __shared__ u32 tile[128];
    if (threadIdx.x < n) tile[threadIdx.x] = in[threadIdx.x];
    if (threadIdx.x < n) out[threadIdx.x] = tile[n - 1 - threadIdx.x];
}

// Reads one element past the end of a buffer.
KERNEL planted_past_the_end_u32(const u32* in, u32 n, u32* out) {
    if (threadIdx.x < n) out[threadIdx.x] = in[threadIdx.x + 1];
}

// Writes one element past the end of a shared array.
KERNEL planted_past_shared_u32(const u32* in, u32 n, u32* out) {
    __shared__ u32 tile[64];
    u32* volatile start = tile;  // through a pointer whose bounds only the red zone knows
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) start[i] = in[0];
    __syncthreads();
    if (threadIdx.x < 64) out[threadIdx.x] = tile[threadIdx.x];
}

// A barrier that only some threads reach.
KERNEL planted_divergent_barrier_u32(const u32* in, u32 n, u32* out) {
    if (threadIdx.x < n) __syncthreads();
    out[threadIdx.x] = in[threadIdx.x];
}

// A shuffle that half of the warp leaves out.
KERNEL planted_lost_lanes_u32(const u32* in, u32 n, u32* out) {
    if (threadIdx.x >= n) return;
    out[threadIdx.x] = __shfl_xor_sync(FULL, in[threadIdx.x], 1u);
}

// Sums through dynamic shared memory of blockDim.x numbers; one past its end where `n` is larger.
KERNEL planted_dynamic_u32(const u32* in, u32 n, u32* out) {
    SHARED_DYNAMIC(u32, tile);
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) tile[i] = in[i];
    __syncthreads();
    u32 sum = 0;
    for (u32 i = 0; i < n; ++i) sum += tile[i];
    out[threadIdx.x] = sum;
}
