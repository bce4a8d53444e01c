// Personalised PageRank for a block of queries, spec 2.4: solves (I - d P^T) x = r by in-place over-relaxation, colour by colour.
//
// In: transition weights by destination, reset vectors. Out: scores of the passages, scaled to sum 1 over all nodes.
// x and r lie row-major [nodes, lanes], lanes = 4 * quads, so a neighbour is one contiguous load for all queries; a thread owns four
// lanes of a row. Rows of one colour are no neighbours of each other, so their order is free; the host launches colours in order and a
// fixed number of sweeps, then asks for the residual. A row adds its entries in ascending order by fmaf; a row of more than SEGMENT
// entries is cut into fixed segments, added in ascending order afterwards. The mass of nodes without edges is not sent back while
// iterating: scaling at the end is algebraically the same. step[lane] is omega, or 0 for a lane that is done: it no longer moves.
#include "common.cuh"

__device__ inline double clean(double v) { return v > 0.0 && v < __longlong_as_double(0x7ff0000000000000ll) ? v : 0.0; }

// Sum of each lane's reset. grid (lanes in use)
KERNEL pagerank_mass_f64(
    const u32* entity_offsets,     // [lanes + 1]
    const double* entity_weights,  // [reset entities]
    const float* passages,         // [lanes, n_passages]
    u32 n_passages,
    double* mass)                  // [lanes]
{
    __shared__ double slots[SLOTS];
    passages += (size_t)blockIdx.x * n_passages;
    const u32 first = entity_offsets[blockIdx.x], end = entity_offsets[blockIdx.x + 1];
    for (u32 slot = threadIdx.x; slot < SLOTS; slot += blockDim.x) {
        double sum = 0.0;
        for (u32 i = first + slot; i < end; i += SLOTS) sum += clean(entity_weights[i]);
        for (u32 p = slot; p < n_passages; p += SLOTS) sum += clean((double)passages[p]);
        slots[slot] = sum;
    }
    add_slots(slots);
    if (threadIdx.x == 0) mass[blockIdx.x] = slots[0];
}

// Entity part of reset and first iterate, both zero before. grid (lanes in use)
KERNEL pagerank_reset_entities_f32(
    const u32* entity_offsets,     // [lanes + 1]
    const u32* entities,           // [reset entities], distinct within a lane
    const double* entity_weights,  // [reset entities]
    const double* mass,            // [lanes]
    u32 lanes,
    float* reset,                  // [nodes, lanes]
    float* x)                      // [nodes, lanes]
{
    const u32 lane = blockIdx.x;
    if (clean(mass[lane]) == 0.0) return;
    for (u32 i = entity_offsets[lane] + threadIdx.x; i < entity_offsets[lane + 1]; i += blockDim.x) {
        const float v = (float)(clean(entity_weights[i]) / mass[lane]);
        reset[(size_t)entities[i] * lanes + lane] = v;
        x[(size_t)entities[i] * lanes + lane] = v;
    }
}

// Passage part, turned from [used, n_passages] into rows, 32 by 32 at a time. grid (passage tiles, lane tiles)
KERNEL pagerank_reset_passages_f32(
    const float* passages,  // [used, n_passages]
    u32 used,               // lanes in use
    u32 n_passages,
    const double* mass,     // [lanes]
    u32 n_entities,
    u32 lanes,
    float* reset,           // [nodes, lanes]
    float* x)               // [nodes, lanes]
{
    __shared__ float tile[32][33];
    const u32 first_passage = blockIdx.x * 32, first_lane = blockIdx.y * 32;
    for (u32 row = warp_id(); row < 32; row += warps()) {
        const u32 lane = first_lane + row, p = first_passage + lane_id();
        float v = 0.0f;
        if (lane < used && p < n_passages && clean(mass[lane]) > 0.0) {
            v = (float)(clean((double)passages[(size_t)lane * n_passages + p]) / mass[lane]);
        }
        tile[row][lane_id()] = v;
    }
    __syncthreads();
    for (u32 row = warp_id(); row < 32; row += warps()) {
        const u32 lane = first_lane + lane_id(), p = first_passage + row;
        if (lane < lanes && p < n_passages) {
            const size_t at = (size_t)(n_entities + p) * lanes + lane;
            reset[at] = tile[lane_id()][row];
            x[at] = tile[lane_id()][row];
        }
    }
}

__device__ inline void add_entry(float4& sum, float w, float4 v) {
    sum.x = fmaf(w, v.x, sum.x);
    sum.y = fmaf(w, v.y, sum.y);
    sum.z = fmaf(w, v.z, sum.z);
    sum.w = fmaf(w, v.w, sum.w);
}

// What reaches a row from the entries [from, to), in ascending order.
__device__ inline float4 walk(const u32* columns, const float* values, u32 from, u32 to, const float4* x, u32 quads, u32 quad) {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
    for (u32 i = from; i < to; ++i) add_entry(sum, values[i], x[(size_t)columns[i] * quads + quad]);
    return sum;
}

// r + d * walked - x: the residual of one row, in four lanes.
__device__ inline float4 defect(float4 r, float damping, float4 walked, float4 x) {
    return make_float4(fmaf(damping, walked.x, r.x) - x.x, fmaf(damping, walked.y, r.y) - x.y,
                       fmaf(damping, walked.z, r.z) - x.z, fmaf(damping, walked.w, r.w) - x.w);
}

__device__ inline float4 moved(float4 x, float4 step, float4 by) {
    return make_float4(fmaf(step.x, by.x, x.x), fmaf(step.y, by.y, x.y), fmaf(step.z, by.z, x.z), fmaf(step.w, by.w, x.w));
}

// One sweep over the short rows of one colour. A thread a (row, quad); grid covers n_rows << quad_shift threads.
KERNEL pagerank_sweep_f32(
    const u32* rows,      // [n_rows], of one colour
    u32 n_rows,
    const u32* offsets,   // [nodes + 1]
    const u32* columns,   // [entries], ascending within a row
    const float* values,  // [entries], w_ij / deg_j
    const float4* reset,  // [nodes, quads]
    const float4* step,   // [quads]
    u32 quad_shift,       // quads = 1 << quad_shift
    float damping,
    float4* x)            // [nodes, quads], not aliased by const: rows of other colours are read
{
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if ((at >> quad_shift) >= n_rows) return;
    const u32 quads = 1u << quad_shift, quad = (u32)at & (quads - 1u), row = rows[at >> quad_shift];
    const float4 walked = walk(columns, values, offsets[row], offsets[row + 1], x, quads, quad);
    const size_t mine = (size_t)row * quads + quad;
    x[mine] = moved(x[mine], step[quad], defect(reset[mine], damping, walked, x[mine]));
}

// What reaches long rows, segment by segment. A thread a (segment, quad).
KERNEL pagerank_segments_f32(
    const u32* segment_from,  // [n_segments], positions in columns
    const u32* segment_to,    // [n_segments]
    u32 n_segments,
    const u32* columns,       // [entries]
    const float* values,      // [entries]
    const float4* x,          // [nodes, quads]
    u32 quad_shift,
    float4* partial)          // [n_segments, quads]
{
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u32 segment = (u32)(at >> quad_shift);
    if ((at >> quad_shift) >= n_segments) return;
    const u32 quads = 1u << quad_shift, quad = (u32)at & (quads - 1u);
    partial[at] = walk(columns, values, segment_from[segment], segment_to[segment], x, quads, quad);
}

__device__ inline float4 add_segments(const float4* partial, u32 from, u32 to, u32 quads, u32 quad) {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (u32 s = from; s < to; ++s) add_entry(sum, 1.0f, partial[(size_t)s * quads + quad]);
    return sum;
}

// One sweep over the long rows of one colour. A thread a (row, quad).
KERNEL pagerank_hubs_f32(
    const u32* rows,            // [n_rows]
    const u32* first_segment,   // [n_rows + 1], positions in partial
    u32 n_rows,
    const float4* partial,      // [segments, quads]
    const float4* reset,        // [nodes, quads]
    const float4* step,         // [quads]
    u32 quad_shift,
    float damping,
    float4* x)                  // [nodes, quads]
{
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u32 i = (u32)(at >> quad_shift);
    if ((at >> quad_shift) >= n_rows) return;
    const u32 quads = 1u << quad_shift, quad = (u32)at & (quads - 1u);
    const float4 walked = add_segments(partial, first_segment[i], first_segment[i + 1], quads, quad);
    const size_t mine = (size_t)rows[i] * quads + quad;
    x[mine] = moved(x[mine], step[quad], defect(reset[mine], damping, walked, x[mine]));
}

#define RESIDUAL_ROWS 64u

__device__ inline void write_part(double* out, size_t part, u32 quads, u32 quad, double a, double b, double c, double d) {
    double* at = out + (part * quads + quad) * 4;
    at[0] = a;
    at[1] = b;
    at[2] = c;
    at[3] = d;
}

// L1 residual and mass of RESIDUAL_ROWS rows at a time, rows in ascending order; long rows give their mass only.
// A thread a (part, quad).
KERNEL pagerank_residual_f32(
    const u32* offsets,   // [nodes + 1]
    const u32* columns,   // [entries]
    const float* values,  // [entries]
    u32 n_nodes,
    u32 segment,          // rows of more entries are long
    const float4* reset,  // [nodes, quads]
    const float4* x,      // [nodes, quads]
    u32 quad_shift,
    float damping,
    double* residual,     // [parts, lanes]
    double* mass)         // [parts, lanes]
{
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u32 quads = 1u << quad_shift, quad = (u32)at & (quads - 1u);
    const u64 part = at >> quad_shift, first = part * RESIDUAL_ROWS;
    if (first >= n_nodes) return;
    double r0 = 0.0, r1 = 0.0, r2 = 0.0, r3 = 0.0, m0 = 0.0, m1 = 0.0, m2 = 0.0, m3 = 0.0;
    const u32 end = (u32)min(first + RESIDUAL_ROWS, (u64)n_nodes);
    for (u32 row = (u32)first; row < end; ++row) {
        const size_t mine = (size_t)row * quads + quad;
        const float4 v = x[mine];
        m0 += (double)v.x;
        m1 += (double)v.y;
        m2 += (double)v.z;
        m3 += (double)v.w;
        if (offsets[row + 1] - offsets[row] > segment) continue;
        const float4 walked = walk(columns, values, offsets[row], offsets[row + 1], x, quads, quad);
        const float4 off = defect(reset[mine], damping, walked, v);
        r0 += (double)fabsf(off.x);
        r1 += (double)fabsf(off.y);
        r2 += (double)fabsf(off.z);
        r3 += (double)fabsf(off.w);
    }
    write_part(residual, part, quads, quad, r0, r1, r2, r3);
    write_part(mass, part, quads, quad, m0, m1, m2, m3);
}

// L1 residual of the long rows; their parts follow those of the short ones. A thread a (row, quad).
KERNEL pagerank_hub_residual_f32(
    const u32* rows,           // [n_rows]
    const u32* first_segment,  // [n_rows + 1]
    u32 n_rows,
    const float4* partial,     // [segments, quads]
    const float4* reset,       // [nodes, quads]
    const float4* x,           // [nodes, quads]
    u32 quad_shift,
    float damping,
    u32 first_part,
    double* residual,          // [parts, lanes]
    double* mass)              // [parts, lanes]
{
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u32 i = (u32)(at >> quad_shift);
    if ((at >> quad_shift) >= n_rows) return;
    const u32 quads = 1u << quad_shift, quad = (u32)at & (quads - 1u);
    const float4 walked = add_segments(partial, first_segment[i], first_segment[i + 1], quads, quad);
    const size_t mine = (size_t)rows[i] * quads + quad;
    const float4 off = defect(reset[mine], damping, walked, x[mine]);
    write_part(residual, (size_t)first_part + i, quads, quad, (double)fabsf(off.x), (double)fabsf(off.y), (double)fabsf(off.z),
               (double)fabsf(off.w));
    write_part(mass, (size_t)first_part + i, quads, quad, 0.0, 0.0, 0.0, 0.0);
}

// Adds the parts of each lane. grid (lanes)
KERNEL pagerank_totals_f64(
    const double* residual_parts,  // [parts, lanes]
    const double* mass_parts,      // [parts, lanes]
    u32 parts,
    double* totals)                // [2, lanes]: residual, mass
{
    __shared__ double slots[SLOTS];
    const u32 lane = blockIdx.x, lanes = gridDim.x;
    for (u32 which = 0; which < 2; ++which) {
        const double* from = which == 0 ? residual_parts : mass_parts;
        for (u32 slot = threadIdx.x; slot < SLOTS; slot += blockDim.x) {
            double sum = 0.0;
            for (u32 part = slot; part < parts; part += SLOTS) sum += from[(size_t)part * lanes + lane];
            slots[slot] = sum;
        }
        add_slots(slots);
        if (threadIdx.x == 0) totals[which * lanes + lane] = slots[0];
        __syncthreads();
    }
}

// Passage scores scaled by the lane's mass, turned into [used, n_passages]. grid (passage tiles, lane tiles)
KERNEL pagerank_scores_f32(
    const float* x,        // [nodes, lanes]
    const double* totals,  // [2, lanes]
    u32 n_entities,
    u32 n_passages,
    u32 lanes,
    u32 used,              // lanes in use
    float* scores)         // [used, n_passages]
{
    __shared__ float tile[32][33];
    const u32 first_passage = blockIdx.x * 32, first_lane = blockIdx.y * 32;
    for (u32 row = warp_id(); row < 32; row += warps()) {
        const u32 lane = first_lane + lane_id(), p = first_passage + row;
        float v = 0.0f;
        if (lane < lanes && p < n_passages && totals[lanes + lane] > 0.0) {
            v = (float)((double)x[(size_t)(n_entities + p) * lanes + lane] / totals[lanes + lane]);
        }
        tile[row][lane_id()] = v;
    }
    __syncthreads();
    for (u32 row = warp_id(); row < 32; row += warps()) {
        const u32 lane = first_lane + row, p = first_passage + lane_id();
        if (lane < used && p < n_passages) scores[(size_t)lane * n_passages + p] = tile[lane_id()][row];
    }
}
