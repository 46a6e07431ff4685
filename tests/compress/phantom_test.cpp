// Compressors on a phantom rank: they announce the work that they do on a real one, take the same memory and touch no
// element. Where the length of a message depends on numbers, it has a declared one.

#include "phantom_run.hpp"

#include <cairn/compress/bf16.hpp>
#include <cairn/compress/dgc.hpp>
#include <cairn/compress/error_bounded.hpp>
#include <cairn/compress/feedback.hpp>
#include <cairn/compress/fp16.hpp>
#include <cairn/compress/natural.hpp>
#include <cairn/compress/onebit.hpp>
#include <cairn/compress/powersgd.hpp>
#include <cairn/compress/powersgd_alternating.hpp>
#include <cairn/compress/qsgd.hpp>
#include <cairn/compress/randomk.hpp>
#include <cairn/compress/sign.hpp>
#include <cairn/compress/topk.hpp>

namespace phantom_compressors {

using namespace cairn;
using cairn::index_t;
using test::phantom_is_real;
using test::some;

constexpr index_t n = 50'000;

template <class Make>
void check(Make make) {
    const bool fixed = make().contract(n).fixed_bytes;
    phantom_is_real(
        make().name(),
        [&] {
            auto c = make();
            c.prepare(n);
            auto gradient = some({n}), mean = some({n});
            const encode_step at{.seed = 7};
            message<> out;
            c.encode(std::as_const(gradient).span(), out, at);
            CHECK(out.size() > 0);
            CHECK(out.size() <= c.max_bytes(n));
            c.decode(std::as_const(out).bytes(), mean.span(), at);
            c.decode_add(std::as_const(out).bytes(), mean.span(), at, 0.5f);
            c.flush_residual(gradient.span());
        },
        fixed);
}

}  // namespace phantom_compressors

TEST_CASE("phantom: compressors announce their work and touch nothing", "[phantom]") {
    using namespace phantom_compressors;
    check([] { return bf16<>{}; });
    check([] { return bf16_stochastic<>{}; });
    check([] { return fp16<>{}; });
    check([] { return natural<>{}; });
    check([] { return cairn::sign<>{}; });
    check([] { return qsgd<>({.levels = 5}); });
    check([] { return onebit{}; });
    check([] { return randomk<>({.ratio = 0.1}); });
    check([] { return topk<cpu, plain_positions>({.ratio = 0.1}); });
    check([] { return topk<>({.ratio = 0.1}); });
    check([] { return sampled_topk<>({.ratio = 0.1, .values = sparse_value::bfloat16}); });
    check([] { return dgc<>({.ratio = 0.1, .clip = 1}); });
    check([] { return error_bounded{}; });
    check([] { return error_feedback<topk<cpu, plain_positions>>(topk<cpu, plain_positions>({.ratio = 0.1})); });
    check([] { return error_feedback<cairn::sign<>>{}; });
}

TEST_CASE("phantom: PowerSGD and 1-bit Adam's reduction announce their work and touch nothing", "[phantom]") {
    using namespace phantom_compressors;
    const bucket_layout layout{{"w", 0, {100, 400}}, {"b", 40'000, {5000}}};
    const auto reduce = [&](auto&& make) {
        phantom_is_real("powersgd", [&] {
            auto c = make();
            auto gradient = some({n}), total = some({n});
            c.reduce(std::as_const(gradient).span(), total.span(), 4, {}, [](std::span<float>) {});
        });
    };
    reduce([&] { return powersgd<>({.rank = 3}, layout, n); });
    reduce([&] { return powersgd_alternating<>({.rank = 3}, layout, n); });
    phantom_is_real("two phases", [&] {
        onebit_all_reduce c({}, n, 2, 0);
        auto gradient = some({n}), mean = some({n});
        c.encode(std::as_const(gradient).span(), {});
        const std::span<const std::byte> from[] = {c.outgoing(0), c.outgoing(0)};
        const auto result = c.combine(from, {});
        const std::span<const std::byte> all[] = {result, c.outgoing(1)};
        c.decode(all, mean.span(), {});
        c.flush_residual(gradient.span());
    });
}

TEST_CASE("phantom: sparse positions and error-bounded codes are about as long as real ones", "[phantom]") {
    using namespace phantom_compressors;
    const auto share = [](auto make) {
        tensor<float> x({n});
        const random_stream random{3, 0, 0};
        for (index_t i = 0; i < n; ++i) x[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
        message<> real;
        make().encode(std::as_const(x).span(), real, {});
        counted_machine machine;
        const phantom_rank here(machine);
        message<> phantom;
        make().encode(std::as_const(x).span(), phantom, {});
        return static_cast<double>(phantom.size()) / static_cast<double>(real.size());
    };
    CHECK(share([] { return topk<>({.ratio = 0.01}); }) == Approx(1).margin(0.05));
    CHECK(share([] { return topk<>({.ratio = 0.1}); }) == Approx(1).margin(0.05));
    CHECK(share([] { return error_bounded{}; }) == Approx(1).margin(0.2));
}
