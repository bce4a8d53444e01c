// Passage weights of the reset vector, spec 2.4: weight = node_weight * (ratio * dpr + ln(1 + bonus)); negative, NaN and infinite are 0.
//
// In: cosines of question and passages, the active set, occurrence lists. Out: [queries, n_passages] f32. Arithmetic is f64.
// bonus(p) is summed over the active entities in ascending order: a block owns a tile of passages and takes one entity after the other.
#include "common.cuh"

#define PASSAGE_TILE 1024u

// Smallest and largest cosine of a query. Comparisons only: the order is free. grid (queries)
KERNEL passage_minmax_f32(
    const float* similarities,  // [queries, n_passages]
    u32 n_passages,
    float* minmax)              // [queries, 2]
{
    __shared__ Ranked scratch[32];
    similarities += (size_t)blockIdx.x * n_passages;
    Ranked low = nothing(), high = nothing();
    for (u32 p = threadIdx.x; p < n_passages; p += blockDim.x) {
        const float v = similarities[p];
        if (v != v) continue;  // NaN is neither
        const Ranked up = Ranked{order_key_f32(v), p}, down = Ranked{order_key_f32(-v), p};
        if (before(up, high)) high = up;
        if (before(down, low)) low = down;
    }
    low = block_best(low, scratch);
    high = block_best(high, scratch);
    if (threadIdx.x == 0) {
        minmax[2 * blockIdx.x] = low.id == NONE ? __uint_as_float(0x7f800000u) : similarities[low.id];
        minmax[2 * blockIdx.x + 1] = high.id == NONE ? __uint_as_float(0xff800000u) : similarities[high.id];
    }
}

// grid (tiles, queries)
KERNEL passage_weight_f32(
    const float* similarities,      // [queries, n_passages]
    const float* minmax,            // [queries, 2]
    u32 n_passages,
    const u32* active_offsets,      // [queries + 1]
    const u32* active_entities,     // [active], ascending within a query
    const double* active_scores,    // [active]
    const u32* active_tiers,        // [active], tier + 1, 0 where an entity of the list is not active
    const u32* occurrence_offsets,  // [n_entities + 1]
    const u32* occurrence_passages, // [occurrences], ascending within an entity
    const double* occurrence_ln,    // [occurrences], ln(1 + occ)
    double passage_ratio,
    double node_weight,
    float* out)                     // [queries, n_passages]
{
    __shared__ double bonus[PASSAGE_TILE];
    const u32 query = blockIdx.y, first = blockIdx.x * PASSAGE_TILE;
    const u32 length = min(PASSAGE_TILE, n_passages - first);
    for (u32 i = threadIdx.x; i < length; i += blockDim.x) bonus[i] = 0.0;
    for (u32 a = active_offsets[query]; a < active_offsets[query + 1]; ++a) {
        if (active_tiers[a] == 0) continue;
        __syncthreads();  // the sum of one entity is complete before the next one is added
        const u32 e = active_entities[a];
        const double score = active_scores[a], tier = (double)max(active_tiers[a] - 1u, 1u);
        const u32 end = occurrence_offsets[e + 1];
        const u32 from = lower_bound(occurrence_passages, occurrence_offsets[e], end, first);
        for (u32 i = from + threadIdx.x; i < end; i += blockDim.x) {
            const u32 p = occurrence_passages[i];
            if (p - first >= length) break;
            bonus[p - first] += score * occurrence_ln[i] / tier;
        }
    }
    __syncthreads();
    const double low = (double)minmax[2 * query], range = (double)minmax[2 * query + 1] - low;
    for (u32 i = threadIdx.x; i < length; i += blockDim.x) {
        const size_t at = (size_t)query * n_passages + first + i;
        const double dpr = range > 0.0 ? ((double)similarities[at] - low) / range : 1.0;
        const double weight = node_weight * (passage_ratio * dpr + log1p(bonus[i]));
        out[at] = weight > 0.0 && weight < __longlong_as_double(0x7ff0000000000000ll) ? (float)weight : 0.0f;
    }
}
