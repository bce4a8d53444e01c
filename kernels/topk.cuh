// The best of a list in order, shared by top-k and scan: each time the best among those ranked after the last one.
//
// Keys are integers, so comparisons may go in any order. `at(i)` gives candidate i of the list, `put(place, candidate)` takes the one at
// a place, best first, called by thread 0; past the end of the list it is nothing().
#pragma once
#include "common.cuh"

// All threads of the block call it, with one `length` and `k`. `scratch` is shared memory, [32].
template <class At, class Put>
__device__ inline void best_in_order(u32 length, u32 k, Ranked* scratch, At at, Put put) {
    Ranked last = nothing();
    for (u32 place = 0; place < k; ++place) {
        if (place == 0 || last.id != NONE) {
            Ranked mine = nothing();
            for (u32 i = threadIdx.x; i < length; i += blockDim.x) {
                const Ranked candidate = at(i);
                if ((place == 0 || before(last, candidate)) && before(candidate, mine)) mine = candidate;
            }
            last = block_best(mine, scratch);
        }
        if (threadIdx.x == 0) put(place, last);
    }
}
