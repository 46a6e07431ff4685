#pragma once
// What compressors' messages obey that a grid device makes and reads (device/grid/codecs.hpp): they are the host's. A
// law takes the host's compressor and holds it against the same code on D.

#include "compress/compressor_laws.hpp"
#include "compress/every_compressor.hpp"
#include "device/cuda/kernel_laws.hpp"

#include <cairn/compress/feedback.hpp>
#include <cairn/core/range.hpp>
#include <cairn/device/grid/codecs.hpp>
#include <cairn/device/grid/select.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace cairn::codec_laws {

using kernel_laws::drawn;
using kernel_laws::on_device;
using kernel_laws::on_host;
using bytes = std::vector<std::byte>;

// Around packets of 4, half words of 16, words of 32, groups of 128, spans of 1,024 and blocks of 8,192 values.
inline const std::vector<index_t> sizes{0,    1,    3,    4,    7,    16,   31,   32,   33,   100,
                                        127,  128,  129,  160,  255,  1000, 1023, 1024, 1025, 1151,
                                        2047, 2049, 5000, 8191, 8192, 8193, 9217, 16500};

inline encode_step step_of(std::int64_t number = 3) {
    return {.seed = 0x123456789abcull, .rank = 2, .step = number, .bucket = 5};
}

/// The `size` bytes that make(address) writes to device memory, `shift` behind a multiple of 16: nothing beside them
/// may be written.
template <class D, class Make>
bytes made(index_t size, index_t shift, Make make) {
    constexpr index_t guard = 16;
    auto room = tensor<std::uint8_t>::filled({2 * guard + 16 + size}, 0xa5);
    auto d_room = on_device<D>(room);
    make(reinterpret_cast<std::byte*>(d_room.data()) + guard + shift);
    const auto got = on_host(d_room);
    bytes out(static_cast<std::size_t>(size));
    index_t touched = 0;
    for (index_t i = 0; i < got.size(); ++i) {
        const index_t at = i - guard - shift;
        if (at >= 0 && at < size)
            out[static_cast<std::size_t>(at)] = static_cast<std::byte>(got[i]);
        else
            touched += got[i] != 0xa5;
    }
    CHECK(touched == 0);
    return out;
}

template <class D, class Code>
codec<Code, D> same_on(const codec<Code, cpu>& c) {
    return codec<Code, D>(c.code());
}

inline std::span<const float> behind(const float* x, index_t off, index_t n) {
    return {x + off, static_cast<std::size_t>(n)};
}

/// The message that c, on D, makes of values there, at `out`.
template <class C>
void encode_to(C&& c, std::span<const float> values, std::byte* out, const encode_step& at) {
    using D = typename std::decay_t<C>::device;
    message<D> m(tensor<std::byte, D>::view(out, {c.max_bytes(static_cast<index_t>(values.size()))}));
    c.encode(values, m, at);
}

/// The message of x without its first `off` values.
template <class D, class C>
bytes encoded_on(const C& c, const tensor<float>& x, index_t off, const encode_step& at, index_t shift = 0) {
    const index_t n = x.size() - off;
    const auto d_x = on_device<D>(x);
    return made<D>(c.max_bytes(n), shift,
                   [&](std::byte* out) { encode_to(same_on<D>(c), behind(d_x.data(), off, n), out, at); });
}

template <class C>
bytes encoded_here(C&& c, const tensor<float>& x, index_t off, const encode_step& at) {
    message<> m;
    c.encode(std::as_const(x).span().subspan(static_cast<std::size_t>(off)), m, at);
    const auto all = std::as_const(m).bytes();
    return {all.begin(), all.end()};
}

template <class C>
tensor<float> decoded_here(const C& c, const bytes& message, index_t n, const encode_step& at) {
    tensor<float> y({n});
    c.decode(message, y.span(), at);
    return y;
}

/// Result of decode_add in `start` behind its first `off` values.
template <class D, class C>
tensor<float> added_on(const C& c, const bytes& message, const tensor<float>& start, index_t off, float scale,
                       index_t shift = 0) {
    tensor<std::uint8_t> room({static_cast<index_t>(message.size()) + 16});
    for (std::size_t i = 0; i < message.size(); ++i)
        room[shift + static_cast<index_t>(i)] = static_cast<std::uint8_t>(message[i]);
    const auto d_room = on_device<D>(room);
    auto into = on_device<D>(start);
    same_on<D>(c).decode_add({reinterpret_cast<const std::byte*>(d_room.data()) + shift, message.size()},
                             {into.data() + off, static_cast<std::size_t>(start.size() - off - 4)}, step_of(), scale);
    return on_host(into);
}

inline void check_same(const bytes& got, const bytes& expected) {
    REQUIRE(got.size() == expected.size());
    const auto off = std::mismatch(got.begin(), got.end(), expected.begin());
    if (off.first != got.end())
        FAIL_CHECK("byte " << off.first - got.begin() << " of " << got.size() << " is " << static_cast<int>(*off.first)
                           << ", expected " << static_cast<int>(*off.second));
}

/// The same bits, or both NaN.
inline void check_same(const tensor<float>& got, const tensor<float>& expected) {
    REQUIRE(got.size() == expected.size());
    for (index_t i = 0; i < got.size(); ++i)
        if (std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(expected[i]) &&
            !(std::isnan(got[i]) && std::isnan(expected[i]))) {
            FAIL_CHECK("element " << i << " of " << got.size() << " is " << got[i] << ", expected " << expected[i]);
            return;
        }
}

/// Numbers of all sizes, many small ones.
inline tensor<float> spread(index_t n, std::uint32_t stream) {
    auto x = drawn<float>({n}, stream);
    for (index_t i = 0; i < n; ++i) x[i] = std::pow(x[i], 5.0f) * (i % 3 ? 1.0f : 1e-4f);
    return x;
}

/// `spread` with numbers at the ends of formats, and those that are none if `all`.
inline tensor<float> with_ends(index_t n, std::uint32_t stream, bool all) {
    auto x = spread(n, stream);
    const float most = std::numeric_limits<float>::max(), least = std::numeric_limits<float>::denorm_min(),
                infinite = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> ends{0.0f,      -0.0f,    least,    -least,    1e-40f,     -1e-39f,  0x1p-126f, -0x1p-126f,
                            most,      -most,    65504.0f, -65504.0f, 65519.9f,   65520.0f, 1e6f,      0x1p-24f,
                            -0x1p-25f, 0x1p-14f, 6e-5f,    -3e-8f,    0x1.8p-25f, 0x1p127f, 1.0f,      -1.0f};
    if (all) ends.insert(ends.end(), {infinite, -infinite, nan, -nan, std::bit_cast<float>(0x7f800001u)});
    for (index_t i = 0; i < n; i += 3) x[i] = ends[static_cast<std::size_t>(i / 3) % ends.size()];
    return x;
}

/// Messages of values that begin at any float, at any multiple of 4 bytes, are the host's.
template <class D, class C, class Numbers>
void check_messages(const C& c, Numbers numbers) {
    for (std::size_t s = 0; s < sizes.size(); ++s) {
        const index_t n = sizes[s];
        for (index_t off = 0; off < 4; ++off) {
            if (n > 1100 && static_cast<std::size_t>(off) != s % 4 && n != 5000) continue;
            CAPTURE(c.name(), n, off);
            const tensor<float> x = numbers(n + off);
            check_same(encoded_on<D>(c, x, off, step_of(), 4 * ((off + n) % 4)), encoded_here(c, x, off, step_of()));
        }
    }
}

template <class D>
void casts() {
    const auto finite = [](index_t n) { return with_ends(n, 401, false); };
    const auto any = [](index_t n) { return with_ends(n, 402, true); };
    check_messages<D>(bf16{}, any);
    check_messages<D>(fp16{}, any);
    check_messages<D>(bf16_stochastic{}, any);
    check_messages<D>(fp16_stochastic{}, any);
    check_messages<D>(fp16_stochastic{}, finite);
}

template <class D>
void powers_of_two() {
    check_messages<D>(natural{}, [](index_t n) { return spread(n, 403); });
    check_messages<D>(natural{}, [](index_t n) { return with_ends(n, 404, false); });
}

/// Whole numbers, whose sums are exact in any order; zeros of both signs.
template <class D>
void signs() {
    check_messages<D>(sign{}, [](index_t n) {
        auto x = drawn<float>({n}, 405);
        for (index_t i = 0; i < n; ++i) x[i] = std::round(3 * x[i]);
        return x;
    });
}

/// In each bucket powers of two whose squares add up to a power of four, between zeros: norm, quotients and products
/// are exact.
inline tensor<float> exact_buckets(index_t n, index_t off) {
    auto x = tensor<float>::zeros({n});
    const auto random = drawn<float>({n}, 406);
    for (index_t first = off; first < n; first += 128) {
        const index_t m = std::min<index_t>(128, n - first), g = (first - off) / 128;
        std::vector<float> some;
        if (m >= 22)
            some = {4, 4, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
        else if (m >= 10)
            some = {2, 2, 1, 1, 1, 1, 1, 1, 1, 1};
        else
            some.assign(m >= 4 ? 4 : 1, 1.0f);
        for (std::size_t i = 0; i < some.size(); ++i)
            x[first + (5 * g + static_cast<index_t>(i) * (m >= 66 ? 3 : 1)) % m] =
                some[i] * std::ldexp(1.0f, static_cast<int>(g % 9) - 4);
        for (index_t i = 0; i < m; ++i) x[first + i] = std::copysign(x[first + i], random[first + i]);
    }
    return x;
}

template <class D>
void levels() {
    for (const int s : {1, 2, 7, 100, 255})
        for (std::size_t k = 0; k < sizes.size(); ++k) {
            const index_t n = sizes[k], off = static_cast<index_t>(k % 4);
            if (s != 7 && n > 1100) continue;
            CAPTURE(s, n, off);
            const qsgd c({s});
            const auto x = exact_buckets(n + off, off);
            check_same(encoded_on<D>(c, x, off, step_of(), 4 * static_cast<index_t>(k / 4 % 4)),
                       encoded_here(c, x, off, step_of()));
        }
}

/// Sums of any numbers: the host decodes what differs by a rounding of the scale, and of qsgd hardly ever by a level;
/// all within the contract.
template <class D>
void rounded_sums() {
    for (const index_t n : {100, 1024, 5000}) {
        CAPTURE(n);
        const auto x = drawn<float>({n}, 407);
        const auto y = decoded_here(sign{}, encoded_on<D>(sign{}, x, 0, step_of()), n, step_of());
        const auto expected = decoded_here(sign{}, encoded_here(sign{}, x, 0, step_of()), n, step_of());
        double lost = 0, square = 0;
        for (index_t i = 0; i < n; ++i) {
            CHECK(std::abs(y[i] - expected[i]) <= 0x1p-23f * std::abs(expected[i]));
            lost += std::pow(double{x[i]} - y[i], 2), square += std::pow(double{x[i]}, 2);
        }
        CHECK(lost <= (1 - sign{}.contract(n).contraction) * square * (1 + 1e-5));
        for (const int s : {1, 7, 255}) {
            CAPTURE(s);
            const qsgd c({s});
            const auto z = decoded_here(c, encoded_on<D>(c, x, 0, step_of()), n, step_of());
            const auto wanted = decoded_here(c, encoded_here(c, x, 0, step_of()), n, step_of());
            index_t others = 0;
            for (index_t g = 0; g < n; g += 128) {
                double norm = 0;
                for (index_t i = g; i < std::min(n, g + 128); ++i) norm += std::pow(double{x[i]}, 2);
                norm = std::sqrt(norm);
                for (index_t i = g; i < std::min(n, g + 128); ++i) {
                    CHECK(std::abs(double{z[i]} - x[i]) <= norm / s * (1 + 1e-5));
                    CHECK(std::abs(double{z[i]} - wanted[i]) <= norm / s * (1 + 1e-5));
                    others += std::abs(z[i] - wanted[i]) > 0x1p-22f * std::abs(wanted[i]);
                }
            }
            CHECK(others <= n / 1000);
        }
    }
}

/// Sums that the host's messages are added to, at any float; what lies beside them stays. A product with 1/4 is exact,
/// so that one operation or two give the same.
template <class D, class C, class Numbers>
void check_sums(const C& c, Numbers numbers) {
    for (std::size_t s = 0; s < sizes.size(); ++s) {
        const index_t n = sizes[s];
        for (index_t off = 0; off < 4; ++off) {
            if (n > 140 && static_cast<std::size_t>(off) != s % 4) continue;
            CAPTURE(c.name(), n, off);
            const auto message = encoded_here(c, numbers(n), 0, step_of());
            const auto start = drawn<float>({n + off + 4}, 408);
            for (const float scale : {0.25f, -1.0f, 0.3f}) {
                CAPTURE(scale);
                auto expected = start.clone();
                c.decode_add(message,
                             expected.span().subspan(static_cast<std::size_t>(off), static_cast<std::size_t>(n)),
                             step_of(), scale);
                const auto got = added_on<D>(c, message, start, off, scale, 4 * ((off + n) % 4));
                if (scale != 0.3f) {
                    check_same(got, expected);
                    continue;
                }
                const auto y = decoded_here(c, message, n, step_of());
                index_t far = 0;
                for (index_t i = 0; i < n; ++i) {
                    const float a = got[off + i], b = expected[off + i];
                    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
                    far += !(std::abs(a - b) <= 0x1p-22f * (std::abs(start[off + i]) + std::abs(0.3f * y[i])));
                }
                CHECK(far == 0);
            }
        }
    }
}

template <class D>
void sums() {
    const auto any = [](index_t n) { return with_ends(n, 409, true); };
    const auto finite = [](index_t n) { return spread(n, 410); };
    check_sums<D>(bf16{}, any);
    check_sums<D>(fp16{}, any);
    check_sums<D>(bf16_stochastic{}, any);
    check_sums<D>(fp16_stochastic{}, any);
    check_sums<D>(natural{}, [](index_t n) { return with_ends(n, 411, false); });
    check_sums<D>(sign{}, finite);
    for (const int s : {1, 7, 255}) check_sums<D>(qsgd({s}), finite);
}

/// Steps of error feedback: messages and residual are the host's, and what was sent and what is left are all gradients.
template <class D, class C>
void check_feedback(const C& c, bool same_bits) {
    for (const index_t n : {0, 1, 129, 1025, 5000}) {
        const index_t off = n % 4;
        CAPTURE(c.name(), n);
        error_feedback there(same_on<D>(c));
        error_feedback here(c);
        std::vector<double> sent(static_cast<std::size_t>(n)), given(sent), scale(sent);
        for (int t = 0; t < 5; ++t) {
            CAPTURE(t);
            const auto g = drawn<float>({n + off}, 420 + static_cast<std::uint32_t>(t));
            const auto d_g = on_device<D>(g);
            const auto message = made<D>(c.max_bytes(n), 4 * (t % 4), [&](std::byte* out) {
                encode_to(there, behind(d_g.data(), off, n), out, step_of(t));
            });
            const auto expected = encoded_here(here, g, off, step_of(t));
            if (same_bits) check_same(message, expected);
            const auto y = decoded_here(c, message, n, step_of(t));
            for (index_t i = 0; i < n; ++i) {
                const auto at = static_cast<std::size_t>(i);
                sent[at] += y[i], given[at] += g[off + i];
                scale[at] += std::abs(g[off + i]) + std::abs(y[i]);
            }
        }
        const auto left = on_host(there.tensors().front().t);
        const auto expected = here.tensors()[0].t.clone();
        REQUIRE(left.size() == n);
        index_t lost = 0, others = 0;
        for (index_t i = 0; i < n; ++i) {
            const auto at = static_cast<std::size_t>(i);
            lost += !(std::abs(sent[at] + left[i] - given[at]) <= 1e-6 * scale[at]);
            others += !(std::abs(left[i] - expected[i]) <= 1e-6 * scale[at]);
        }
        CHECK(lost == 0);
        CHECK(others <= n / 500);
        if (same_bits && n > 0) check_same(left, expected);

        const auto g = drawn<float>({n + off}, 430);
        auto d_g = on_device<D>(g);
        there.flush_residual({d_g.data() + off, static_cast<std::size_t>(n)});
        const auto dense = on_host(d_g), rest = on_host(there.tensors().front().t);
        index_t wrong = 0;
        for (index_t i = 0; i < n; ++i) wrong += dense[off + i] != g[off + i] + left[i] || rest[i] != 0;
        CHECK(wrong == 0);
        for (index_t i = 0; i < off; ++i) CHECK(dense[i] == g[i]);
    }
}

template <class D>
void feedback() {
    check_feedback<D>(bf16{}, true);
    check_feedback<D>(fp16{}, true);
    check_feedback<D>(bf16_stochastic{}, true);
    check_feedback<D>(fp16_stochastic{}, true);
    check_feedback<D>(natural{}, true);
    check_feedback<D>(sign{}, false);
    check_feedback<D>(qsgd{}, false);
    error_feedback<sign<D>> c;
    c.prepare(10);
    CHECK_THROWS_WITH(c.prepare(11), Catch::Contains("a bucket of 11 values after one of 10"));
}

/// The message of a NaN or Inf; neighbours are unchanged.
template <class D>
void not_finite() {
    constexpr index_t n = 3000;
    const float infinite = std::numeric_limits<float>::infinity();
    const auto zeros = tensor<float>::zeros({n + 4});
    for (const float bad : {infinite, -infinite, std::numeric_limits<float>::quiet_NaN()}) {
        CAPTURE(bad);
        auto x = drawn<float>({n}, 440);
        const auto good = x.clone();
        x[1500] = bad;
        const auto powers = encoded_on<D>(natural{}, x, 0, step_of());
        auto expected = decoded_here(natural{}, encoded_here(natural{}, good, 0, step_of()), n, step_of());
        expected[1500] = bad < 0 ? -0x1p127f : 0x1p127f;
        check_same(decoded_here(natural{}, powers, n, step_of()), expected);

        const auto signs = encoded_on<D>(sign{}, x, 0, step_of());
        CHECK_THROWS_WITH(decoded_here(sign{}, signs, n, step_of()), Catch::Contains("byte 8: the scale before it is"));
        const auto buckets = encoded_on<D>(qsgd{}, x, 0, step_of());
        CHECK_THROWS_WITH(decoded_here(qsgd{}, buckets, n, step_of()),
                          Catch::Contains("byte " + std::to_string(11 * 68) + ": a norm of nan"));
        const auto d_signs = added_on<D>(sign{}, signs, zeros, 0, 1),
                   d_buckets = added_on<D>(qsgd{}, buckets, zeros, 0, 1);
        index_t wrong = 0;
        for (index_t i = 0; i < n; ++i) {
            wrong += std::isfinite(d_signs[i]) != (i / 1024 != 1);
            wrong += std::isfinite(d_buckets[i]) != (i / 128 != 11);
        }
        CHECK(wrong == 0);
    }
    // The largest numbers are some.
    const auto most = tensor<float>::filled({300}, std::numeric_limits<float>::max());
    check_same(encoded_on<D>(qsgd{}, most, 0, step_of()), encoded_here(qsgd{}, most, 0, step_of()));
}

/// More spans than the threads of a grid take at once.
template <class D>
void long_buckets() {
    const index_t n = index_t{D::multiprocessors()} * 32 * 8192 + 1500;
    const auto x = spread(n, 450);
    check_same(encoded_on<D>(bf16_stochastic{}, x, 0, step_of()), encoded_here(bf16_stochastic{}, x, 0, step_of()));
    check_same(encoded_on<D>(natural{}, x, 0, step_of()), encoded_here(natural{}, x, 0, step_of()));
    auto whole = x.clone();
    for (index_t i = 0; i < n; ++i) whole[i] = std::round(100 * x[i]);
    check_same(encoded_on<D>(sign{}, whole, 0, step_of()), encoded_here(sign{}, whole, 0, step_of()));
    const auto exact = exact_buckets(n, 0);
    check_same(encoded_on<D>(qsgd{}, exact, 0, step_of()), encoded_here(qsgd{}, exact, 0, step_of()));
    const auto message = encoded_here(natural{}, x, 0, step_of());
    const auto start = drawn<float>({n + 4}, 451);
    auto expected = start.clone();
    natural{}.decode_add(message, subspan(expected.span(), {0, n}), step_of(), 0.5f);
    check_same(added_on<D>(natural{}, message, start, 0, 0.5f), expected);
}

/// Another seed, rank, step or bucket has other random bits; an address that no message may have is refused.
template <class D>
void steps() {
    const auto x = drawn<float>({500}, 460);
    const encode_step first = step_of();
    std::vector<encode_step> others(4, first);
    others[0].seed += std::uint64_t{1} << 40, others[1].rank = 0, others[2].step = 4, others[3].bucket = 0;
    const auto check = [&](const auto& c) {
        const auto message = encoded_on<D>(c, x, 0, first);
        for (const auto& at : others) {
            CHECK(encoded_on<D>(c, x, 0, at) != message);
            check_same(encoded_on<D>(c, x, 0, at), encoded_here(c, x, 0, at));
        }
    };
    check(bf16_stochastic{});
    check(fp16_stochastic{});
    check(natural{});
    CHECK(encoded_on<D>(qsgd{}, x, 0, others[1]) != encoded_on<D>(qsgd{}, x, 0, first));
    CHECK_THROWS_WITH(encoded_on<D>(natural{}, x, 0, first, 2), Catch::Contains("multiple of 4 bytes"));
    CHECK_THROWS_WITH(added_on<D>(bf16{}, bytes(200), drawn<float>({104}, 461), 0, 1, 1),
                      Catch::Contains("multiple of 4 bytes"));
}

/// A compressor whose messages D makes, and the host reads: what the laws of compressors ask of.
template <class There, class Here>
struct encoded_there : Here {
    There there;

    encoded_there(There t, Here h) : Here(std::move(h)), there(std::move(t)) {}

    void encode(std::span<const float> values, message<>& out, const encode_step& at) {
        using D = typename There::device;
        tensor<float> here({static_cast<index_t>(values.size())});
        std::copy(values.begin(), values.end(), here.data());
        const auto d_values = on_device<D>(here);
        message<D> m;
        there.encode(d_values.span(), m, at);
        D::copy_to_host(out.prepare(m.size()).data(), m.bytes().data(), m.size());
    }
};

/// Messages are the host's, byte for byte, but of sums that are in another order; of those the laws hold: lengths,
/// contraction, error bound. Both are refused where they are cut short, too long or damaged.
template <class D>
void contracts() {
    laws::for_every_compressor([](auto maker) {
        const std::string name = maker(cpu{}).name();
        CAPTURE(name);
        const auto make = [&] { return encoded_there(maker(D{}), maker(cpu{})); };
        if (name == "sign" || name.starts_with("qsgd")) {
            laws::check_values(make);
        } else {
            for (const index_t n : {index_t{0}, index_t{1}, index_t{33}, index_t{5000}}) {
                CAPTURE(n);
                const auto x = spread(n, 480);
                check_same(encoded_here(make(), x, 0, step_of()), encoded_here(maker(cpu{}), x, 0, step_of()));
            }
        }
        laws::check_damage(make);
    });
}

template <GridDevice D>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"casts", casts<D>},
                                       {"powers of two", powers_of_two<D>},
                                       {"signs", signs<D>},
                                       {"levels", levels<D>},
                                       {"rounded sums", rounded_sums<D>},
                                       {"sums", sums<D>},
                                       {"error feedback", feedback<D>},
                                       {"not finite", not_finite<D>},
                                       {"long buckets", long_buckets<D>},
                                       {"steps", steps<D>},
                                       {"contracts", contracts<D>}};
    return laws;
}

}  // namespace cairn::codec_laws
