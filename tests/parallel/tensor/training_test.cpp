// A transformer whose tensors are cut over ranks against one rank: gradients, losses and steps of SGD with clipping,
// Adam and LAMB, with dropout, a head by the vocabulary, with whole sequences and with sequences in parts.

#include "parallel/tensor/training.hpp"
#include "catch.hpp"
#include "messages.hpp"

#include <cairn/optim/adam.hpp>
#include <cairn/optim/clip.hpp>
#include <cairn/optim/lamb.hpp>
#include <cairn/optim/lars.hpp>
#include <cairn/optim/sgd.hpp>

#include <type_traits>

namespace cairn::split_layers {

using ranks = threads_communicator;

template <class O>
void check_training(const O& rule, double tolerance = 1e-12) {
    const run expected = train_alone(rule);
    for (const int p : {2, 4})
        for (const sequence_layout sequences : {sequence_layout::whole, sequence_layout::parts}) {
            CAPTURE(p, sequences == sequence_layout::parts);
            run got;
            run_ranks(p, [&](ranks& c) {
                run mine = train_on(c, rule, sequences);
                if (c.rank() == 0) got = std::move(mine);
            });
            const run_difference d = difference(got, expected);
            CHECK(d.numbers <= tolerance);
            CHECK(d.gradients <= 1e-12);
            CHECK(d.values <= tolerance);
        }
}

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
                all_gather_values(over, weights, owners);
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

}  // namespace cairn::split_layers
