// Fusion of matched activation maps into the seeds, equations 8 to 10: a0 = normalize(a_base + beta * sum_k w_k a_k), with
// w_k = softmax(s_k / tau) * confidence_k, not renormalised.
//
// In: for each query its own entities and those of its matches as one ascending list of ids, base values there, the matched maps.
// Out: fused values on those ids. One block a query; an entity adds its base first, then the matches in rank order; the scale of
// `normalize` is summed over ascending slots. Arithmetic is f64.
#include "common.cuh"

// normalize: 0 max, 1 l1, 2 l2, 3 none. grid (queries)
KERNEL fuse_f64(
    const u32* id_offsets,      // [queries + 1]
    const u32* ids,             // [entries], ascending within a query
    const double* base,         // [entries], a_base there, 0 where it has no entry
    const u32* match_offsets,   // [queries + 1]
    const double* scores,       // [matches], s_ret in rank order
    const double* confidences,  // [matches]
    const u32* map_offsets,     // [matches + 1]
    const u32* map_ids,         // [map entries], ascending within a map
    const double* map_values,   // [map entries]
    double beta,
    double tau,
    u32 normalize,
    double* weights,            // [matches], equation 10
    double* out)                // [entries]
{
    __shared__ double slots[SLOTS];
    const u32 query = blockIdx.x;
    const u32 first_match = match_offsets[query], end_match = match_offsets[query + 1];
    const u32 first = id_offsets[query], end = id_offsets[query + 1];
    if (threadIdx.x == 0 && first_match < end_match) {
        double top = scores[first_match], sum = 0.0;
        for (u32 m = first_match; m < end_match; ++m) top = fmax(top, scores[m]);
        for (u32 m = first_match; m < end_match; ++m) {
            weights[m] = exp((scores[m] - top) / tau);
            sum += weights[m];
        }
        for (u32 m = first_match; m < end_match; ++m) weights[m] = weights[m] / sum * confidences[m];
    }
    __syncthreads();
    for (u32 slot = threadIdx.x; slot < SLOTS; slot += blockDim.x) {
        double part = 0.0;
        for (u32 i = first + slot; i < end; i += SLOTS) {
            double value = base[i];
            for (u32 m = first_match; m < end_match; ++m) {
                const u32 to = map_offsets[m + 1], at = lower_bound(map_ids, map_offsets[m], to, ids[i]);
                if (at < to && map_ids[at] == ids[i]) value += beta * weights[m] * map_values[at];
            }
            out[i] = value;
            if (normalize == 0) part = fmax(part, value);
            if (normalize == 1) part += fabs(value);
            if (normalize == 2) part += value * value;
        }
        slots[slot] = part;
    }
    double scale = 0.0;
    if (normalize == 0) {
        __syncthreads();
        for (u32 slot = 0; slot < SLOTS; ++slot) scale = fmax(scale, slots[slot]);
    } else if (normalize != 3) {
        add_slots(slots);
        scale = normalize == 2 ? sqrt(slots[0]) : slots[0];
    }
    __syncthreads();
    if (scale > 0.0) {
        for (u32 i = first + threadIdx.x; i < end; i += blockDim.x) out[i] = out[i] * (1.0 / scale);
    }
}
