// Dense inner products: out[q, r] = <queries[q], rows[r]>, the similarities behind linking, propagation and passage weights.
//
// In: two row-major f32 matrices. Out: [queries, rows] f32. One accumulator a pair, positions in ascending order by fmaf, so a pair's
// bits depend on nothing but its two vectors. A block of 256 threads makes a tile of 64 rows by 64 queries, 4 by 4 a thread.
#include "common.cuh"

#define DENSE_TILE 64u
#define DENSE_DEPTH 16u

KERNEL __launch_bounds__(256) dense_products_f32(
    const float* rows,     // [n_rows, dim]
    u32 n_rows,
    const float* queries,  // [n_queries, dim]
    u32 n_queries,
    u32 dim,
    float* out)            // [n_queries, n_rows]
{
    // Four numbers of padding keep 16-byte rows apart in the banks.
    __shared__ float row_tile[DENSE_DEPTH][DENSE_TILE + 4];
    __shared__ float query_tile[DENSE_DEPTH][DENSE_TILE + 4];
    const u32 first_row = blockIdx.x * DENSE_TILE, first_query = blockIdx.y * DENSE_TILE;
    const u32 my_row = (threadIdx.x % 16u) * 4u, my_query = (threadIdx.x / 16u) * 4u;
    float sum[4][4];
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
#pragma unroll
        for (u32 j = 0; j < 4; ++j) sum[i][j] = 0.0f;
    }
    for (u32 base = 0; base < dim; base += DENSE_DEPTH) {
        for (u32 i = threadIdx.x; i < DENSE_TILE * DENSE_DEPTH; i += 256u) {
            const u32 d = i % DENSE_DEPTH, at = i / DENSE_DEPTH;
            const bool inside = base + d < dim;
            const u32 row = first_row + at, query = first_query + at;
            row_tile[d][at] = inside && row < n_rows ? rows[(size_t)row * dim + base + d] : 0.0f;
            query_tile[d][at] = inside && query < n_queries ? queries[(size_t)query * dim + base + d] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (u32 d = 0; d < DENSE_DEPTH; ++d) {
            float a[4], b[4];
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
                a[i] = query_tile[d][my_query + i];
                b[i] = row_tile[d][my_row + i];
            }
#pragma unroll
            for (u32 i = 0; i < 4; ++i) {
#pragma unroll
                for (u32 j = 0; j < 4; ++j) sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            const u32 query = first_query + my_query + i, row = first_row + my_row + j;
            if (query < n_queries && row < n_rows) out[(size_t)query * n_rows + row] = sum[i][j];
        }
    }
}
