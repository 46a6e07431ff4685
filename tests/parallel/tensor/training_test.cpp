// A transformer whose tensors are cut over ranks against one rank: gradients, losses and steps of SGD with clipping,
// Adam and LAMB, with dropout, a head by the vocabulary, with whole sequences and with sequences in parts.

#include "catch.hpp"
#include "messages.hpp"
#include "parallel/tensor/split_layers.hpp"

#include <cairn/models/transformer.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/optim/adam.hpp>
#include <cairn/optim/clip.hpp>
#include <cairn/optim/lamb.hpp>
#include <cairn/optim/lars.hpp>
#include <cairn/optim/sgd.hpp>
#include <cairn/parallel/sharded.hpp>
#include <cairn/parallel/slice_sums.hpp>
#include <cairn/parallel/tensor/transformer_parts.hpp>
#include <cairn/parallel/tensor/vocabulary_cross_entropy.hpp>

#include <optional>

namespace cairn {

namespace split_training_test {

using namespace split_layers;
using ranks = threads_communicator;

/// Heads, hidden numbers and vocabulary are uneven on four ranks.
transformer_config network() {
    return {.vocab_size = 11,
            .max_length = 8,
            .embedding_dim = 10,
            .heads = 5,
            .blocks = 2,
            .ffn_dim = 14,
            .dropout = 0.2,
            .attention_dropout = 0.1};
}

struct batch {
    tensor<double> x{shape{3, 8}};
    tensor<std::int32_t> labels{shape{3, 8}};

    explicit batch(std::uint32_t step) {
        const random_stream random{8, 1, step};
        for (index_t i = 0; i < x.size(); ++i) {
            x[i] = static_cast<double>(random.below(11, static_cast<std::uint64_t>(i)));
            labels[i] = static_cast<std::int32_t>(random.below(11, static_cast<std::uint64_t>(i + 100)));
        }
    }
};

/// Losses and norms of the gradients of some steps, the gradients of the first, the values at the end; whole ones.
struct run {
    std::vector<double> losses, norms;
    std::map<std::string, tensor<double>> gradients, values;
};

/// Steps of any network on any loss, a micro-batch for each sample, so that gradients add up. `gradients_done(step,
/// loss)` is called before each update.
template <class Loss, class Optimizer, class Done>
void train(sequential<double>& net, arena<double>& weights, const Loss& loss, Optimizer& o, run& r,
           Done&& gradients_done, range samples = {0, 3}) {
    for (std::uint32_t step = 0; step < 4; ++step) {
        const batch b(step);
        weights.zero_grad();
        double sum = 0;
        for (index_t m = samples.begin; m < samples.end(); ++m) {
            saved_tensors<double> saved;
            const pass_context p{.random = {.seed = 2, .step = step, .first_sample = m}, .input_gradient = false};
            auto [value, dy] = loss(net.forward(b.x.slice(8 * m, {1, 8}), saved, p), b.labels.slice(8 * m, {1, 8}));
            for_each([](double& d) { d /= 3; }, dy);
            net.backward(std::move(dy), saved, p);
            sum += value / 3;
        }
        gradients_done(step, sum);
        r.losses.push_back(sum);
        r.norms.push_back(o.step(0.05));
    }
}

template <class O>
run train_alone(const O& rule) {
    sequential<double> net = transformer<double>(network());
    arena<double> weights(net.parameters(), 5);
    bound_optimizer o(rule, weights);
    run r;
    train(net, weights, cross_entropy{}, o, r, [&](std::uint32_t step, double&) {
        if (step == 0)
            for (const auto& [name, p] : weights.parameters()) r.gradients.emplace(name, p->grad.clone());
    });
    for (const auto& [name, p] : weights.parameters()) r.values.emplace(name, p->value.clone());
    return r;
}

template <class O>
run train_together(int p, const O& rule, sequence_layout sequences) {
    run all;
    run_ranks(p, [&](threads_communicator& c) {
        channel<ranks> over(c);
        ranks_axis axis(over);
        sequential<double> net =
            transformer<double, cpu>(network(), tensor_transformer_parts<double, ranks>{&axis, sequences});
        arena<double> weights(net.parameters(), 5);
        const slice_sums<ranks> slices(over, weights, "tensor");
        bound_optimizer o(sharded<O>{rule,
                                     {0, weights.values().size()},
                                     [&](auto by_parameter) { return slices.by_parameter(by_parameter), by_parameter; },
                                     [&](std::span<double> of_one) { slices.of_slices(of_one); }},
                          weights);
        run mine;
        const vocabulary_cross_entropy<ranks> loss{&axis, network().vocab_size};
        train(net, weights, loss, o, mine, [&](std::uint32_t step, double&) {
            if (step == 0)
                for (const auto& [name, q] : weights.parameters())
                    mine.gradients.emplace(name, gather_global(c, q->grad, q->layout, 0, name));
        });
        for (const auto& [name, q] : weights.parameters()) {
            if (q->layout.is_whole()) require_equal_bits(axis, q->value, name);
            mine.values.emplace(name, gather_global(c, q->value, q->layout, 0, name));
        }
        tensor<double> numbers({8});
        for (std::size_t i = 0; i < 4; ++i)
            numbers[index_t(i)] = mine.losses[i], numbers[index_t(i) + 4] = mine.norms[i];
        require_equal_bits(axis, numbers, "losses and norms");
        if (c.rank() == 0) all = std::move(mine);
    });
    return all;
}

double apart(const std::vector<double>& a, const std::vector<double>& b) {
    double most = a.size() == b.size() ? 0 : 1e300;
    for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]) / std::abs(b[i]));
    return most;
}

template <class O>
void check_training(const O& rule, double tolerance = 1e-12) {
    const run expected = train_alone(rule);
    for (const int p : {2, 4})
        for (const sequence_layout sequences : {sequence_layout::whole, sequence_layout::parts}) {
            CAPTURE(p, sequences == sequence_layout::parts);
            const run got = train_together(p, rule, sequences);
            CHECK(apart(got.losses, expected.losses) <= tolerance);
            CHECK(apart(got.norms, expected.norms) <= tolerance);
            REQUIRE(got.values.size() == expected.values.size());
            double gradients = 0, values = 0, most = 0;
            for (const auto& [name, g] : expected.gradients)
                for (index_t i = 0; i < g.size(); ++i) most = std::max(most, std::abs(g[i]));
            for (const auto& [name, g] : expected.gradients) {
                CAPTURE(name);
                REQUIRE(got.gradients.at(name).shape() == g.shape());
                for (index_t i = 0; i < g.size(); ++i)
                    gradients = std::max(gradients, std::abs(got.gradients.at(name)[i] - g[i]) / most);
                values = std::max(values, difference(got.values.at(name), expected.values.at(name)));
            }
            CHECK(gradients <= 1e-12);
            CHECK(values <= tolerance);
        }
}

}  // namespace split_training_test

using namespace split_training_test;

TEST_CASE("split transformer: SGD with clipping takes the steps of one rank", "[tensor_parallel]") {
    const run free = train_alone(sgd{{.momentum = 0.9}});
    check_training(clipped{sgd{{.momentum = 0.9}}, by_norm{free.norms[0] / 3}});  // which clips
}

TEST_CASE("split transformer: Adam takes the steps of one rank", "[tensor_parallel]") {
    // Adam divides by |g|: of a gradient that is 0 but for rounding, the key's bias, it makes a whole step.
    check_training(adam{{.eps = 1e-3}}, 1e-10);
}

TEST_CASE("split transformer: LAMB and LARS take norms of whole parameters", "[tensor_parallel]") {
    check_training(clipped{lamb{{.eps = 1e-3}}, by_norm{1}}, 1e-10);
    check_training(lars{}, 1e-11);
}

TEST_CASE("split transformer: on a mesh of data and tensor ranks Adam with ZeRO-1 takes the steps of one rank",
          "[tensor_parallel]") {
    const clipped rule{adam{{.eps = 1e-3}}, by_norm{1}};
    using optimizer = sharded<std::remove_const_t<decltype(rule)>>;
    const run expected = train_alone(rule);
    std::vector<double> losses, norms;
    double values = 0;
    run_ranks(4, [&](threads_communicator& c) {
        ranks line = c.split(c.rank() / 2, c.rank()), column = c.split(c.rank() % 2, c.rank());
        channel<ranks> tensor_ranks(line), data_ranks(column);
        ranks_axis axis(tensor_ranks);
        sequential<double> net =
            transformer<double, cpu>(network(), tensor_transformer_parts<double, ranks>{&axis, sequence_layout::parts});
        arena<double> weights(net.parameters(), 5);
        const slice_sums<ranks> slices(tensor_ranks, weights, "tensor");
        const std::vector<range> owners = owners_of(weights, 2, false);
        const auto over_mesh = [&](auto by_parameter) {
            all_reduce(data_ranks.host, std::span<double>(by_parameter));
            return slices.by_parameter(by_parameter), by_parameter;
        };
        bound_optimizer o(optimizer{rule, owners[static_cast<std::size_t>(data_ranks.rank())], over_mesh}, weights);
        run mine;
        const vocabulary_cross_entropy<ranks> loss{&axis, network().vocab_size};
        const auto gradients_done = [&](std::uint32_t, double& sum) {
            all_reduce(data_ranks.device, weights.grads().span());
            all_reduce(data_ranks.host, std::span<double>(&sum, 1));
        };
        struct shares_values {  // an optimizer's step, and what the others have updated
            bound_optimizer<optimizer, double>& o;
            channel<ranks>& over;
            arena<double>& weights;
            const std::vector<range>& owners;
            double step(double lr) {
                const double norm = o.step(lr);
                share_values(over, weights, owners);
                return norm;
            }
        } all_step{o, data_ranks, weights, owners};
        train(net, weights, loss, all_step, mine, gradients_done, shard_of(3, 2, data_ranks.rank()));
        for (const auto& [name, q] : weights.parameters()) {
            const tensor<double> whole = gather_global(c, q->value, q->layout, 0, name);
            if (c.rank() == 0) values = std::max(values, difference(whole, expected.values.at(name)));
        }
        if (c.rank() == 0) losses = mine.losses, norms = mine.norms;
    });
    CHECK(apart(losses, expected.losses) <= 1e-12);
    CHECK(apart(norms, expected.norms) <= 1e-10);
    CHECK(values <= 1e-10);
}

TEST_CASE("split transformer: a layer-wise optimizer refuses slices whose norms it cannot have", "[tensor_parallel]") {
    const std::string message = test::message_of([] {
        run_ranks(2, [](threads_communicator& c) {
            channel<ranks> over(c);
            ranks_axis axis(over);
            sequential<double> net =
                transformer<double, cpu>(network(), tensor_transformer_parts<double, ranks>{&axis});
            arena<double> weights(net.parameters(), 5);
            bound_optimizer o(lamb{}, weights);
        });
    });
    CHECK(test::contains(message, "lamb: parameter tokens/weight is a slice"));
}

TEST_CASE("split transformer: paths and shapes are those of the whole", "[tensor_parallel]") {
    run_ranks(4, [&](threads_communicator& c) {
        channel<ranks> over(c);
        ranks_axis axis(over);
        sequential<double> whole = transformer<double>(network());
        const auto all = whole.parameters();
        for (const sequence_layout sequences : {sequence_layout::whole, sequence_layout::parts}) {
            sequential<double> net =
                transformer<double, cpu>(network(), tensor_transformer_parts<double, ranks>{&axis, sequences});
            const auto here = net.parameters();
            require(here.size() == all.size(), here.size(), " parameters, not ", all.size());
            for (std::size_t i = 0; i < here.size(); ++i) {
                const auto& [name, p] = here[i];
                const shape global = p->layout.is_whole() ? p->shape : p->layout.global;
                require(name == all[i].name && global == all[i].p->shape, name, ' ', global, " is not ", all[i].name,
                        ' ', all[i].p->shape);
                require(p->decay == all[i].p->decay, name, " decays otherwise");
                require(p->layout.is_whole() != p->layout.replicated_over.empty(), name, " is replicated or cut");
            }
            require(net.output_shape({2, 8}) == shape{2, 8, shard_of(11, 4, c.rank()).count}, "output ",
                    net.output_shape({2, 8}));
            require(net.cost({2, 8}).parameters > 0, "no cost");
        }
    });
}

}  // namespace cairn
