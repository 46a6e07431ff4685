#pragma once
// Gradients on a grid device, summed over ranks by messages that the device makes (parallel/device_hook.hpp): the
// host's sums and the host's states. Ranks are threads; the device's memory is made beforehand, on the thread that owns
// it.

#include "device/cuda/kernel_laws.hpp"

#include <cairn/comm/collectives/staged.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/compress/powersgd_alternating.hpp>
#include <cairn/core/event.hpp>
#include <cairn/parallel/device_sparse_hook.hpp>

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

/// What `steps` steps leave: the sum of the last one, the sums of all steps added up, and every rank's state by name.
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

template <class D, class K>
void same_messages(const K& k) {
    for (const int ranks : {1, 3})
        for (const index_t n : sizes)
            for (const bool feedback : {false, true}) {
                CAPTURE(k.name(), ranks, n, feedback);
                const auto got = on_device<D>(ranks, n, 3, [&](int) -> device_hook<D> {
                    return std::make_unique<device_message_hook<mail<D>, K, D>>(k, n, ranks, feedback);
                });
                const auto wanted = on_host(ranks, n, 3, [&](int) -> host_hook {
                    using C = threads_communicator;
                    if (feedback) return std::make_unique<message_hook<C, error_feedback<K>>>(error_feedback<K>(k), n);
                    return std::make_unique<message_hook<C, K>>(k, n);
                });
                check_same(got, wanted);
            }
}

template <class D>
void messages() {
    same_messages<D>(bf16{});
    same_messages<D>(fp16{});
    same_messages<D>(natural{});
    same_messages<D>(sign{});
    same_messages<D>(qsgd({.levels = 7}));
}

/// As the host's; and what was sent, with what waits, is the sum of all gradients.
template <class D>
void two_phases() {
    constexpr int steps = 4;
    for (const int ranks : {1, 2, 4})
        for (const index_t n : sizes) {
            CAPTURE(ranks, n);
            const auto got = on_device<D>(ranks, n, steps, [&](int r) -> device_hook<D> {
                return std::make_unique<device_two_phase_hook<mail<D>, sign, D>>(sign{}, n, ranks, r);
            });
            check_same(got, on_host(ranks, n, steps, [&](int r) -> host_hook {
                           return std::make_unique<two_phase_hook<threads_communicator, sign>>(sign{}, n, ranks, r);
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

/// topk sends what the host sends, in other bytes.
template <class D>
void sparse() {
    for (const int ranks : {1, 3})
        for (const index_t n : {index_t{0}, index_t{1}, index_t{9001}})
            for (const double ratio : {0.02, 1.0})
                for (const bool feedback : {false, true}) {
                    CAPTURE(ranks, n, ratio, feedback);
                    check_same(on_device<D>(ranks, n, 2,
                                            [&](int) -> device_hook<D> {
                                                return std::make_unique<device_topk_hook<mail<D>, D>>(
                                                    typename device_topk_hook<mail<D>, D>::config{.ratio = ratio,
                                                                                                  .feedback = feedback},
                                                    n, ranks);
                                            }),
                               on_host(ranks, n, 2, [&](int) -> host_hook {
                                   using C = threads_communicator;
                                   const topk k({.ratio = ratio});
                                   if (feedback)
                                       return std::make_unique<message_hook<C, error_feedback<topk>>>(
                                           error_feedback<topk>(k), n);
                                   return std::make_unique<message_hook<C, topk>>(k, n);
                               }));
                    const randomk k({.ratio = ratio, .unbiased = !feedback});
                    check_same(on_device<D>(ranks, n, 2,
                                            [&](int) -> device_hook<D> {
                                                return std::make_unique<device_randomk_hook<mail<D>, D>>(k, !feedback,
                                                                                                         n, feedback);
                                            }),
                               on_host(ranks, n, 2, [&](int) -> host_hook {
                                   using C = threads_communicator;
                                   if (feedback)
                                       return std::make_unique<message_hook<C, error_feedback<randomk>>>(
                                           error_feedback<randomk>(k), n);
                                   return std::make_unique<message_hook<C, randomk>>(k, n);
                               }));
                }
}

/// The k largest by sorting, of values with many that are equal; positions rise; and zeros in their places.
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
                auto d_x = tensor<float, D>::copy_of(x), also = tensor<float, D>::copy_of(x);
                largest_values<D> search(n);
                tensor<std::byte, D> out({search.bytes(k)});
                search.take(d_x.data(), k, out.data(), also.data());
                const auto got = out.on_host();
                bool same = true;
                for (index_t i = 0; i < k; ++i) {
                    const index_t wanted = order[static_cast<std::size_t>(i)];
                    std::uint32_t position;
                    float value;
                    std::memcpy(&position, got.data() + 4 * i, 4);
                    std::memcpy(&value, got.data() + 4 * (k + i), 4);
                    same = same && position == wanted && value == x[wanted];
                }
                CHECK(same);
                for (const index_t i : order) x[i] = 0;
                kernel_laws::check_close(d_x, x, 0);
                kernel_laws::check_close(also, x, 0);
            }
}

/// Deep Gradient Compression by plain loops.
template <class D>
void deep_gradient_compression() {
    constexpr index_t n = 1000, k = 50;
    constexpr int ranks = 2, steps = 4;
    const auto got = on_device<D>(ranks, n, steps, [&](int) -> device_hook<D> {
        return std::make_unique<device_topk_hook<mail<D>, D>>(
            typename device_topk_hook<mail<D>, D>::config{.name = "dgc", .ratio = 0.05, .momentum = 0.9}, n, ranks);
    });
    std::vector<tensor<float>> u, v;
    for (int r = 0; r < ranks; ++r) u.push_back(tensor<float>::zeros({n})), v.push_back(tensor<float>::zeros({n}));
    auto sum = tensor<float>::zeros({n});
    for (int step = 0; step < steps; ++step) {
        std::ranges::fill(sum.span(), 0.0f);
        for (int r = 0; r < ranks; ++r) {
            auto &velocity = u[static_cast<std::size_t>(r)], &all = v[static_cast<std::size_t>(r)];
            const auto g = gradient_of(r, n, step);
            std::vector<std::pair<float, index_t>> order;
            for (index_t i = 0; i < n; ++i) {
                velocity[i] = 0.9f * velocity[i] + g[i];
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

template <class D, class K>
void same_low_rank(int rank, bool alternating, int ranks) {
    CAPTURE(rank, alternating, ranks);
    index_t n = 0;
    const bucket_layout layout = layout_of_shapes(n);
    const int steps = alternating ? 3 : 2;
    const auto got = on_device<D>(ranks, n, steps, [&](int) -> device_hook<D> {
        return std::make_unique<device_powersgd_hook<mail<D>, D>>(powersgd::config{.rank = rank}, layout, n,
                                                                  alternating);
    });
    const auto wanted = on_host(ranks, n, steps, [&](int) -> host_hook {
        return std::make_unique<reducing_hook<threads_communicator, K>>(K({.rank = rank}, layout, n));
    });
    kernel_laws::check_close(got.last, wanted.last, 2e-4);
    REQUIRE(got.state.size() == wanted.state.size());
    for (std::size_t i = 0; i < got.state.size(); ++i) {
        CHECK(got.state[i].first == wanted.state[i].first);
        kernel_laws::check_close(got.state[i].second, wanted.state[i].second, 5e-4);
    }
}

template <class D>
void low_rank() {
    same_low_rank<D, powersgd>(5, false, 2);
    same_low_rank<D, powersgd_alternating>(2, true, 2);
    same_low_rank<D, powersgd>(1, false, 1);
}

/// Steps that are sent dense first; and what waits in residuals joins a gradient that will be.
template <class D>
void dense_steps() {
    constexpr index_t n = 1000;
    const auto got = on_device<D>(2, n, 2, [&](int r) -> device_hook<D> {
        return std::make_unique<dense_warmup<mail<D>, D>>(
            std::make_unique<device_two_phase_hook<mail<D>, sign, D>>(sign{}, n, 2, r), 2);
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
            return std::make_unique<device_two_phase_hook<mail<D>, sign, D>>(sign{}, n, ranks, r);
        },
        [](const tensor<float>& t) { return tensor<float, D>::copy_of(t); }, there{});
    const auto wanted = left(
        [&](int r) -> host_hook {
            return std::make_unique<two_phase_hook<threads_communicator, sign>>(sign{}, n, ranks, r);
        },
        [](const tensor<float>& t) { return t.clone(); }, here{});
    for (int r = 0; r < ranks; ++r)
        check_nearly_all_close(got[static_cast<std::size_t>(r)], wanted[static_cast<std::size_t>(r)]);
}

template <GridDevice D>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"messages", messages<D>},
                                       {"two phases", two_phases<D>},
                                       {"sparse", sparse<D>},
                                       {"largest", largest<D>},
                                       {"dgc", deep_gradient_compression<D>},
                                       {"low rank", low_rank<D>},
                                       {"dense steps", dense_steps<D>},
                                       {"release", released<D>}};
    return laws;
}

}  // namespace cairn::reduction_laws
