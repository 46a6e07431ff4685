#pragma once
// A program on a real rank and on a phantom one: the same work and peaks of memory, and on the phantom rank no element
// is touched, for its addresses have no rights (core/phantom.hpp).

#include "catch.hpp"

#include <cairn/core/flop_counter.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/phantom_rank.hpp>
#include <cairn/core/tensor.hpp>

#include <array>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace cairn::test {

/// As long as it lives, touching the memory of a phantom rank is a segmentation fault.
class no_rights {
public:
    no_rights() {
        phantom_range::reserve();
        set(PROT_NONE);
    }
    ~no_rights() { set(PROT_READ | PROT_WRITE); }
    no_rights(const no_rights&) = delete;
    no_rights& operator=(const no_rights&) = delete;

private:
    static void set(int rights) {
        if (mprotect(phantom_range::begin(), static_cast<std::size_t>(phantom_range::bytes()), rights) != 0)
            throw std::runtime_error("mprotect failed");
    }
};

/// Numbers in (0, 1]; whole ones of integers, from 0 to 2. Of no value on a phantom rank.
template <class T = float>
tensor<T> some(const shape& s) {
    tensor<T> t(s, memory_category::data);
    for (index_t i = 0; i < t.size() && !on_phantom_rank(); ++i)
        t[i] = std::is_integral_v<T> ? static_cast<T>(i % 3) : static_cast<T>(static_cast<float>(i % 13 + 1) / 13);
    return t;
}

/// What a run did.
struct run_record {
    flop_counter::totals work;
    std::array<index_t, memory_category_names.size()> peaks;
    index_t total;

    template <class Run>
    run_record(memory_pool& pool, Run&& run) {
        pool.reset_peaks();
        {
            const flop_counter::scope counting;
            run();
            work = flop_counter::total();
        }
        for (std::size_t i = 0; i < peaks.size(); ++i) peaks[i] = pool.use_of(static_cast<memory_category>(i)).peak;
        total = pool.total().peak;
    }
};

/// Checks that run() does the same on both, on one thread. `exact`: its work and memory do not depend on numbers.
template <class Run>
void phantom_is_real(const std::string& name, Run&& run, bool exact = true) {
    INFO(name);
    const threads_for_now one(1);
    const memory_pool::of_rank real_pool;
    const run_record real = [&] {
        const memory_pool::scope here(*real_pool);
        run();  // kernels that measure each other do so here
        return run_record(*real_pool, run);
    }();
    counted_machine machine;
    const no_rights names_who_touches;
    phantom_rank here(machine);
    const run_record phantom(here.memory(), run);
    CHECK(machine.total().calls > 0);
    CHECK(machine.total().flops + machine.total().bytes > 0);
    if (!exact) return;
    CHECK(phantom.work.flops == real.work.flops);
    CHECK(phantom.work.bytes == real.work.bytes);
    CHECK(static_cast<double>(phantom.work.flops) == Approx(machine.total().flops).margin(machine.total().calls));
    CHECK(static_cast<double>(phantom.work.bytes) == Approx(machine.total().bytes).margin(machine.total().calls));
    for (std::size_t i = 0; i < real.peaks.size(); ++i) {
        INFO(memory_category_names[i]);
        CHECK(phantom.peaks[i] == real.peaks[i]);
    }
    CHECK(phantom.total == real.total);
}

}  // namespace cairn::test
