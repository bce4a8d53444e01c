// Row by row: bias with erf GELU, and layer normalisation of a sum with its residual. Numbers in memory are f32 or f16, sums f32.
#include "encoder.cuh"

// y = act(x + bias): act 0 nothing, 1 GELU, v / 2 * (1 + erf(v / sqrt 2)). A thread a number.
template <class T>
__device__ inline void bias_act(const T* x, const float* bias, u64 numbers, u32 width, u32 act, T* y) {
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= numbers) return;
    float v = load(x, at) + bias[at % width];
    if (act == 1) v = 0.5f * v * (1.0f + erff(v * 0.70710678f));
    store(y, at, v);
}

KERNEL encoder_bias_f32(
    const float* x,     // [rows, width]
    const float* bias,  // [width]
    u32 rows,
    u32 width,
    u32 act,
    float* y)           // [rows, width]
{
    bias_act(x, bias, (u64)rows * width, width, act, y);
}

KERNEL encoder_bias_f16(
    const f16* x,       // [rows, width]
    const float* bias,  // [width]
    u32 rows,
    u32 width,
    u32 act,
    f16* y)             // [rows, width]
{
    bias_act(x, bias, (u64)rows * width, width, act, y);
}

// y = gamma * (s - mean) / sqrt(var + eps) + beta with s = x + residual. A block a row; 256 strided slots, then a tree. `slots` is shared memory, [SLOTS].
template <class T>
__device__ inline void norm(const T* x, const T* residual, u32 has_residual, const float* gamma, const float* beta, u32 width, float eps, T* y, float* slots) {
    const size_t row = (size_t)blockIdx.x * width;
    auto sum_at = [&](u32 i) { return has_residual ? load(x, row + i) + load(residual, row + i) : load(x, row + i); };
    for (u32 slot = threadIdx.x; slot < SLOTS; slot += blockDim.x) {
        float sum = 0.0f;
        for (u32 i = slot; i < width; i += SLOTS) sum += sum_at(i);
        slots[slot] = sum;
    }
    add_slots_f32(slots);
    const float mean = slots[0] / (float)width;
    __syncthreads();  // everybody has read the mean
    for (u32 slot = threadIdx.x; slot < SLOTS; slot += blockDim.x) {
        float sum = 0.0f;
        for (u32 i = slot; i < width; i += SLOTS) {
            const float d = sum_at(i) - mean;
            sum = fmaf(d, d, sum);
        }
        slots[slot] = sum;
    }
    add_slots_f32(slots);
    const float scale = 1.0f / sqrtf(slots[0] / (float)width + eps);
    for (u32 i = threadIdx.x; i < width; i += blockDim.x) {
        store(y, row + i, fmaf((sum_at(i) - mean) * scale, gamma[i], beta[i]));
    }
}

// grid (rows)
KERNEL encoder_norm_f32(
    const float* x,         // [rows, width]
    const float* residual,  // [rows, width], read only where has_residual
    u32 has_residual,
    const float* gamma,     // [width]
    const float* beta,      // [width]
    u32 width,
    float eps,
    float* y)               // [rows, width]
{
    __shared__ float slots[SLOTS];
    norm(x, residual, has_residual, gamma, beta, width, eps, y, slots);
}

// grid (rows)
KERNEL encoder_norm_f16(
    const f16* x,         // [rows, width]
    const f16* residual,  // [rows, width], read only where has_residual
    u32 has_residual,
    const float* gamma,   // [width]
    const float* beta,    // [width]
    u32 width,
    float eps,
    f16* y)               // [rows, width]
{
    __shared__ float slots[SLOTS];
    norm(x, residual, has_residual, gamma, beta, width, eps, y, slots);
}
