// Sums over a model are made by parameter, in path order: stages have the norms, and take the steps, of the whole
// model, bit for bit; copies of a parameter are counted once.

#include "catch.hpp"
#include "optim/small_model.hpp"

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/optim/clip.hpp>
#include <cairn/optim/lamb.hpp>
#include <cairn/optim/lars.hpp>
#include <cairn/optim/sgd.hpp>

#include <map>

namespace cairn {

namespace {

using values_by_path = std::map<std::string, std::vector<float>>;

/// Parameters with numbers of their own, gradients too.
struct parameters_of {
    std::vector<std::unique_ptr<parameter<float>>> owned;
    parameter_list<float> list;

    parameter<float>& add(const std::string& name, const shape& s, bool decay, parameter_layout layout = {}) {
        owned.push_back(
            std::make_unique<parameter<float>>(parameter<float>{.shape = s,
                                                                .init = {initializer::distribution::normal, 0.5, 0.1},
                                                                .decay = decay,
                                                                .layout = std::move(layout)}));
        list.push_back({name, owned.back().get()});
        return *owned.back();
    }
    void set_gradients(std::uint32_t step) {
        for (const auto& [name, p] : list)
            fill(p->grad.span(), {initializer::distribution::normal, 1.0, 0.0},
                 stream_of_path(1, path_hash(name), "gradients", step), p->shape, p->layout);
    }
    void keep(values_by_path& all) const {
        for (const auto& [name, p] : list) all[name].assign(p->value.span().begin(), p->value.span().end());
    }
};

constexpr int layer_count = 6;

/// Layers [begin, end) of a model, from one value to more than a piece of a sum.
parameters_of some_layers(int begin, int end) {
    const std::array<shape, layer_count> weights{shape{3, 3, 5, 7}, {257, 301}, {1}, {40, 131}, {0}, {33}};
    parameters_of all;
    for (int i = begin; i < end; ++i) {
        all.add(concat("layer", i, "/weight"), weights[static_cast<std::size_t>(i)], true);
        all.add(concat("layer", i, "/bias"), {i + 3}, false);
    }
    return all;
}

/// Optimizer O on the parameters of one stage; `gather` gives the sums of all.
template <class O>
struct of_stage {
    O inner;
    range part;
    std::function<std::vector<double>(std::vector<double>)> gather;
    static constexpr const char* name = "stage";
    using config = typename O::config;
    template <class T, Device D>
    using state = typename O::template state<T, D>;
    template <class T>
        requires ElementwiseOptimizer<O, T>
    auto rule(const update_context& at) const { return inner.template rule<T>(at); }
    template <class T, Device D>
        requires(!ElementwiseOptimizer<O, T>)
    void update(tensor<T, D>& theta, tensor<T, D>& grad, state<T, D>& s, const update_context& at) const {
        inner.update(theta, grad, s, at);
    }
    void check() const {}
    range owned() const { return part; }
    std::vector<double> over_all(std::vector<double> mine) const { return gather(std::move(mine)); }
};

constexpr int steps = 3;

template <class O>
std::vector<double> train(O rule, parameters_of& all, std::uint64_t seed, values_by_path& after) {
    arena<float> weights(all.list, seed);
    if constexpr (requires { rule.part; }) rule.part = {0, weights.values().size()};
    bound_optimizer o(rule, weights);
    std::vector<double> norms;
    for (std::uint32_t step = 0; step < steps; ++step) {
        all.set_gradients(step);
        norms.push_back(o.step(0.1));
    }
    all.keep(after);
    return norms;
}

template <class O>
void check_stages(const O& rule) {
    parameters_of whole = some_layers(0, layer_count);
    values_by_path expected;
    const std::vector<double> norms = train(rule, whole, 5, expected);
    for (int cut = 1; cut < layer_count; ++cut) {
        CAPTURE(O::name, cut);
        values_by_path of_stages;
        std::vector<double> norms_of[2];
        std::mutex one_at_a_time;
        run_ranks(2, [&](threads_communicator& c) {
            parameters_of mine = c.rank() == 0 ? some_layers(0, cut) : some_layers(cut, layer_count);
            const auto gather = [&](const std::vector<double>& sums) {
                std::vector<double> all(2 * layer_count);
                const index_t first = c.rank() == 0 ? 0 : 2 * cut;
                std::copy(sums.begin(), sums.end(), all.begin() + first);
                all_gather(c, std::span<double>(all), {{0, 2 * cut}, {2 * cut, 2 * (layer_count - cut)}});
                return all;
            };
            values_by_path after;
            const auto got = train(of_stage<O>{rule, {}, gather}, mine, 5, after);
            const std::scoped_lock lock(one_at_a_time);
            norms_of[c.rank()] = got;
            of_stages.merge(after);
        });
        CHECK(norms_of[0] == norms);
        CHECK(norms_of[1] == norms);
        CHECK(of_stages == expected);
    }
}

}  // namespace

TEST_CASE("identity: two stages have the norms of the whole model and take its steps, bit for bit", "[identity]") {
    check_stages(sgd{});
    check_stages(clipped{sgd{}, by_norm{20}});
    check_stages(clipped{lars{}, by_norm{20}});
    check_stages(clipped{lamb{}, by_norm{20}});
}

TEST_CASE("identity: sums by parameter have the bits of the parameter alone on any number of threads", "[identity]") {
    tensor<float> x({300'000});
    fill(x.span(), {initializer::distribution::normal, 2.0, 0.5}, {1, 0, 0});
    const std::vector<range> parts{{0, 17}, {32, 0}, {32, 70'000}, {70'048, 1}, {70'064, 65'536}, {140'000, 160'000}};
    const squares_by_parameter<> squares(parts);
    const int before = threads();
    for (const int n : {1, 2, 3}) {
        set_threads(n);
        const std::vector<double> sums = squares(x.data());
        REQUIRE(sums.size() == parts.size());
        for (std::size_t p = 0; p < parts.size(); ++p)
            CHECK(sums[p] == sum_of_squares(cpu{}, parts[p].count, x.data() + parts[p].begin));
    }
    set_threads(before);
    CHECK(sum_in_path_order(std::vector<double>{1e16, 1, 1}) == 1e16);  // one after the other
    CHECK(squares_by_parameter<>({})(x.data()).empty());
}

// Two ranks have the upper and the lower rows of each weight, and copies of each bias.
TEST_CASE("identity: slices make the norm of the whole, copies are counted once", "[identity]") {
    parameters_of whole;
    whole.add("a/weight", {12, 7}, true);
    whole.add("a/bias", {9}, false);
    whole.add("b/weight", {6, 3}, true);
    values_by_path expected;
    const std::vector<double> norms = train(clipped{sgd{}, by_norm{2}}, whole, 5, expected);
    run_ranks(2, [&](threads_communicator& c) {
        parameters_of mine;
        const auto slice = [&](const std::string& name, index_t rows, index_t columns) {
            mine.add(name, {rows / 2, columns}, true, {.global = {rows, columns}, .begin = {c.rank() * rows / 2, 0}});
        };
        slice("a/weight", 12, 7);
        mine.add("a/bias", {9}, false, {.replicated_over = {"tensor"}});
        slice("b/weight", 6, 3);
        const auto over_ranks = [&](std::vector<double> sums) {
            for (std::size_t i = 0; i < sums.size(); ++i)
                if (!mine.list[i].p->layout.replicated_over.empty() && c.rank() > 0) sums[i] = 0;
            all_reduce(c, std::span<double>(sums));
            return sums;
        };
        values_by_path after;
        const auto got = train(of_stage<clipped<sgd>>{{sgd{}, by_norm{2}}, {}, over_ranks}, mine, 5, after);
        for (std::size_t i = 0; i < norms.size(); ++i)
            require(std::abs(got[i] - norms[i]) < 1e-12 * norms[i], "norm ", got[i], " is not ", norms[i]);
        for (const auto& [name, p] : mine.list)
            for (index_t i = 0; i < p->value.size(); ++i) {
                const float there = expected[name][static_cast<std::size_t>(p->layout.global_index(p->shape, i))];
                require(std::abs(after[name][static_cast<std::size_t>(i)] - there) < 1e-6f, name, ' ', i);
            }
    });
}

}  // namespace cairn
