// The k best scores of each row, ties by ascending id, NaN last; -0 counts as 0. With k = 1 this is linking (argmax).
//
// In: scores [rows, n]. Out: ids and keys [rows, k], best first, NONE where a row is shorter than k.
// Two launches: every tile of TOPK_TILE scores names its k best, then one block a row merges the tiles' candidates.
#include "topk.cuh"

#define TOPK_TILE 2048u

// grid (tiles, rows)
KERNEL topk_tile_f32(
    const float* scores,  // [rows, n]
    u32 n,
    u32 k,
    u64* keys,            // [rows, tiles, k]
    u32* ids)             // [rows, tiles, k]
{
    __shared__ u64 tile[TOPK_TILE];
    __shared__ Ranked scratch[32];
    const u32 first = blockIdx.x * TOPK_TILE;
    const u32 length = min(TOPK_TILE, n - first);
    const float* row = scores + (size_t)blockIdx.y * n + first;
    for (u32 i = threadIdx.x; i < length; i += blockDim.x) tile[i] = order_key_f32(row[i] + 0.0f);
    __syncthreads();
    const size_t out = ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * k;
    best_in_order(
        length, k, scratch, [&](u32 i) { return Ranked{tile[i], first + i}; },
        [&](u32 place, Ranked best) {
            keys[out + place] = best.key;
            ids[out + place] = best.id;
        });
}

// grid (rows)
KERNEL topk_merge_f32(
    const u64* keys,  // [rows, count]
    const u32* ids,   // [rows, count], NONE where there is no candidate
    u32 count,
    u32 k,
    u64* best_keys,   // [rows, k]
    u32* best)        // [rows, k]
{
    __shared__ Ranked scratch[32];
    keys += (size_t)blockIdx.x * count;
    ids += (size_t)blockIdx.x * count;
    const size_t out = (size_t)blockIdx.x * k;
    best_in_order(
        count, k, scratch, [&](u32 i) { return Ranked{keys[i], ids[i]}; },
        [&](u32 place, Ranked found) {
            best_keys[out + place] = found.key;
            best[out + place] = found.id;
        });
}
