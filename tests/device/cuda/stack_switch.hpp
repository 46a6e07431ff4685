#pragma once
// Coroutines' stacks: leaving one for another. On x86-64 by hand, since swapcontext() asks the kernel for its signal
// mask each time, which takes ten times as long as all the rest; elsewhere by swapcontext().

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)

namespace cairn::emulation {

/// A place to go on from.
struct stack_place {
    void* top = nullptr;
};

/// Saves in `here` what the caller goes on with, and goes on at `there`.
[[gnu::naked, gnu::noinline]] inline void switch_stacks([[maybe_unused]] stack_place* here,
                                                        [[maybe_unused]] const stack_place* there) {
    asm volatile(
        "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        "movq %rsp, (%rdi)\n"
        "movq (%rsi), %rsp\n"
        "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n"
        "ret\n");
}

/// The first switch to `place` calls f on this stack; f must not return.
inline void prepare_stack(stack_place& place, char* stack, std::size_t bytes, void (*f)()) {
    const auto end = (reinterpret_cast<std::uintptr_t>(stack) + bytes) & ~std::uintptr_t{15};
    auto** top = reinterpret_cast<void**>(end);
    *--top = nullptr;  // where f would return to: with it the stack is aligned as behind a call
    *--top = reinterpret_cast<void*>(f);
    for (int registers = 0; registers < 6; ++registers) *--top = nullptr;
    place.top = top;
}

}  // namespace cairn::emulation

#else

#include <ucontext.h>

namespace cairn::emulation {

struct stack_place {
    ucontext_t context{};
};

inline void switch_stacks(stack_place* here, const stack_place* there) { swapcontext(&here->context, &there->context); }

inline void prepare_stack(stack_place& place, char* stack, std::size_t bytes, void (*f)()) {
    getcontext(&place.context);
    place.context.uc_stack.ss_sp = stack;
    place.context.uc_stack.ss_size = bytes;
    place.context.uc_link = nullptr;
    makecontext(&place.context, f, 0);
}

}  // namespace cairn::emulation

#endif
