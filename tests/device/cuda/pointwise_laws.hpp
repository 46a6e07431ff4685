#pragma once
// Laws of elementwise kernels of every grid device, besides kernel_laws.hpp: activations and their bits, dropout,
// random numbers, lookups, fused passes; at infinities, of nothing, over their operands, on arrays longer than all
// threads.

#include "device/cuda/law_numbers.hpp"
#include "oracle/activation.hpp"

namespace cairn::pointwise_laws {

using namespace kernel_laws;

inline constexpr activation functions[]{activation::relu,     activation::leaky_relu, activation::sigmoid,
                                        activation::tanh,     activation::silu,       activation::gelu,
                                        activation::gelu_tanh};

/// Forward and backward as the layer calls them, over their operands.
template <class D, class T>
struct activation_run {
    tensor<T, D> y, dx;
    tensor<std::uint8_t, D> bits;

    activation_run(activation act, T slope, const tensor<T>& x, const tensor<T>& dy)
        : y(on_device<D>(x)), dx(on_device<D>(dy)), bits({simd::mask_bytes<T>(x.size())}) {
        const index_t n = x.size();
        if (saves_of(act) == activation_saves::bits) {
            D::set_bytes(bits.data(), 0, bits.bytes());
            sign_activation_forward(D{}, n, slope, y.data(), y.data(), bits.data());
            sign_activation_backward(D{}, n, slope, dx.data(), bits.data(), dx.data());
        } else {
            const auto before = on_device<D>(x);
            activation_forward(D{}, act, n, y.data(), y.data());
            activation_backward(D{}, act, n, saves_of(act) == activation_saves::output ? y.data() : before.data(),
                                dx.data(), dx.data());
        }
    }
};

template <class D, class T>
void activations() {
    for (const activation act : functions)
        for (const index_t n : {0, 1, 33, 70001}) {
            if (n > 1000 && sizeof(T) == 8 && act != activation::relu && act != activation::gelu) continue;
            CAPTURE(name_of(act), n);
            const T slope = act == activation::leaky_relu ? T(0.125) : T(0);
            tensor<T> x = spread<T>({n}), dy = spread<T>({n});
            for (T& v : x.span()) v *= T(6);
            for (T& v : dy.span()) v = T(0.5) - v * v;
            const activation_run<D, T> k(act, slope, x, dy);
            const tensor<T> y = on_host(k.y), dx = on_host(k.dx);
            const index_t step = n > 1000 ? 7 : 1;  // coprime with packets
            for (index_t i = 0; i < n; i += step) {
                const long double value = oracle::activation(act, x[i], slope),
                                  slope_there = dy[i] * oracle::activation_derivative(act, x[i], slope);
                REQUIRE(std::abs(static_cast<double>(y[i] - value)) <=
                        eps<T>(8) * std::max(1.0, static_cast<double>(std::abs(value))));
                REQUIRE(std::abs(static_cast<double>(dx[i] - slope_there)) <= eps<T>(64));
            }
            if (saves_of(act) != activation_saves::bits) continue;
            auto host_bits = tensor<std::uint8_t>::zeros(k.bits.shape());
            tensor<T> host_y({n});
            sign_activation_forward(cpu{}, n, slope, x.data(), host_y.data(), host_bits.data());
            const tensor<std::uint8_t> bits = on_host(k.bits);
            for (index_t i = 0; i < n; ++i)  // what lies behind n is of no use
                REQUIRE((bits[i / 8] >> (i % 8) & 1) == (host_bits[i / 8] >> (i % 8) & 1));
            CHECK(same_bits(on_host(k.y), host_y));
            tensor<T, D> without({n});
            const auto d_x = on_device<D>(x);
            sign_activation_forward(D{}, n, slope, d_x.data(), without.data(), nullptr);
            CHECK(same_bits(without, k.y));
        }
}

/// 0, the infinities and NaN.
template <class D, class T>
void activations_of_the_infinite() {
    for (const activation act : functions) {
        CAPTURE(name_of(act));
        const activation_run<D, T> k(act, act == activation::leaky_relu ? T(0.5) : T(0),
                                     of_numbers<T>({0, infinity, -infinity, not_a_number}),
                                     tensor<T>::filled({4}, T(1)));
        const tensor<T> y = on_host(k.y);
        const bool bounded = act == activation::sigmoid || act == activation::tanh;
        CHECK(y[0] == (act == activation::sigmoid ? T(0.5) : T(0)));
        CHECK(y[1] == (bounded ? T(1) : std::numeric_limits<T>::infinity()));
        if (act == activation::sigmoid || act == activation::relu) CHECK(y[2] == 0);
        if (act == activation::tanh) CHECK(y[2] == -1);
        if (act == activation::leaky_relu) CHECK(y[2] == -std::numeric_limits<T>::infinity());
        CHECK(std::isnan(y[3]));
        if (act != activation::relu) continue;  // what is cut off takes no part, whatever comes back
        const activation_run<D, T> cut(act, T(0), of_numbers<T>({-1, -1, -infinity, 1}),
                                       of_numbers<T>({not_a_number, infinity, 1, infinity}));
        check_near(cut.y, std::vector<double>{0, 0, 0, 1}, 0);
        check_near(cut.dx, std::vector<double>{0, 0, 0, infinity}, 0);
    }
}

/// The mask is that of the scalar generator.
template <class D, class T>
void dropouts() {
    const random_stream random{0x123456789abcdefull, 77, 5};
    for (const index_t n : {0, 1, 65, 1000, 100003})
        for (const double rate : {0.0, 0.25, 0.9}) {
            if (n > 1000 && (sizeof(T) == 8 || rate < 0.5)) continue;
            CAPTURE(n, rate);
            const tensor<T> x = spread<T>({n});
            tensor<T> expected({n});
            for (index_t i = 0; i < n; ++i) {
                const std::uint32_t bits = random.bits4(
                    static_cast<std::uint64_t>(16 * (i / 64) + i % 16))[static_cast<std::size_t>(i / 16 % 4)];
                expected[i] =
                    bits >= static_cast<std::uint32_t>(rate * 0x1p32) ? x[i] * static_cast<T>(1 / (1 - rate)) : T(0);
            }
            auto in_place = on_device<D>(x);
            dropout_apply(D{}, n, rate, random, in_place.data(), in_place.data());
            CHECK(same_bits(on_host(in_place), expected));
            // The step that lies in memory counts, not the stream's.
            tensor<std::uint32_t> step({1});
            step[0] = random.step;
            const auto d_step = on_device<D>(step);
            const auto d_x = on_device<D>(x);
            tensor<T, D> y({n});
            dropout_apply(D{}, n, rate, random_stream{random.seed, random.stream, 99}, d_x.data(), y.data(), 0,
                          d_step.data());
            CHECK(same_bits(on_host(y), expected));
            // A part of a batch drops what the whole batch drops there.
            for (const index_t first : {index_t{1}, index_t{63}, index_t{64}, n / 2, n - 1}) {
                if (first < 0 || first >= n || n > 1000) continue;
                CAPTURE(first);
                tensor<T, D> part({n - first});
                dropout_apply(D{}, n - first, rate, random, d_x.data() + first, part.data(), first);
                CHECK(same_bits(on_host(part), expected.slice(first, {n - first})));
            }
        }
}

/// Numbers of a stream, by a kernel.
struct numbers_of {
    random_stream random;
    index_t n;
    float* uniform;
    double* normal;
    std::uint64_t* below;
    std::uint32_t* known;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += b.blocks() * b.threads()) {
            const auto at = static_cast<std::uint64_t>(i);
            uniform[i] = random.uniform(at);
            normal[i] = random.normal(at);
            below[i] = random.below(1000003, at);
        }
        if (b.block() > 0 || b.thread() > 2) return;
        // Counters and keys of Random123's known answers.
        const std::uint32_t ones = ~0u;
        const auto bits = b.thread() == 0 ? philox({0, 0, 0, 0}, {0, 0})
                          : b.thread() == 1
                              ? philox({ones, ones, ones, ones}, {ones, ones})
                              : philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0});
        for (int w = 0; w < 4; ++w) known[b.thread() * 4 + w] = bits[static_cast<std::size_t>(w)];
    }
};

template <class D>
void random_numbers() {
    constexpr index_t n = 3001;
    const random_stream random{0xfedcba9876543210, 0x80000001u, 0xffffffffu};
    tensor<float, D> uniform({n});
    tensor<double, D> normal({n});
    tensor<std::uint64_t, D> below({n});
    tensor<std::uint32_t, D> known({12});
    D::launch({.blocks = 4, .threads = 64},
              numbers_of{random, n, uniform.data(), normal.data(), below.data(), known.data()});
    const auto u = on_host(uniform);
    const auto z = on_host(normal);
    const auto k = on_host(below);
    for (index_t i = 0; i < n; ++i) {
        const auto at = static_cast<std::uint64_t>(i);
        REQUIRE(u[i] == random.uniform(at));
        REQUIRE(std::abs(z[i] - random.normal(at)) <= 1e-14 * 8);  // another log, sine and cosine
        REQUIRE(k[i] == random.below(1000003, at));
    }
    constexpr std::uint32_t answers[]{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8, 0x408f276d, 0x41c83b0e,
                                      0xa20bc7c6, 0x6d5451fd, 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    const auto got = on_host(known);
    for (index_t i = 0; i < 12; ++i) CHECK(got[i] == answers[i]);
}

/// Rows of the table and their gradients summed: one entry for all, more columns than threads, no rows, ids that are
/// none.
template <class D, class T>
void embeddings() {
    for (const auto& [entries, width, rows] : std::vector<std::array<index_t, 3>>{
             {7, 5, 0}, {1, 3, 200}, {1, 1, 1}, {7, 200, 33}, {1000, 5, 4000}, {2, 16, 2500}}) {
        if (sizeof(T) == 8 && rows > 1000) continue;
        CAPTURE(entries, width, rows);
        tensor<std::int32_t> ids({rows});
        const random_stream random{seed(), 5, 6};
        for (index_t r = 0; r < rows; ++r)
            ids[r] = static_cast<std::int32_t>(
                random.below(static_cast<std::uint64_t>(entries), static_cast<std::uint64_t>(r)));
        if (rows > 10) ids[3] = -1, ids[7] = static_cast<std::int32_t>(entries), ids[9] = -2000000000;
        const tensor<T> table = spread<T>({entries, width}), dy = spread<T>({rows, width});
        std::vector<double> y;
        std::vector<long double> sums(static_cast<std::size_t>(table.size()), 0.5L);
        for (index_t i = 0; i < dy.size(); ++i) {
            const index_t id = ids[i / width];
            const bool known = id >= 0 && id < entries;
            y.push_back(known ? static_cast<double>(table[id * width + i % width]) : not_a_number);
            if (known) sums[static_cast<std::size_t>(id * width + i % width)] += dy[i];
        }
        const auto d_ids = on_device<D>(ids);
        const auto d_table = on_device<D>(table), d_dy = on_device<D>(dy);
        tensor<T, D> d_y(dy.shape());
        auto dtable = on_device<D>(tensor<T>::filled(table.shape(), T(0.5)));
        embedding_forward(D{}, rows, entries, width, d_ids.data(), d_table.data(), d_y.data());
        embedding_backward(D{}, rows, entries, width, d_ids.data(), d_dy.data(), dtable.data());
        check_near(d_y, y, 0);
        check_near(dtable, sums, eps<T>(100) * std::sqrt(1.0 + static_cast<double>(rows)));
        tensor<bfloat16> half(dy.shape());  // as mixed precision has it
        tensor<T> wide(dy.shape());
        for (index_t i = 0; i < dy.size(); ++i)
            half[i] = bfloat16(static_cast<float>(dy[i])), wide[i] = static_cast<T>(static_cast<float>(half[i]));
        const auto d_half = on_device<D>(half);
        const auto d_wide = on_device<D>(wide);
        auto of_half = tensor<T, D>::zeros(table.shape()), of_wide = tensor<T, D>::zeros(table.shape());
        embedding_backward(D{}, rows, entries, width, d_ids.data(), d_half.data(), of_half.data());
        embedding_backward(D{}, rows, entries, width, d_ids.data(), d_wide.data(), of_wide.data());
        CHECK(same_bits(of_half.on_host(), of_wide.on_host()));
    }
}

struct rounded_sum {
    CAIRN_HD void operator()(bfloat16& to, const double& a, const double& b) const {
        to = bfloat16(static_cast<float>(a + b));
    }
};
struct count_and_double {
    CAIRN_HD void operator()(std::int32_t& calls, float& x) const {
        calls += 1;
        x = x * 2;
    }
};
/// Every element once, at the ends of packets and of all threads; an array twice; arrays of several types.
template <class D>
void passes() {
    for (const index_t n : {0, 1, 4095, 4096, 4097, 70001})
        for (const index_t off : {0, 1}) {
            CAPTURE(n, off);
            const tensor<float> x = spread<float>({n});
            placed<std::int32_t, D> calls(tensor<std::int32_t>::zeros({n}), off);
            placed<float, D> d_x(x, off);
            for_each(D{}, n, count_and_double{}, calls.data(), d_x.data());
            const auto once = calls.on_host();
            const auto twice = d_x.on_host();
            for (index_t i = 0; i < n; ++i) REQUIRE((once[i] == 1 && twice[i] == 2 * x[i]));
            for_each(D{}, n, functors::add{}, d_x.data(), d_x.data());  // the same array twice
            const auto four = d_x.on_host();
            for (index_t i = 0; i < n; ++i) REQUIRE(four[i] == 4 * x[i]);
            if (n > 5000) continue;
            const tensor<double> a = drawn<double>({n}, 3), b = drawn<double>({n}, 4);
            const placed<double, D> d_a(a, off), d_b(b, off);
            placed<bfloat16, D> narrow({n}, off);
            for_each(D{}, n, rounded_sum{}, narrow.data(), d_a.data(), d_b.data());
            const auto got = narrow.on_host();
            for (index_t i = 0; i < n; ++i)
                REQUIRE(static_cast<float>(got[i]) == static_cast<float>(bfloat16(static_cast<float>(a[i] + b[i]))));
        }
}

/// Columns of one matrix to columns of another; the rest stays.
template <class D>
void copied_columns() {
    for (const auto& [rows, width] :
         std::vector<std::pair<index_t, index_t>>{{0, 3}, {1, 1}, {5, 0}, {7, 4}, {300, 9}}) {
        CAPTURE(rows, width);
        const index_t from_stride = width + 3, to_stride = width + 5;
        const tensor<float> from = spread<float>({rows, from_stride});
        tensor<float> expected = tensor<float>::filled({rows, to_stride}, 7);
        for (index_t r = 0; r < rows; ++r)
            for (index_t c = 0; c < width; ++c) expected(r, c + 2) = from(r, c + 1);
        const auto d_from = on_device<D>(from);
        auto to = on_device<D>(tensor<float>::filled({rows, to_stride}, 7));
        copy_columns(D{}, rows, width, d_from.data() + 1, from_stride, to.data() + 2, to_stride);
        CHECK(same_bits(on_host(to), expected));
    }
}

template <GridDevice D>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"activations, float", activations<D, float>},
                                       {"activations, double", activations<D, double>},
                                       {"activations of the infinite, float", activations_of_the_infinite<D, float>},
                                       {"activations of the infinite, double", activations_of_the_infinite<D, double>},
                                       {"dropout, float", dropouts<D, float>},
                                       {"dropout, double", dropouts<D, double>},
                                       {"random numbers", random_numbers<D>},
                                       {"embedding, float", embeddings<D, float>},
                                       {"embedding, double", embeddings<D, double>},
                                       {"passes", passes<D>},
                                       {"copied columns", copied_columns<D>}};
    return laws;
}

}  // namespace cairn::pointwise_laws
