// Scan of an experience store, equations 7, 12, 13 and 17: the K best by s_ret and the best scaffold of each query.
//
// In: activations, the store's maps as inverted lists, norms, cosines of questions and templates. Out: ids and cos(a, a_k).
// A store only grows: its lists are kept tile by tile of SCAN_TILE experiences, so a full tile never changes. A block owns a tile and
// adds one entity's list after the other in ascending order, so each experience's sum has one order. Arithmetic is f64. Ranked by
// (score desc, experience asc); the tiles' candidates are merged by one block a query.
#include "topk.cuh"

#define SCAN_TILE 1024u
#define SCAN_LOOKUPS 128u

// grid (tiles of the largest visible count, queries)
KERNEL scan_tile_f64(
    const u32* activation_offsets,  // [queries + 1]
    const u32* activation_entities, // [entries], ascending within a query
    const double* activation_values,// [entries]
    const u32* tile_lists,          // [tiles of the store + 1], lists of each tile
    const u32* list_entities,       // [lists], ascending within a tile
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
    __shared__ u32 found[SCAN_LOOKUPS];
    __shared__ Ranked scratch[32];
    const u32 query = blockIdx.y, first = blockIdx.x * SCAN_TILE;
    const u32 length = first < visible[query] ? min(SCAN_TILE, visible[query] - first) : 0;
    for (u32 i = threadIdx.x; i < length; i += blockDim.x) product[i] = 0.0;
    if (length > 0) {
        const u32 first_list = tile_lists[blockIdx.x], end_list = tile_lists[blockIdx.x + 1];
        const u32 end = activation_offsets[query + 1];
        for (u32 base = activation_offsets[query]; base < end; base += SCAN_LOOKUPS) {
            const u32 entries = min(SCAN_LOOKUPS, end - base);
            __syncthreads();  // the lists found before have been added
            for (u32 i = threadIdx.x; i < entries; i += blockDim.x) {
                const u32 entity = activation_entities[base + i];
                const u32 list = lower_bound(list_entities, first_list, end_list, entity);
                found[i] = list < end_list && list_entities[list] == entity ? list : NONE;
            }
            for (u32 a = 0; a < entries; ++a) {
                __syncthreads();  // one entity is complete before the next
                if (found[a] == NONE) continue;
                const double value = activation_values[base + a];
                const u32 to = list_offsets[found[a] + 1];
                for (u32 i = list_offsets[found[a]] + threadIdx.x; i < to; i += blockDim.x) {
                    const u32 at = list_experiences[i] - first;
                    if (at >= length) break;
                    product[at] += value * list_values[i];
                }
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
    best_in_order(
        length, k, scratch, [&](u32 i) { return Ranked{score_key[i], first + i}; },
        [&](u32 place, Ranked best) {
            keys[out + place] = best.key;
            ids[out + place] = best.id;
        });
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
    auto put = [&](u32 place, Ranked found) {
        best[query * width + place] = found.id;
        best_cosine[query * width + place] = found.id == NONE ? 0.0 : cos_activation[cosine_offsets[query] + found.id];
    };
    auto candidate = [&](size_t at) { return Ranked{keys[at], ids[at]}; };
    best_in_order(tiles * k, k, scratch, [&](u32 i) { return candidate((i / k) * width + i % k); }, put);
    best_in_order(tiles, 1, scratch, [&](u32 i) { return candidate(i * width + k); }, [&](u32, Ranked found) { put(k, found); });
}
