// The part of CUDA that kernels/*.cu use, for C++20 on the CPU: one fiber a CUDA thread, one block at a time.
//
// A fiber runs until it meets a barrier (__syncthreads) or a warp operation (*_sync); there it waits until all that take part have
// arrived. Which waiting-free fiber goes next is drawn from a seeded generator, so a read that needs a barrier sees every order in time.
// Built with AddressSanitizer and UndefinedBehaviorSanitizer; shared memory is a global array with red zones, filled with a
// pattern before each block, because CUDA leaves it undefined.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include <math.h>

#define __global__
#define __device__
#define __launch_bounds__(...)
// -fsanitize-sections=shared_memory keeps the red zones of these arrays.
#define __shared__ static __attribute__((section("shared_memory")))
// Dynamic shared memory: on the GPU `extern __shared__`, here a buffer of exactly the launched size.
#define SHARED_DYNAMIC(type, name) type* name = reinterpret_cast<type*>(shim::dynamic_shared())

struct alignas(16) float4 {
    float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// Half precision as a kernel sees it: 16 bits, converted to and from float.
struct __half {
    std::uint16_t bits;
};
inline float __half2float(__half h) {
    const std::uint32_t sign = (h.bits & 0x8000u) << 16, rest = h.bits & 0x7fffu;
    if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    // Below the smallest normal number the value is rest / 2^24; above, the exponents differ by 112.
    if (rest < 0x400u) return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(static_cast<float>(rest) * 0x1p-24f));
    return std::bit_cast<float>(sign | (rest + (112u << 10)) << 13);
}
// To the nearest, ties to even.
inline __half __float2half_rn(float v) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(v), rest = bits & 0x7fffffffu;
    const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
    if (rest > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7fffu)};
    if (rest >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // 65,520 and above
    if (rest < 0x38800000u) {
        // Adding 1/2 leaves multiples of 2^-24 in the lowest bits, rounded as asked.
        const float shifted = std::bit_cast<float>(rest) + 0.5f;
        return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u))};
    }
    const std::uint32_t odd = rest >> 13 & 1u;
    return {static_cast<std::uint16_t>(sign | ((rest + 0xfffu + odd) >> 13) - (112u << 10))};
}

namespace shim {

struct Index3 {
    unsigned x, y, z;
};

struct Warp;

struct Fiber {
    void* stack_pointer = nullptr;
    char* stack = nullptr;
    void* fake_stack = nullptr;  // AddressSanitizer's
    Index3 thread{};
    Warp* warp = nullptr;
    unsigned lane = 0;
    std::uint64_t received = 0;  // result of the last warp operation
    bool finished = false;
    bool waiting = false;
};

extern Fiber* current;
extern Index3 block_index, block_size, grid_size;

void* dynamic_shared();
// Waits for all threads of the block.
void block_barrier(const char* where);
// Waits for the lanes of `mask`; `kind` names the operation, `value` is what this lane gives, `argument` what it asks for.
std::uint64_t warp_operation(unsigned mask, const char* kind, std::uint64_t value, unsigned argument);
[[noreturn]] void fail(const char* what);

template <class T>
std::uint64_t to_bits(T v) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8);
    if constexpr (sizeof(T) == 4) {
        return std::bit_cast<std::uint32_t>(v);
    } else {
        return std::bit_cast<std::uint64_t>(v);
    }
}
template <class T>
T from_bits(std::uint64_t v) {
    if constexpr (sizeof(T) == 4) {
        return std::bit_cast<T>(static_cast<std::uint32_t>(v));
    } else {
        return std::bit_cast<T>(v);
    }
}

// An argument as it comes over the pipe: 'p' pointer to read, 'm' pointer to write, 'u' u32, 'l' u64, 'f' f32, 'd' f64.
struct Argument {
    char kind;
    std::uint64_t bits;
};

template <class T>
T unpack(const Argument& a) {
    if constexpr (std::is_pointer_v<T>) {
        constexpr bool reads = std::is_const_v<std::remove_pointer_t<T>>;
        if (a.kind != (reads ? 'p' : 'm')) fail(reads ? "argument: an input pointer was expected" : "argument: an output pointer was expected");
        return reinterpret_cast<T>(a.bits);
    } else {
        constexpr char kind = std::is_same_v<T, float> ? 'f' : std::is_same_v<T, double> ? 'd' : sizeof(T) == 4 ? 'u' : 'l';
        if (a.kind != kind) fail("argument: a number of another type was expected");
        return from_bits<T>(a.bits);
    }
}

template <class... A, std::size_t... I>
void call(void (*kernel)(A...), const Argument* arguments, std::index_sequence<I...>) {
    kernel(unpack<A>(arguments[I])...);
}

struct Entry {
    const char* name;
    unsigned arguments;
    void (*run)(const Argument*);
};

template <class... A>
constexpr unsigned arity(void (*)(A...)) { return sizeof...(A); }
template <class... A>
void run(void (*kernel)(A...), const Argument* arguments) {
    call(kernel, arguments, std::index_sequence_for<A...>{});
}
#define HOST_ENTRY(name) {#name, shim::arity(name), [](const shim::Argument* a) { shim::run(name, a); }}

extern const Entry entries[];
extern const unsigned n_entries;

// Runs a grid. `order_seed` decides in which order fibers run.
void launch(const Entry& entry, Index3 grid, unsigned block, std::size_t dynamic_bytes, std::uint64_t order_seed, const Argument* arguments);

}  // namespace shim

#define threadIdx (shim::current->thread)
#define blockIdx shim::block_index
#define blockDim shim::block_size
#define gridDim shim::grid_size

#define SHIM_TEXT_(x) #x
#define SHIM_TEXT(x) SHIM_TEXT_(x)
#define __syncthreads() shim::block_barrier(__FILE__ ":" SHIM_TEXT(__LINE__))

inline void __syncwarp(unsigned mask = 0xffffffffu) { shim::warp_operation(mask, "syncwarp", 0, 0); }
inline unsigned __ballot_sync(unsigned mask, bool v) { return static_cast<unsigned>(shim::warp_operation(mask, "ballot", v, 0)); }
template <class T>
T __shfl_sync(unsigned mask, T v, int lane) {
    return shim::from_bits<T>(shim::warp_operation(mask, "shfl", shim::to_bits(v), static_cast<unsigned>(lane) & 31u));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, unsigned lanes) {
    return shim::from_bits<T>(shim::warp_operation(mask, "shfl_xor", shim::to_bits(v), (shim::current->lane ^ lanes) & 31u));
}

inline unsigned __float_as_uint(float v) { return std::bit_cast<unsigned>(v); }
inline float __uint_as_float(unsigned v) { return std::bit_cast<float>(v); }
inline long long __double_as_longlong(double v) { return std::bit_cast<long long>(v); }
inline double __longlong_as_double(long long v) { return std::bit_cast<double>(v); }
inline int __popc(unsigned v) { return std::popcount(v); }
inline int __ffs(int v) { return v == 0 ? 0 : std::countr_zero(static_cast<unsigned>(v)) + 1; }
template <class T>
T min(T a, T b) { return b < a ? b : a; }
template <class T>
T max(T a, T b) { return a < b ? b : a; }

// Fibers change only at rendezvous, so a plain read and write is atomic. Integers only.
inline unsigned atomicAdd(unsigned* at, unsigned v) {
    const unsigned old = *at;
    *at += v;
    return old;
}
inline unsigned atomicExch(unsigned* at, unsigned v) {
    const unsigned old = *at;
    *at = v;
    return old;
}
