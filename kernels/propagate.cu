// Propagation of entity scores over the sentence-entity graph, spec 2.3, one block a query.
//
// In: mention lists both ways, seeds, cosines of question and sentences. Out: per query the weight, last score and tier of every entity,
// then collected into lists by ascending id. bfs is ordered within a query and only its search for the best sentence is parallel;
// matrix is parallel within a hop, every sum gathered by its destination. Arithmetic is f64, as in `math::propagation`.
// State a query: mark[e] is 0 for an untouched entity, 1 for a seed, h + 1 after hop h reached it last; tier[e] is 0 for an inactive
// entity, else its tier + 1. All state is zero when a kernel starts.
#include "common.cuh"

// Number of marked entities, into *out. All threads call it.
__device__ inline void count_marked(const u32* mark, u32 n_entities, u32* scratch, u32* out) {
    __syncthreads();  // whatever scratch held has been read
    if (threadIdx.x == 0) *scratch = 0;
    __syncthreads();
    u32 mine = 0;
    for (u32 e = threadIdx.x; e < n_entities; e += blockDim.x) mine += mark[e] != 0;
    if (mine) atomicAdd(scratch, mine);  // integers: the order is free
    __syncthreads();
    if (threadIdx.x == 0) *out = *scratch;
}

// Breadth-first form. grid (queries)
KERNEL propagate_bfs_f64(
    const u32* entity_offsets,     // [n_entities + 1]
    const u32* entity_sentences,   // [mentions], ascending within an entity
    const u32* sentence_offsets,   // [n_sentences + 1]
    const u32* sentence_entities,  // [mentions], distinct within a sentence, in order of first appearance
    u32 n_entities,
    u32 n_sentences,
    const u32* seed_offsets,       // [queries + 1]
    const u32* seed_entities,      // [seeds], in query order
    const double* seed_scores,     // [seeds]
    const float* similarities,     // [queries, n_sentences]
    u32 max_iterations,
    double threshold,
    u32 top_k,
    double* weight,                // [queries, n_entities]
    double* next,                  // [queries, n_entities]
    double* active,                // [queries, n_entities]
    u32* tier,                     // [queries, n_entities]
    u32* mark,                     // [queries, n_entities]
    u32* order,                    // [queries, 2, n_entities]
    u32* used,                     // [queries, n_sentences]
    u32* touched)                  // [queries]
{
    __shared__ Ranked scratch[32];
    __shared__ u32 length;
    const size_t query = blockIdx.x;
    similarities += query * n_sentences;
    used += query * n_sentences;
    weight += query * n_entities;
    next += query * n_entities;
    active += query * n_entities;
    tier += query * n_entities;
    mark += query * n_entities;
    u32* frontier = order + query * 2 * n_entities;
    u32* reached = frontier + n_entities;

    if (threadIdx.x == 0) {
        u32 n = 0;
        for (u32 i = seed_offsets[query]; i < seed_offsets[query + 1]; ++i) {
            const u32 e = seed_entities[i];
            // Of equal entities the later score stands at the earlier place.
            if (mark[e] == 0) frontier[n++] = e;
            mark[e] = 1;
            weight[e] = seed_scores[i];
            active[e] = seed_scores[i];
            tier[e] = 2;
        }
        length = n;
    }
    __syncthreads();
    u32 frontier_length = length;

    for (u32 hop = 1; hop < max_iterations && frontier_length > 0; ++hop) {
        u32 reached_length = 0;  // kept by warp 0
        for (u32 f = 0; f < frontier_length; ++f) {
            const u32 e = frontier[f];
            const double score = active[e];
            if (score < threshold) continue;
            const u32 end = entity_offsets[e + 1];
            for (u32 pick = 0; pick < top_k; ++pick) {
                Ranked mine = nothing();
                for (u32 i = entity_offsets[e] + threadIdx.x; i < end; i += blockDim.x) {
                    const u32 s = entity_sentences[i];
                    const Ranked candidate = Ranked{order_key_f32(similarities[s]), s};
                    if (used[s] == 0 && before(candidate, mine)) mine = candidate;
                }
                const u32 s = block_best(mine, scratch).id;
                if (s == NONE) break;
                if (threadIdx.x == 0) used[s] = 1;
                const double spread = score * (double)similarities[s];
                if (spread >= threshold && warp_id() == 0) {
                    const u32 last = sentence_offsets[s + 1];
                    for (u32 base = sentence_offsets[s]; base < last; base += 32) {
                        const bool mine_too = base + lane_id() < last;
                        const u32 m = mine_too ? sentence_entities[base + lane_id()] : 0;
                        bool fresh = false;
                        if (mine_too) {
                            weight[m] += spread;
                            next[m] = spread;
                            fresh = mark[m] != hop + 1;
                            mark[m] = hop + 1;
                        }
                        const u32 fresh_lanes = __ballot_sync(FULL, fresh);
                        if (fresh) reached[reached_length + __popc(fresh_lanes & ((1u << lane_id()) - 1u))] = m;
                        reached_length += __popc(fresh_lanes);
                    }
                }
                __syncthreads();
            }
        }
        __syncthreads();  // every thread has read the last length: a hop whose scores are all too low met no barrier
        if (threadIdx.x == 0) length = reached_length;
        __syncthreads();
        frontier_length = length;
        for (u32 i = threadIdx.x; i < frontier_length; i += blockDim.x) {
            const u32 e = reached[i];
            active[e] = next[e];
            tier[e] = hop + 2;
        }
        __syncthreads();
        u32* swap = frontier;
        frontier = reached;
        reached = swap;
    }
    count_marked(mark, n_entities, &length, touched + query);
}

// Vectorised form. grid (queries). `used[s]` is 0 for an unused sentence, else the hop that picked it.
KERNEL propagate_matrix_f64(
    const u32* entity_offsets,     // [n_entities + 1]
    const u32* entity_sentences,   // [mentions], ascending within an entity
    const u32* sentence_offsets,   // [n_sentences + 1]
    const u32* sentence_entities,  // [mentions], distinct within a sentence, in order of first appearance
    u32 n_entities,
    u32 n_sentences,
    const u32* seed_offsets,       // [queries + 1]
    const u32* seed_entities,      // [seeds], in query order
    const double* seed_scores,     // [seeds]
    const float* similarities,     // [queries, n_sentences]
    u32 max_iterations,
    double threshold,
    u32 top_k,
    double* weight,                // [queries, n_entities]
    double* next,                  // [queries, n_entities]
    double* active,                // [queries, n_entities]
    double* score,                 // [queries, n_entities]
    u32* tier,                     // [queries, n_entities]
    u32* mark,                     // [queries, n_entities]
    u32* order,                    // [queries, 2, n_entities]
    u32* used,                     // [queries, n_sentences]
    u32* picked,                   // [queries, n_sentences]
    double* received,              // [queries, n_sentences]
    u32* touched)                  // [queries]
{
    __shared__ u32 picked_length, reached_length;
    const size_t query = blockIdx.x;
    similarities += query * n_sentences;
    used += query * n_sentences;
    picked += query * n_sentences;
    received += query * n_sentences;
    weight += query * n_entities;
    next += query * n_entities;
    active += query * n_entities;
    score += query * n_entities;
    tier += query * n_entities;
    mark += query * n_entities;
    u32* frontier = order + query * 2 * n_entities;
    u32* reached = frontier + n_entities;

    if (threadIdx.x == 0) {
        u32 n = 0;
        for (u32 i = seed_offsets[query]; i < seed_offsets[query + 1]; ++i) {
            const u32 e = seed_entities[i];
            if (mark[e] == 0) frontier[n++] = e;
            mark[e] = 1;
            weight[e] = seed_scores[i];
            active[e] = seed_scores[i];
            tier[e] = 1;
            score[e] += seed_scores[i];  // the first hop uses the sum, `weight` keeps the later score
        }
        reached_length = n;
    }
    __syncthreads();
    u32 frontier_length = reached_length;

    for (u32 hop = 1; hop < max_iterations; ++hop) {
        for (u32 f = threadIdx.x; f < frontier_length; f += blockDim.x) {
            if (score[frontier[f]] < threshold) score[frontier[f]] = 0.0;
        }
        if (threadIdx.x == 0) picked_length = 0;
        __syncthreads();

        // Each entity that still has a score picks its best unused sentences; one warp an entity. What another entity picked in this
        // hop still counts as unused.
        for (u32 f = warp_id(); f < frontier_length; f += warps()) {
            const u32 e = frontier[f];
            if (!(score[e] > 0.0)) continue;
            const u32 end = entity_offsets[e + 1];
            Ranked last = nothing();
            for (u32 pick = 0; pick < top_k; ++pick) {
                Ranked mine = nothing();
                for (u32 i = entity_offsets[e] + lane_id(); i < end; i += 32) {
                    const u32 s = entity_sentences[i];
                    const u32 when = atomicAdd(&used[s], 0u);
                    const Ranked candidate = Ranked{order_key_f32(similarities[s]), s};
                    const bool open = (when == 0 || when == hop) && (pick == 0 || before(last, candidate));
                    if (open && before(candidate, mine)) mine = candidate;
                }
                last = warp_best(mine);
                if (last.id == NONE) break;
                if (lane_id() == 0 && atomicExch(&used[last.id], hop) != hop) {
                    picked[atomicAdd(&picked_length, 1u)] = last.id;  // a set: its order does not matter below
                }
            }
        }
        __syncthreads();
        const u32 n_picked = picked_length;
        if (threadIdx.x == 0) reached_length = 0;
        __syncthreads();
        if (n_picked == 0) break;

        // What each picked sentence receives; whom it reaches.
        for (u32 i = threadIdx.x; i < n_picked; i += blockDim.x) {
            const u32 s = picked[i];
            received[s] = 0.0;
            if (!(similarities[s] > 0.0f)) continue;  // used up, but only a positive cosine carries a score
            double sum = 0.0;
            for (u32 j = sentence_offsets[s]; j < sentence_offsets[s + 1]; ++j) sum += score[sentence_entities[j]];
            received[s] = sum * (double)similarities[s];
            for (u32 j = sentence_offsets[s]; j < sentence_offsets[s + 1]; ++j) {
                const u32 e = sentence_entities[j];
                if (atomicExch(&mark[e], hop + 1) != hop + 1) reached[atomicAdd(&reached_length, 1u)] = e;
            }
        }
        __syncthreads();
        const u32 n_reached = reached_length;

        // Each reached entity sums over its picked sentences in ascending order; one warp an entity.
        for (u32 f = warp_id(); f < n_reached; f += warps()) {
            const u32 e = reached[f];
            const u32 end = entity_offsets[e + 1];
            double sum = 0.0;
            for (u32 base = entity_offsets[e]; base < end; base += 32) {
                const bool mine_too = base + lane_id() < end;
                const u32 s = mine_too ? entity_sentences[base + lane_id()] : 0;
                const bool given = mine_too && used[s] == hop;
                const double part = given ? received[s] : 0.0;
                for (u32 lanes = __ballot_sync(FULL, given); lanes != 0; lanes &= lanes - 1) {
                    sum += __shfl_sync(FULL, part, __ffs((int)lanes) - 1);
                }
            }
            if (lane_id() == 0) next[e] = sum;
        }
        for (u32 f = threadIdx.x; f < frontier_length; f += blockDim.x) score[frontier[f]] = 0.0;
        __syncthreads();
        for (u32 f = threadIdx.x; f < n_reached; f += blockDim.x) {
            const u32 e = reached[f];
            weight[e] += next[e];
            score[e] = next[e];
            if (next[e] >= threshold) {
                active[e] = next[e];
                tier[e] = hop + 1;
            }
        }
        __syncthreads();
        u32* swap = frontier;
        frontier = reached;
        reached = swap;
        frontier_length = n_reached;
    }
    count_marked(mark, n_entities, &reached_length, touched + query);
}

// Lists the touched entities of each query by ascending id. grid (queries)
KERNEL propagate_collect_f64(
    const double* weight,      // [queries, n_entities]
    const double* active,      // [queries, n_entities]
    const u32* tier,           // [queries, n_entities]
    const u32* mark,           // [queries, n_entities]
    u32 n_entities,
    const u32* list_offsets,   // [queries + 1]
    u32* list_entity,          // [touched]
    double* list_weight,       // [touched]
    double* list_score,        // [touched]
    u32* list_tier)            // [touched], tier + 1, 0 where not active
{
    __shared__ u32 counts[32];
    const size_t query = blockIdx.x;
    weight += query * n_entities;
    active += query * n_entities;
    tier += query * n_entities;
    mark += query * n_entities;
    u32 written = list_offsets[query];
    for (u32 base = 0; base < n_entities; base += blockDim.x) {
        const u32 e = base + threadIdx.x;
        const bool taken = e < n_entities && mark[e] != 0;
        const u32 lanes = __ballot_sync(FULL, taken);
        if (lane_id() == 0) counts[warp_id()] = __popc(lanes);
        __syncthreads();
        u32 earlier = 0, all = 0;
        for (u32 w = 0; w < warps(); ++w) {
            if (w < warp_id()) earlier += counts[w];
            all += counts[w];
        }
        if (taken) {
            const u32 at = written + earlier + __popc(lanes & ((1u << lane_id()) - 1u));
            list_entity[at] = e;
            list_weight[at] = weight[e];
            list_score[at] = active[e];
            list_tier[at] = tier[e];
        }
        written += all;
        __syncthreads();
    }
}
