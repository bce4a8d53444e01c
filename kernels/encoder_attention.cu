// Self-attention of packed texts around the matrix products: heads laid apart, scores gathered and turned into weights, heads joined.
//
// Texts lie packed, one row a token; products want [heads, texts, length, head_dim] with `length` the longest text of the batch, so heads
// are split into that form (rows past a text's end are 0) and joined again. score[i, j] = qk[i, j] + c2p[i, r] + p2c[j, r] + bias[d], where
// d = i - j, r its row of the tables, and the terms that a model lacks fall away. Every part arrives scaled, so that half precision
// does not overflow; scores, their maximum and their sums are f32. Weights are left as exp(score - maximum); what they sum
// to divides when heads are joined. Numbers in memory are f32 or f16.
#include "encoder.cuh"

// Rows of scores of a block, and columns it takes at a time.
#define SCORE_TILE 32u

template <class T>
__device__ inline void split(const T* qkv, const u32* offsets, u32 texts, u32 heads, u32 head_dim, u32 length, float scale, T* q, T* k, T* v) {
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= (u64)texts * heads * length * head_dim) return;
    const u32 c = (u32)(at % head_dim), i = (u32)(at / head_dim % length), text = (u32)(at / head_dim / length % texts);
    const u32 h = (u32)(at / head_dim / length / texts), hidden = heads * head_dim;
    const bool there = i < offsets[text + 1] - offsets[text];
    const size_t from = there ? (size_t)(offsets[text] + i) * 3 * hidden + h * head_dim + c : 0;
    store(q, at, there ? load(qkv, from) * scale : 0.0f);
    store(k, at, there ? load(qkv, from + hidden) : 0.0f);
    store(v, at, there ? load(qkv, from + 2 * hidden) : 0.0f);
}

// A thread a number of q.
KERNEL encoder_split_f32(
    const float* qkv,    // [tokens, 3 * heads * head_dim]: q, k, v
    const u32* offsets,  // [texts + 1]
    u32 texts,
    u32 heads,
    u32 head_dim,
    u32 length,
    float scale,         // of q
    float* q,            // [heads, texts, length, head_dim]
    float* k,            // the same
    float* v)            // the same
{
    split(qkv, offsets, texts, heads, head_dim, length, scale, q, k, v);
}

KERNEL encoder_split_f16(
    const f16* qkv,      // [tokens, 3 * heads * head_dim]: q, k, v
    const u32* offsets,  // [texts + 1]
    u32 texts,
    u32 heads,
    u32 head_dim,
    u32 length,
    float scale,         // of q
    f16* q,              // [heads, texts, length, head_dim]
    f16* k,              // the same
    f16* v)              // the same
{
    split(qkv, offsets, texts, heads, head_dim, length, scale, q, k, v);
}

// What a block keeps in shared memory: a tile of p2c by [j][i], and of each row the maximum and every lane's part.
struct Scratch {
    float tile[SCORE_TILE][SCORE_TILE + 1];
    float top[SCORE_TILE];
    float part[SCORE_TILE][32];
};

// The parts of one head of one text.
template <class T>
struct Parts {
    const T* qk;        // [length, length]
    const T* c2p;       // [length, table], or null
    const T* p2c;       // [length, table], or null
    const u32* rows;    // [2 * far + 1], row for d at d + far
    u32 first_row;      // of those that c2p and p2c have
    const float* bias;  // [2 * span + 1], entry d + span, or null
    u32 length, table, far, span;
};

__device__ inline u32 clamped(int d, u32 most) { return (u32)(min(max(d, -(int)most), (int)most) + (int)most); }

template <class T>
__device__ inline u32 row_of(const Parts<T>& parts, u32 i, u32 j) {
    return parts.rows[clamped((int)i - (int)j, parts.far)] - parts.first_row;
}

// What only lies together along i: p2c of 32 rows from `first` and 32 columns from `column`, into tile[j][i].
template <class T>
__device__ inline void gather_columns(const Parts<T>& parts, u32 first, u32 column, Scratch& scratch) {
    for (u32 j = warp_id(); j < SCORE_TILE; j += warps()) {
        const u32 at = column + j, i = first + lane_id();
        float v = 0.0f;
        if (at < parts.length && i < parts.length) {
            v = load(parts.p2c, (size_t)at * parts.table + row_of(parts, i, at));
        }
        scratch.tile[j][lane_id()] = v;
    }
}

template <class T>
__device__ inline float score(const Parts<T>& parts, u32 i, u32 j, float gathered) {
    float s = load(parts.qk, (size_t)i * parts.length + j);
    if (parts.c2p) s += load(parts.c2p, (size_t)i * parts.table + row_of(parts, i, j));
    if (parts.p2c) s += gathered;
    if (parts.bias) s += parts.bias[clamped((int)i - (int)j, parts.span)];
    return s;
}

// A block has SCORE_TILE rows of one head, a warp a row at a time; a lane takes every 32nd column. Two passes: the maximum, then the
// weights with their sum (a lane's columns ascending, then the lanes as a tree).
template <class T>
__device__ inline void weigh(const Parts<T>& parts, u32 used, T* weights, float* sums, Scratch& scratch) {
    float(*part)[32] = scratch.part;
    const u32 first = blockIdx.y * SCORE_TILE;
    for (u32 r = warp_id(); r < SCORE_TILE; r += warps()) {
        part[r][lane_id()] = __uint_as_float(0xff800000u);
    }
    for (u32 pass = 0; pass < 2; ++pass) {
        for (u32 column = 0; column < parts.length; column += SCORE_TILE) {
            if (parts.p2c) {
                __syncthreads();  // the tile before has been read
                gather_columns(parts, first, column, scratch);
                __syncthreads();
            }
            const u32 j = column + lane_id();
            for (u32 r = warp_id(); r < SCORE_TILE; r += warps()) {
                const u32 i = first + r;
                if (i >= parts.length || j >= parts.length) continue;
                const bool there = i < used && j < used;
                const float s = there ? score(parts, i, j, parts.p2c ? scratch.tile[lane_id()][r] : 0.0f) : 0.0f;
                if (pass == 0) {
                    if (there) part[r][lane_id()] = fmaxf(part[r][lane_id()], s);
                } else {
                    const float e = there ? expf(s - scratch.top[r]) : 0.0f;
                    store(weights, (size_t)i * parts.length + j, e);
                    part[r][lane_id()] += rounded(weights, e);
                }
            }
        }
        for (u32 r = warp_id(); r < SCORE_TILE; r += warps()) {
            float v = part[r][lane_id()];
            for (u32 step = 16; step > 0; step >>= 1) {
                const float other = __shfl_xor_sync(FULL, v, step);
                v = pass == 0 ? fmaxf(v, other) : v + other;
            }
            if (lane_id() == 0) {
                if (pass == 0) {
                    scratch.top[r] = v;
                } else if (first + r < parts.length) {
                    sums[first + r] = v;
                }
            }
            part[r][lane_id()] = 0.0f;
        }
        __syncwarp();  // a row's maximum is read by the warp that made it
    }
}

template <class T>
__device__ inline void weigh_head(const T* qk, const T* c2p, const T* p2c, u32 terms, const u32* rows, u32 far, u32 first_row, u32 table, const float* bias,
                                  u32 span, const u32* offsets, u32 texts, u32 length, T* weights, float* sums, Scratch& scratch) {
    const size_t head = blockIdx.x;
    const u32 text = blockIdx.x % texts;
    Parts<T> parts;
    parts.qk = qk + head * length * length;
    parts.c2p = terms & 1u ? c2p + head * length * table : nullptr;
    parts.p2c = terms & 2u ? p2c + head * length * table : nullptr;
    parts.rows = rows;
    parts.first_row = first_row;
    parts.bias = terms & 4u ? bias + (size_t)(blockIdx.x / texts) * (2 * span + 1) : nullptr;
    parts.length = length;
    parts.table = table;
    parts.far = far;
    parts.span = span;
    weigh(parts, offsets[text + 1] - offsets[text], weights + head * length * length, sums + head * length, scratch);
}

// grid (heads * texts, length / 32)
KERNEL encoder_weights_f32(
    const float* qk,     // [heads, texts, length, length]
    const float* c2p,    // [heads, texts, length, table], read where terms has 1
    const float* p2c,    // [heads, texts, length, table], by keys, read where terms has 2
    u32 terms,
    const u32* rows,     // [2 * far + 1], row of the tables for d = i - j, at d + far
    u32 far,
    u32 first_row,       // the row that is column 0 of c2p and p2c
    u32 table,           // rows that are there
    const float* bias,   // [heads, 2 * span + 1], read where terms has 4
    u32 span,
    const u32* offsets,  // [texts + 1]
    u32 texts,
    u32 length,
    float* weights,      // [heads, texts, length, length], 0 past a text's end
    float* sums)         // [heads, texts, length]
{
    __shared__ Scratch scratch;
    weigh_head(qk, c2p, p2c, terms, rows, far, first_row, table, bias, span, offsets, texts, length, weights, sums, scratch);
}

// grid (heads * texts, length / 32)
KERNEL encoder_weights_f16(
    const f16* qk,       // [heads, texts, length, length]
    const f16* c2p,      // [heads, texts, length, table], read where terms has 1
    const f16* p2c,      // [heads, texts, length, table], by keys, read where terms has 2
    u32 terms,
    const u32* rows,     // [2 * far + 1], row of the tables for d = i - j, at d + far
    u32 far,
    u32 first_row,       // the row that is column 0 of c2p and p2c
    u32 table,           // rows that are there
    const float* bias,   // [heads, 2 * span + 1], read where terms has 4
    u32 span,
    const u32* offsets,  // [texts + 1]
    u32 texts,
    u32 length,
    f16* weights,        // [heads, texts, length, length], 0 past a text's end
    float* sums)         // [heads, texts, length]
{
    __shared__ Scratch scratch;
    weigh_head(qk, c2p, p2c, terms, rows, far, first_row, table, bias, span, offsets, texts, length, weights, sums, scratch);
}

template <class T>
__device__ inline void join(const T* context, const float* sums, const u32* offsets, u32 texts, u32 heads, u32 head_dim, u32 length, T* out) {
    const u64 at = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    const u32 hidden = heads * head_dim;
    if (at >= (u64)offsets[texts] * hidden) return;
    const u32 token = (u32)(at / hidden), h = (u32)(at % hidden / head_dim), c = (u32)(at % head_dim);
    // The last text that starts at or before the token and is not empty.
    u32 low = 0, high = texts;
    while (high - low > 1) {
        const u32 middle = low + (high - low) / 2;
        if (offsets[middle] <= token) low = middle; else high = middle;
    }
    const size_t row = ((size_t)h * texts + low) * length + (token - offsets[low]);
    store(out, at, load(context, row * head_dim + c) / sums[row]);
}

// A thread a number of the output.
KERNEL encoder_join_f32(
    const float* context,  // [heads, texts, length, head_dim]
    const float* sums,     // [heads, texts, length]
    const u32* offsets,    // [texts + 1]
    u32 texts,
    u32 heads,
    u32 head_dim,
    u32 length,
    float* out)            // [tokens, heads * head_dim]
{
    join(context, sums, offsets, texts, heads, head_dim, length, out);
}

KERNEL encoder_join_f16(
    const f16* context,  // [heads, texts, length, head_dim]
    const float* sums,   // [heads, texts, length]
    const u32* offsets,  // [texts + 1]
    u32 texts,
    u32 heads,
    u32 head_dim,
    u32 length,
    f16* out)            // [tokens, heads * head_dim]
{
    join(context, sums, offsets, texts, heads, head_dim, length, out);
}
