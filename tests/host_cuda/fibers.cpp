// Fibers, rendezvous and the order in which they run; see shim.hpp.
//
// A fiber switch saves the registers a called function must keep (x86-64), or goes through ucontext elsewhere. AddressSanitizer is
// told of every switch. A block whose remaining fibers all wait for something that cannot come ends the process with a message.
#include "shim.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sys/mman.h>
#include <vector>
#ifndef __x86_64__
#include <ucontext.h>
#endif

extern "C" char __start_shared_memory[], __stop_shared_memory[];

namespace shim {

constexpr std::size_t STACK = 128 << 10;

struct Warp {
    unsigned alive = 0;    // lanes that have not finished
    unsigned arrived = 0;  // lanes waiting in the operation under way
    unsigned mask = 0;
    const char* kind = nullptr;
    std::uint64_t values[32] = {};
    unsigned arguments[32] = {};
    Fiber* fibers[32] = {};
};

Fiber* current = nullptr;
Index3 block_index, block_size, grid_size;

namespace {

std::vector<std::unique_ptr<Fiber>> fibers;
std::vector<Warp> warp_states;
std::vector<Fiber*> ready;
std::unique_ptr<char[]> dynamic;
unsigned at_barrier, living;
const char* barrier_place;
const Entry* running;
const Argument* running_arguments;
std::uint64_t random_state;

void* scheduler_pointer;
void* scheduler_fake_stack;
const void* scheduler_stack;
std::size_t scheduler_stack_size;

std::uint64_t draw() {
    // splitmix64
    std::uint64_t z = (random_state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

#ifdef __x86_64__
extern "C" void shim_switch(void** save, void* to);
__asm__(
    ".text\n.globl shim_switch\n.type shim_switch,@function\nshim_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size shim_switch,.-shim_switch\n");
void jump(void** save, void* to) { shim_switch(save, to); }
#else
// The pointer is that of a ucontext.
void jump(void** save, void* to) { swapcontext(static_cast<ucontext_t*>(*save), static_cast<ucontext_t*>(to)); }
#endif

// From a fiber back to the scheduler.
void leave(Fiber* fiber, bool for_good) {
    __sanitizer_start_switch_fiber(for_good ? nullptr : &fiber->fake_stack, scheduler_stack, scheduler_stack_size);
    jump(&fiber->stack_pointer, scheduler_pointer);
    __sanitizer_finish_switch_fiber(fiber->fake_stack, nullptr, nullptr);
}

void release_warp(Warp& warp) {
    const unsigned mask = warp.mask;
    std::uint64_t results[32];
    unsigned ballot = 0;
    for (unsigned lane = 0; lane < 32; ++lane) {
        if ((mask >> lane & 1u) && warp.values[lane]) ballot |= 1u << lane;
    }
    const bool votes = std::strcmp(warp.kind, "ballot") == 0;
    for (unsigned lane = 0; lane < 32; ++lane) {
        if (!(mask >> lane & 1u)) continue;
        const unsigned from = warp.arguments[lane];
        if (!votes && warp.kind[1] == 'h' && !(mask >> from & 1u)) fail("a shuffle reads a lane outside its mask");
        results[lane] = votes ? ballot : warp.values[from];
    }
    warp.arrived = 0;
    for (unsigned lane = 0; lane < 32; ++lane) {
        if (!(mask >> lane & 1u)) continue;
        warp.fibers[lane]->received = results[lane];
        warp.fibers[lane]->waiting = false;
        ready.push_back(warp.fibers[lane]);
    }
}

[[noreturn]] void enter() {
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_size);
    Fiber* const fiber = current;
    running->run(running_arguments);
    fiber->finished = true;
    fiber->warp->alive &= ~(1u << fiber->lane);
    living -= 1;
    leave(fiber, true);
    std::abort();
}

void prepare(Fiber& fiber) {
    if (!fiber.stack) {
        fiber.stack = static_cast<char*>(mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (fiber.stack == MAP_FAILED) fail("no memory for a fiber");
    }
    // Frames that returned are clean; those of the last switch lie at the top.
    __asan_unpoison_memory_region(fiber.stack + STACK - 8192, 8192);
    fiber.finished = fiber.waiting = false;
    fiber.fake_stack = nullptr;
#ifdef __x86_64__
    void** top = reinterpret_cast<void**>(fiber.stack + STACK - 64);
    *--top = nullptr;  // alignment: a function is entered with its stack 8 off 16
    *--top = reinterpret_cast<void*>(&enter);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    fiber.stack_pointer = top;
#else
    auto* context = fiber.stack_pointer ? static_cast<ucontext_t*>(fiber.stack_pointer) : new ucontext_t;
    getcontext(context);
    context->uc_stack.ss_sp = fiber.stack;
    context->uc_stack.ss_size = STACK;
    context->uc_link = nullptr;
    makecontext(context, reinterpret_cast<void (*)()>(&enter), 0);
    fiber.stack_pointer = context;
#endif
}

// Shared memory is undefined when a block starts; the pattern makes large floats and out-of-range indices.
__attribute__((no_sanitize("address"), optimize("no-tree-loop-distribute-patterns"))) void spoil_shared_memory() {
    auto* at = reinterpret_cast<std::uint64_t*>(__start_shared_memory);
    auto* const end = reinterpret_cast<std::uint64_t*>(__stop_shared_memory);
    while (at < end) *at++ = 0xd7d7d7d7d7d7d7d7ull;
}

void run_block(unsigned block) {
    spoil_shared_memory();
    warp_states.assign(block / 32, Warp{});
    ready.clear();
    for (unsigned t = 0; t < block; ++t) {
        if (fibers.size() <= t) fibers.push_back(std::make_unique<Fiber>());
        Fiber& fiber = *fibers[t];
        prepare(fiber);
        fiber.thread = {t, 0, 0};
        fiber.warp = &warp_states[t / 32];
        fiber.lane = t % 32;
        fiber.warp->fibers[fiber.lane] = &fiber;
        fiber.warp->alive |= 1u << fiber.lane;
        ready.push_back(&fiber);
    }
    living = block;
    at_barrier = 0;
    while (living > 0) {
        if (ready.empty()) {
            if (at_barrier > 0) {
                std::fprintf(stderr, "host_cuda: %u of %u threads of %s wait at the barrier %s and the others never come\n", at_barrier, living, running->name, barrier_place);
            }
            fail("the threads that are left wait for ever");
        }
        const std::size_t at = draw() % ready.size();
        current = ready[at];
        ready[at] = ready.back();
        ready.pop_back();
        __sanitizer_start_switch_fiber(&scheduler_fake_stack, current->stack, STACK);
        jump(&scheduler_pointer, current->stack_pointer);
        __sanitizer_finish_switch_fiber(scheduler_fake_stack, nullptr, nullptr);
        if (at_barrier > 0 && living < block && ready.empty()) {
            std::fprintf(stderr, "host_cuda: threads of %s ended while others wait at the barrier %s\n", running->name, barrier_place);
            fail("a barrier is not reached by all threads of the block");
        }
        if (living > 0 && at_barrier == living) {
            at_barrier = 0;
            for (unsigned t = 0; t < block; ++t) {
                fibers[t]->waiting = false;
                ready.push_back(fibers[t].get());
            }
        }
    }
}

}  // namespace

void fail(const char* what) {
    std::fprintf(stderr, "host_cuda: %s: %s\n", running ? running->name : "no kernel", what);
    std::fflush(stderr);
    std::_Exit(86);
}

void* dynamic_shared() { return dynamic.get(); }

void block_barrier(const char* where) {
    if (at_barrier > 0 && barrier_place != where && std::strcmp(barrier_place, where) != 0) {
        std::fprintf(stderr, "host_cuda: threads of %s wait at two barriers, %s and %s\n", running->name, barrier_place, where);
        fail("a barrier is not reached by all threads of the block");
    }
    barrier_place = where;
    at_barrier += 1;
    current->waiting = true;
    leave(current, false);
}

std::uint64_t warp_operation(unsigned mask, const char* kind, std::uint64_t value, unsigned argument) {
    Fiber* const me = current;
    Warp& warp = *me->warp;
    if (!(mask >> me->lane & 1u)) fail("a lane calls a warp operation whose mask leaves it out");
    if (mask & ~warp.alive) fail("a warp operation waits for a lane that has ended");
    if (warp.arrived == 0) {
        warp.mask = mask;
        warp.kind = kind;
    } else if (warp.mask != mask || std::strcmp(warp.kind, kind) != 0) {
        fail("lanes of one warp meet at different operations");
    }
    warp.values[me->lane] = value;
    warp.arguments[me->lane] = argument;
    warp.arrived |= 1u << me->lane;
    me->waiting = true;
    if (warp.arrived == mask) release_warp(warp);
    leave(me, false);
    return me->received;
}

void launch(const Entry& entry, Index3 grid, unsigned block, std::size_t dynamic_bytes, std::uint64_t order_seed, const Argument* arguments) {
    running = &entry;
    running_arguments = arguments;
    random_state = order_seed;
    grid_size = grid;
    block_size = {block, 1, 1};
    if (block == 0 || block % 32 != 0 || block > 1024) fail("the block size is not a multiple of 32 up to 1024");
    dynamic = std::make_unique<char[]>(dynamic_bytes);
#ifndef __x86_64__
    static ucontext_t scheduler;
    scheduler_pointer = &scheduler;
#endif
    // Blocks run in a drawn order too: a result must not depend on it.
    std::vector<unsigned> order(static_cast<std::size_t>(grid.x) * grid.y);
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<unsigned>(i);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draw() % i]);
    for (unsigned at : order) {
        block_index = {at % grid.x, at / grid.x, 0};
        run_block(block);
    }
    running = nullptr;
}

}  // namespace shim
