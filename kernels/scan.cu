// Scan of an experience store, equations 7, 12, 13 and 17: the K best by s_ret and the best scaffold of each query.
//
// In: activations, inverted lists entity -> (experience, value), norms, cosines of questions and templates. Out: ids and cos(a, a_k).
// A block owns a tile of experiences and adds one entity's list after the other in ascending order, so each experience's sum has one
// order. Arithmetic is f64. Ranked by (score desc, experience asc); the tiles' candidates are merged by one block a query.
#include "common.cuh"

#define SCAN_TILE 1024u

// grid (tiles of the largest visible count, queries)
KERNEL scan_tile_f64(
    const u32* activation_offsets,  // [queries + 1]
    const u32* activation_lists,    // [entries], which inverted list, ascending entities
    const double* activation_values,// [entries]
    const u32* list_offsets,        // [lists + 1]
    const u32* list_experiences,    // [postings], ascending within a list
    const double* list_values,      // [postings]
    const double* norms,            // [stored]
    const double* query_norms,      // [queries]
    const u32* visible,             // [queries], experiences a query may see
    const u64* cosine_offsets,      // [queries], where its cosines begin
    const float* cos_query,         // [sum of visible]
    const float* cos_template,      // [sum of visible]
    const u32* has_template,        // [queries]
    const double* alpha,            // [queries]
    const double* lambda,           // [queries]
    u32 k,
    double* cos_activation,         // [sum of visible]
    u64* keys,                      // [queries, tiles, k + 1], the scaffold last
    u32* ids)                       // [queries, tiles, k + 1]
{
    __shared__ double product[SCAN_TILE];
    __shared__ u64 score_key[SCAN_TILE];
    __shared__ Ranked scratch[32];
    const u32 query = blockIdx.y, first = blockIdx.x * SCAN_TILE;
    const u32 length = first < visible[query] ? min(SCAN_TILE, visible[query] - first) : 0;
    for (u32 i = threadIdx.x; i < length; i += blockDim.x) product[i] = 0.0;
    if (length > 0) {
        for (u32 a = activation_offsets[query]; a < activation_offsets[query + 1]; ++a) {
            __syncthreads();  // one entity is complete before the next
            const double value = activation_values[a];
            const u32 list = activation_lists[a], end = list_offsets[list + 1];
            const u32 from = lower_bound(list_experiences, list_offsets[list], end, first);
            for (u32 i = from + threadIdx.x; i < end; i += blockDim.x) {
                const u32 at = list_experiences[i] - first;
                if (at >= length) break;
                product[at] += value * list_values[i];
            }
        }
    }
    __syncthreads();
    const u64 cosines = cosine_offsets[query] + first;
    Ranked scaffold = nothing();
    for (u32 i = threadIdx.x; i < length; i += blockDim.x) {
        const double scale = query_norms[query] * norms[first + i];
        const double cosine = scale > 0.0 ? product[i] / scale : 0.0;
        const double score = alpha[query] * (double)cos_query[cosines + i] + (1.0 - alpha[query]) * cosine;
        cos_activation[cosines + i] = cosine;
        score_key[i] = order_key_f64(score);
        if (has_template[query]) {
            const double fit = (1.0 - lambda[query]) * score + lambda[query] * (double)cos_template[cosines + i];
            const Ranked candidate = Ranked{order_key_f64(fit), first + i};
            if (before(candidate, scaffold)) scaffold = candidate;
        }
    }
    scaffold = block_best(scaffold, scratch);
    const size_t out = ((size_t)query * gridDim.x + blockIdx.x) * (k + 1);
    if (threadIdx.x == 0) {
        keys[out + k] = scaffold.key;
        ids[out + k] = scaffold.id;
    }
    Ranked last = nothing();
    for (u32 place = 0; place < k; ++place) {
        if (place < length) {
            Ranked mine = nothing();
            for (u32 i = threadIdx.x; i < length; i += blockDim.x) {
                const Ranked candidate = Ranked{score_key[i], first + i};
                if ((place == 0 || before(last, candidate)) && before(candidate, mine)) mine = candidate;
            }
            last = block_best(mine, scratch);
        } else {
            last = nothing();
        }
        if (threadIdx.x == 0) {
            keys[out + place] = last.key;
            ids[out + place] = last.id;
        }
    }
}

// grid (queries)
KERNEL scan_merge_f64(
    const u64* keys,               // [queries, tiles, k + 1]
    const u32* ids,                // [queries, tiles, k + 1]
    u32 tiles,
    u32 k,
    const u64* cosine_offsets,     // [queries]
    const double* cos_activation,  // [sum of visible]
    u32* best,                     // [queries, k + 1], NONE where there are fewer; the scaffold last
    double* best_cosine)           // [queries, k + 1]
{
    __shared__ Ranked scratch[32];
    const size_t query = blockIdx.x, width = k + 1;
    keys += query * tiles * width;
    ids += query * tiles * width;
    Ranked last = nothing();
    for (u32 place = 0; place <= k; ++place) {
        const bool scaffold = place == k;
        Ranked mine = nothing();
        for (u32 i = threadIdx.x; i < tiles * (scaffold ? 1u : k); i += blockDim.x) {
            const size_t at = scaffold ? i * width + k : (i / k) * width + i % k;
            const Ranked candidate = Ranked{keys[at], ids[at]};
            if ((place == 0 || scaffold || before(last, candidate)) && before(candidate, mine)) mine = candidate;
        }
        last = block_best(mine, scratch);
        if (threadIdx.x == 0) {
            best[query * width + place] = last.id;
            best_cosine[query * width + place] = last.id == NONE ? 0.0 : cos_activation[cosine_offsets[query] + last.id];
        }
    }
}
