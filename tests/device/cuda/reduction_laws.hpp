#pragma once
// Gradients on a grid device, summed over ranks by messages that the device makes (parallel/comm_hook.hpp): the
// host's sums and the host's states, of one list of compressors. Ranks are threads; the device's memory is made
// beforehand, on the thread that owns it.

#include "compress/every_compressor.hpp"
#include "device/cuda/kernel_laws.hpp"

#include <cairn/comm/collectives/staged.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/compress/dgc.hpp>
#include <cairn/compress/powersgd_alternating.hpp>
#include <cairn/core/event.hpp>
#include <cairn/device/grid/codecs.hpp>
#include <cairn/device/grid/low_rank.hpp>
#include <cairn/device/grid/select.hpp>
#include <cairn/parallel/comm_hook.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace cairn::reduction_laws {

template <class D>
using mail = staged_communicator<D, threads_communicator>;
template <class D>
using device_hook = std::unique_ptr<comm_hook<mail<D>, D>>;
using host_hook = std::unique_ptr<comm_hook<threads_communicator>>;

inline tensor<float> gradient_of(int rank, index_t n, int step) {
    tensor<float> g({n});
    const random_stream random{11, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(step)};
    for (index_t i = 0; i < n; ++i) g[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
    return g;
}

inline encode_step step_of(int rank, int step) { return {.seed = 3, .rank = rank, .step = step, .bucket = 2}; }

/// Results of `steps` steps: the sum of the last one, the sums of all steps added up, and every rank's state by name.
struct outcome {
    tensor<float> last;
    std::vector<double> total;
    std::vector<std::pair<std::string, tensor<float>>> state;
};

inline void add_to(outcome& o, const tensor<float>& sum) {
    o.total.resize(static_cast<std::size_t>(sum.size()));
    for (index_t i = 0; i < sum.size(); ++i) o.total[static_cast<std::size_t>(i)] += double(sum[i]);
}

/// make(rank): the method of one rank.
template <class Make>
outcome on_host(int ranks, index_t n, int steps, Make make) {
    std::vector<host_hook> methods;
    for (int r = 0; r < ranks; ++r) methods.push_back(make(r));
    outcome o;
    run_ranks(ranks, [&](threads_communicator& c) {
        for (int step = 0; step < steps; ++step) {
            tensor<float> g = gradient_of(c.rank(), n, step);
            methods[static_cast<std::size_t>(c.rank())]->reduce(c, g.span(), step_of(c.rank(), step));
            if (c.rank() != 0) continue;
            add_to(o, g);
            o.last = std::move(g);
        }
    });
    for (int r = 0; r < ranks; ++r)
        for (auto& [name, t] : methods[static_cast<std::size_t>(r)]->tensors())
            o.state.emplace_back(concat("rank", r, '/', name), t.clone());
    return o;
}

/// The same on D. All ranks must end with the same bits, and reduce() must not ask for memory of D.
template <class D, class Make>
outcome on_device(int ranks, index_t n, int steps, Make make) {
    std::vector<device_hook<D>> methods;
    std::vector<tensor<float, D>> gradients;
    for (int r = 0; r < ranks; ++r) methods.push_back(make(r));
    for (int i = 0; i < ranks * steps; ++i)
        gradients.push_back(tensor<float, D>::copy_of(gradient_of(i / steps, n, i % steps)));
    const event<D> made;
    const auto asked = D::memory().use_of(memory_category::communication).live;
    std::vector<tensor<float>> sums(gradients.size());
    run_ranks(ranks, [&](threads_communicator& inner) {
        made.wait();
        mail<D> c(inner.split(0, inner.rank()));
        for (int step = 0; step < steps; ++step) {
            const auto at = static_cast<std::size_t>(c.rank() * steps + step);
            methods[static_cast<std::size_t>(c.rank())]->reduce(c, gradients[at].span(), step_of(c.rank(), step));
            sums[at] = tensor<float>({n});
            D::copy_to_host(sums[at].data(), gradients[at].data(), sums[at].bytes());
        }
    });
    CHECK(D::memory().use_of(memory_category::communication).live == asked);
    outcome o;
    for (int step = 0; step < steps; ++step) {
        const tensor<float>& first = sums[static_cast<std::size_t>(step)];
        for (int r = 1; r < ranks; ++r)
            kernel_laws::check_close(sums[static_cast<std::size_t>(r * steps + step)], first, 0);
        add_to(o, first);
    }
    o.last = std::move(sums[static_cast<std::size_t>(steps - 1)]);
    for (int r = 0; r < ranks; ++r)
        for (auto& [name, t] : methods[static_cast<std::size_t>(r)]->tensors())
            o.state.emplace_back(concat("rank", r, '/', name), t.on_host());
    return o;
}

/// Values on the fence between two codes may fall to the other side: one in ten thousand.
inline void check_nearly_all_close(const tensor<float>& got, const tensor<float>& wanted) {
    REQUIRE(got.size() == wanted.size());
    index_t apart = 0;
    for (index_t i = 0; i < got.size(); ++i)
        apart += !(std::abs(got[i] - wanted[i]) <= 1e-5f * (1 + std::abs(wanted[i])));
    CHECK(apart <= got.size() / 10000);
}

inline void check_same(const outcome& got, const outcome& wanted) {
    check_nearly_all_close(got.last, wanted.last);
    REQUIRE(got.state.size() == wanted.state.size());
    for (std::size_t i = 0; i < got.state.size(); ++i) {
        CHECK(got.state[i].first == wanted.state[i].first);
        check_nearly_all_close(got.state[i].second, wanted.state[i].second);
    }
}

inline const std::vector<index_t> sizes{0, 7, 129, 9001};

template <class C, class K>
std::unique_ptr<comm_hook<C, typename K::device>> messages_of(K k, index_t n, int ranks, bool feedback) {
    using with = error_feedback<K>;
    if (feedback) return std::make_unique<message_hook<C, with>>(with(std::move(k)), n, ranks);
    return std::make_unique<message_hook<C, K>>(std::move(k), n, ranks);
}

/// make(device) → the compressor there.
template <class D, class Make>
void same_messages(const std::vector<index_t>& of_sizes, int steps, Make make) {
    for (const int ranks : {1, 3})
        for (const index_t n : of_sizes)
            for (const bool feedback : {false, true}) {
                CAPTURE(make(cpu{}).name(), ranks, n, feedback);
                check_same(on_device<D>(ranks, n, steps,
                                        [&](int) { return messages_of<mail<D>>(make(D{}), n, ranks, feedback); }),
                           on_host(ranks, n, steps, [&](int) {
                               return messages_of<threads_communicator>(make(cpu{}), n, ranks, feedback);
                           }));
            }
}

/// Every compressor of the list.
template <class D>
void messages() {
    laws::for_every_compressor([](auto make) { same_messages<D>({0, 1, 129, 9001}, 3, make); });
    // The host codes positions in few bits.
    same_messages<D>({9001}, 2, []<class E>(E) { return topk<E>({.ratio = 0.02}); });
}

/// As the host's; and what was sent, with what waits, is the sum of all gradients.
template <class D>
void two_phases() {
    constexpr int steps = 4;
    for (const int ranks : {1, 2, 4})
        for (const index_t n : sizes) {
            CAPTURE(ranks, n);
            const auto got = on_device<D>(ranks, n, steps, [&](int r) -> device_hook<D> {
                return std::make_unique<two_phase_hook<mail<D>, sign<D>>>(sign<D>{}, n, ranks, r);
            });
            check_same(got, on_host(ranks, n, steps, [&](int r) -> host_hook {
                           return std::make_unique<two_phase_hook<threads_communicator, sign<>>>(sign{}, n, ranks, r);
                       }));
            auto all = got.total;
            for (const auto& [name, t] : got.state) {
                const bool server = name.ends_with("server/residual");
                const int rank = std::stoi(name.substr(4));
                const int part = server ? rank : std::stoi(name.substr(name.find("worker/") + 7));
                const index_t begin = chunk_of(n, ranks, part).begin;
                for (index_t i = 0; i < t.size(); ++i)
                    all[static_cast<std::size_t>(begin + i)] += double(t[i]) * (server ? ranks : 1);
            }
            double worst = 0;
            for (int r = 0; r < ranks; ++r)
                for (int s = 0; s < steps; ++s) {
                    const auto g = gradient_of(r, n, s);
                    for (index_t i = 0; i < n; ++i) all[static_cast<std::size_t>(i)] -= double(g[i]);
                }
            for (const double rest : all) worst = std::max(worst, std::abs(rest));
            CHECK(worst < 1e-4);
        }
}

/// The k largest by sorting, of values with many that are equal; positions rise. The message is the host's with plain
/// positions, byte for byte.
template <class D>
void largest() {
    for (const index_t n : {index_t{1}, index_t{5000}, index_t{12'300}})
        for (const int levels : {1, 3, 1000})
            for (const index_t k : {index_t{1}, n / 7 + 1, n}) {
                CAPTURE(n, levels, k);
                auto x = tensor<float>::zeros({n});
                const random_stream random{5, 1, 1};
                for (index_t i = 0; i < n; ++i)
                    x[i] = static_cast<float>(
                               random.below(static_cast<std::uint64_t>(levels), static_cast<std::uint64_t>(i))) *
                           (i % 3 ? 0.37f : -0.37f);
                std::vector<index_t> order(static_cast<std::size_t>(n));
                for (index_t i = 0; i < n; ++i) order[static_cast<std::size_t>(i)] = i;
                std::ranges::stable_sort(order, [&](index_t a, index_t b) { return std::abs(x[a]) > std::abs(x[b]); });
                order.resize(static_cast<std::size_t>(k));
                std::ranges::sort(order);
                const auto d_x = tensor<float, D>::copy_of(x);
                selection<D> chosen;
                chosen.prepare(n, k);
                select_largest(D{}, d_x.span(), k, chosen);
                const auto positions = chosen.positions.on_host();
                const auto values = chosen.values.on_host();
                bool same = chosen.count() == k;
                for (index_t i = 0; i < k; ++i) {
                    const index_t wanted = order[static_cast<std::size_t>(i)];
                    same = same && positions[i] == wanted && values[i] == x[wanted];
                }
                CHECK(same);
                for (const sparse_value type : {sparse_value::float32, sparse_value::bfloat16}) {
                    message<D> there;
                    message<> here;
                    selection<cpu> wanted;
                    select_largest(cpu{}, std::as_const(x).span(), k, wanted);
                    encode_sparse<plain_positions>(chosen, type, there);
                    encode_sparse<plain_positions>(wanted, type, here);
                    std::vector<std::byte> got(static_cast<std::size_t>(there.size()));
                    D::copy_to_host(got.data(), there.bytes().data(), there.size());
                    CHECK(std::ranges::equal(got, here.bytes()));
                }
            }
}

/// Deep Gradient Compression by plain loops.
template <class D>
void same_as_paper(double clip) {
    CAPTURE(clip);
    constexpr index_t n = 1000, k = 50;
    constexpr int ranks = 2, steps = 4;
    const auto got = on_device<D>(ranks, n, steps, [&](int) -> device_hook<D> {
        return std::make_unique<message_hook<mail<D>, dgc<D>>>(
            dgc<D>({.ratio = 0.05, .momentum = 0.9, .clip = clip, .ranks = ranks}), n, ranks);
    });
    std::vector<tensor<float>> u, v;
    for (int r = 0; r < ranks; ++r) u.push_back(tensor<float>::zeros({n})), v.push_back(tensor<float>::zeros({n}));
    auto sum = tensor<float>::zeros({n});
    for (int step = 0; step < steps; ++step) {
        std::ranges::fill(sum.span(), 0.0f);
        for (int r = 0; r < ranks; ++r) {
            auto &velocity = u[static_cast<std::size_t>(r)], &all = v[static_cast<std::size_t>(r)];
            const auto g = gradient_of(r, n, step);
            double squares = 0;
            for (index_t i = 0; i < n; ++i) squares += double(g[i]) * double(g[i]);
            const double allowed = clip / std::sqrt(double(ranks)), norm = std::sqrt(squares);
            const float shrink = clip > 0 && norm > allowed ? static_cast<float>(allowed / norm) : 1.0f;
            std::vector<std::pair<float, index_t>> order;
            for (index_t i = 0; i < n; ++i) {
                velocity[i] = 0.9f * velocity[i] + shrink * g[i];
                all[i] += velocity[i];
                order.emplace_back(-std::abs(all[i]), i);
            }
            std::ranges::sort(order);
            for (index_t i = 0; i < k; ++i) {
                const index_t p = order[static_cast<std::size_t>(i)].second;
                sum[p] += all[p];
                all[p] = velocity[p] = 0;
            }
        }
    }
    check_nearly_all_close(got.last, sum);
    REQUIRE(got.state.size() == 4);
    CHECK(got.state[0].first == "rank0/velocity");
    CHECK(got.state[3].first == "rank1/accumulated");
    check_nearly_all_close(got.state[0].second, u[0]);
    check_nearly_all_close(got.state[3].second, v[1]);
}

template <class D>
void deep_gradient_compression() {
    same_as_paper<D>(0);
    same_as_paper<D>(20);
}

/// Shapes around tiles and blocks, vectors and gaps among them.
inline bucket_layout layout_of_shapes(index_t& n) {
    bucket_layout layout;
    n = 3;  // a gap
    for (const shape& s : {shape{65, 5, 5, 3}, shape{7}, shape{8, 300}, shape{130, 20}, shape{2, 2}}) {
        layout.push_back({concat("p", layout.size()), n, s});
        n += s.size();
    }
    n += 5000;  // in several pieces
    return layout;
}

/// make(device, layout, n) → the compressor there.
template <class D, class Make>
void same_low_rank(int ranks, int steps, Make make) {
    index_t n = 0;
    const bucket_layout layout = layout_of_shapes(n);
    CAPTURE(make(cpu{}, layout, n).name(), ranks);
    const auto method = [&]<class C, class E>(std::type_identity<C>, E e) {
        auto k = make(e, layout, n);
        return std::make_unique<reducing_hook<C, decltype(k)>>(std::move(k));
    };
    const auto got = on_device<D>(ranks, n, steps,
                                  [&](int) -> device_hook<D> { return method(std::type_identity<mail<D>>{}, D{}); });
    const auto wanted = on_host(
        ranks, n, steps, [&](int) -> host_hook { return method(std::type_identity<threads_communicator>{}, cpu{}); });
    kernel_laws::check_close(got.last, wanted.last, 2e-4);
    REQUIRE(got.state.size() == wanted.state.size());
    for (std::size_t i = 0; i < got.state.size(); ++i) {
        CHECK(got.state[i].first == wanted.state[i].first);
        kernel_laws::check_close(got.state[i].second, wanted.state[i].second, 5e-4);
    }
}

template <class D>
void low_rank() {
    const auto of_rank = [](int rank) {
        return [=]<class E>(E, const bucket_layout& layout, index_t n) { return powersgd<E>({rank}, layout, n); };
    };
    same_low_rank<D>(2, 2, of_rank(5));
    same_low_rank<D>(1, 2, of_rank(1));
    same_low_rank<D>(2, 3, []<class E>(E, const bucket_layout& layout, index_t n) {
        return powersgd_alternating<E>({2}, layout, n);
    });
}

/// Steps that are sent dense first; and what waits in residuals joins a gradient that will be.
template <class D>
void dense_steps() {
    constexpr index_t n = 1000;
    const auto got = on_device<D>(2, n, 2, [&](int r) -> device_hook<D> {
        return std::make_unique<dense_warmup<mail<D>, D>>(
            std::make_unique<two_phase_hook<mail<D>, sign<D>>>(sign<D>{}, n, 2, r), 2);
    });
    for (index_t i = 0; i < n; ++i) CHECK(got.last[i] == gradient_of(0, n, 1)[i] + gradient_of(1, n, 1)[i]);
}

template <class D>
void released() {
    constexpr index_t n = 1000;
    constexpr int ranks = 2;
    const auto left = [&](auto make, auto copy, auto back) {
        std::vector<decltype(make(0))> methods;
        std::vector<decltype(copy(gradient_of(0, n, 0)))> g;
        for (int r = 0; r < ranks; ++r) methods.push_back(make(r)), g.push_back(copy(gradient_of(r, n, 0)));
        const event<D> made;
        run_ranks(ranks, [&](threads_communicator& inner) {
            made.wait();
            const auto r = static_cast<std::size_t>(inner.rank());
            auto c = back.over(inner);
            methods[r]->reduce(c, g[r].span(), step_of(inner.rank(), 0));
            back.wait(g[r]);
        });
        std::vector<tensor<float>> all;
        for (int r = 0; r < ranks; ++r) {
            methods[static_cast<std::size_t>(r)]->flush_residual(g[static_cast<std::size_t>(r)].span());
            all.push_back(g[static_cast<std::size_t>(r)].on_host());
            for (const auto& [name, t] : methods[static_cast<std::size_t>(r)]->tensors()) {
                const auto rest = t.on_host();
                for (index_t i = 0; i < rest.size(); ++i) CHECK(rest[i] == 0);
            }
        }
        return all;
    };
    struct there {
        mail<D> over(threads_communicator& c) const { return mail<D>(c.split(0, c.rank())); }
        void wait(const tensor<float, D>& t) const { (void)t.on_host(); }
    };
    struct here {
        threads_communicator over(threads_communicator& c) const { return c.split(0, c.rank()); }
        void wait(const tensor<float>&) const {}
    };
    const auto got = left(
        [&](int r) -> device_hook<D> {
            return std::make_unique<two_phase_hook<mail<D>, sign<D>>>(sign<D>{}, n, ranks, r);
        },
        [](const tensor<float>& t) { return tensor<float, D>::copy_of(t); }, there{});
    const auto wanted = left(
        [&](int r) -> host_hook {
            return std::make_unique<two_phase_hook<threads_communicator, sign<>>>(sign{}, n, ranks, r);
        },
        [](const tensor<float>& t) { return t.clone(); }, here{});
    for (int r = 0; r < ranks; ++r)
        check_nearly_all_close(got[static_cast<std::size_t>(r)], wanted[static_cast<std::size_t>(r)]);
}

template <GridDevice D>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"messages", messages<D>}, {"two phases", two_phases<D>},
                                       {"largest", largest<D>},   {"dgc", deep_gradient_compression<D>},
                                       {"low rank", low_rank<D>}, {"dense steps", dense_steps<D>},
                                       {"release", released<D>}};
    return laws;
}

}  // namespace cairn::reduction_laws
