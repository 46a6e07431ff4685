// A weight that two layers use: its gradient is that of both uses, on one rank and on pipelines.

#include "catch.hpp"
#include "messages.hpp"
#include "parallel/pipeline/networks.hpp"

#include <cairn/optim/precondition/kfac.hpp>
#include <cairn/parallel/pipeline/schedule.hpp>

namespace pipelines {

namespace {

using ties = tied_weights<double, cpu, threads_communicator>;

model language_model(bool tied, double dropout = 0.2) {
    return transformer<double>({.vocab_size = 10,
                                .max_length = 6,
                                .embedding_dim = 8,
                                .heads = 2,
                                .blocks = 2,
                                .dropout = dropout,
                                .tied = tied});
}

parameter<double>& parameter_of(arena<double>& weights, const std::string& path) {
    for (const auto& [name, p] : weights.parameters())
        if (name == path) return *p;
    fail("no parameter ", path);
}

/// Gradients of the mean losses of three micro-batches, added up.
double add_gradients(model& net, arena<double>& weights) {
    const network& like = network_named("tied");
    std::vector<stage<model>> whole;
    whole.emplace_back(net, weights);
    double sum = 0;
    const auto objective = [&](int m, tensor<double> y) {
        auto [loss, dy] = loss_of(m, std::move(y));
        sum += loss;
        return std::move(dy);
    };
    execute(gradient_accumulation(3), whole, objective, [&](int m) { return input_of(like, m); });
    return sum;
}

}  // namespace

TEST_CASE("tied weights: the gradient is the sum of those of two weights of equal values", "[pipeline]") {
    model apart = language_model(false), together = language_model(true), plain = language_model(true);
    arena<double> two(apart.parameters(), 5), one(together.parameters(), 5), shared(plain.parameters(), 5);
    const parameter<double>&table = parameter_of(two, "tokens/weight"), &head = parameter_of(two, "head/weight");
    std::ranges::copy(table.value.span(), parameter_of(two, "head/weight").value.span().begin());
    CHECK(one.count() == two.count() - table.shape.size());
    CHECK(together.cost({1, 6}).parameters == one.count());
    ties sums(one);
    for (arena<double>* all : {&two, &one, &shared}) all->zero_grad();
    sums.begin();
    const double expected = add_gradients(apart, two);
    CHECK(add_gradients(together, one) == expected);
    CHECK(add_gradients(plain, shared) == expected);
    sums.sum(nullptr);
    for (const auto& [name, p] : one.parameters()) {
        CAPTURE(name);
        const parameter<double>&of_two = parameter_of(two, name), &added = parameter_of(shared, name);
        for (index_t i = 0; i < p->grad.size(); ++i) {
            const double both = name == "tokens/weight" ? of_two.grad[i] + head.grad[i] : of_two.grad[i];
            REQUIRE(p->grad[i] == both);
            REQUIRE(added.grad[i] == Approx(both).epsilon(1e-12).margin(1e-15));  // added micro-batch by micro-batch
        }
    }
}

TEST_CASE("tied weights: differences of the loss show the gradient", "[pipeline]") {
    model net = language_model(true);
    arena<double> weights(net.parameters(), 5);
    weights.zero_grad();
    add_gradients(net, weights);
    parameter<double>& table = parameter_of(weights, "tokens/weight");
    const tensor<double> gradient = table.grad.clone();
    constexpr double h = 1e-6;  // the table is small, and layer norms divide by it
    for (index_t i = 0; i < table.value.size(); ++i) {
        const double at = table.value[i];
        table.value[i] = at + h;
        const double above = add_gradients(net, weights);
        table.value[i] = at - h;
        const double below = add_gradients(net, weights);
        table.value[i] = at;
        REQUIRE((above - below) / (2 * h) == Approx(gradient[i]).epsilon(1e-6).margin(1e-8));
    }
}

TEST_CASE("tied weights: first and last stage on one rank, on two, and of every schedule", "[pipeline]") {
    const network& net = network_named("tied");
    const outcome expected = alone(net, 8);
    CHECK(expected.gradients.count("head/weight") == 0);
    for (const auto& [name, ranks] : {std::pair("1f1b", 2), std::pair("zb_v", 2), std::pair("interleaved", 2),
                                      std::pair("v_min", 4), std::pair("zb_h2", 4)}) {
        CAPTURE(name, ranks);
        CHECK(together(net, make_schedule(name, {ranks, 8})) == expected);
    }
}

TEST_CASE("tied weights: a listener hears of the sum, after both uses", "[pipeline]") {
    struct ears final : gradient_listener {
        void added(std::span<const int> parameters) override {
            heard.insert(heard.end(), parameters.begin(), parameters.end());
        }
        std::vector<int> heard;
    } listener;
    model net = language_model(true);
    arena<double> weights(net.parameters(), 5);
    ties sums(weights);
    std::vector<stage<model>> whole;
    whole.emplace_back(net, weights).listener = &listener;
    const network& like = network_named("tied");
    execute(
        gradient_accumulation(2), whole, [&](int m, tensor<double> y) { return loss_of(m, std::move(y)).gradient; },
        [&](int m) { return input_of(like, m); });
    const int table = parameter_of(weights, "tokens/weight").id;
    CHECK(std::ranges::count(listener.heard, table) == 2);
    sums.sum(&listener);
    CHECK(std::ranges::count(listener.heard, table) == 3);
    CHECK(listener.heard.back() == table);
}

TEST_CASE("tied weights: K-FAC keeps their gradient as it is", "[pipeline]") {
    model net = language_model(true, 0);
    arena<double> weights(net.parameters(), 5);
    kfac<double> curvature(weights, {});
    weights.zero_grad();
    const network& like = network_named("tied");
    auto input = input_of(like, 0);
    input.pass.curvature = curvature.begin_step();
    saved_tensors<double> saved;
    tensor<double> y = net.forward(std::move(input.x), saved, input.pass);
    net.backward(loss_of(0, std::move(y)).gradient, saved, input.pass);
    const std::vector<double> before = values_of(parameter_of(weights, "tokens/weight").grad),
                              of_norm = values_of(parameter_of(weights, "block1/mlp/in/weight").grad);
    curvature.precondition(2, 0);
    CHECK(values_of(parameter_of(weights, "tokens/weight").grad) == before);
    CHECK(values_of(parameter_of(weights, "block1/mlp/in/weight").grad) != of_norm);
}

TEST_CASE("tied weights: what does not fit is refused", "[pipeline]") {
    const auto net_of = [](index_t out, const std::string& to) {
        model net;
        net.add("a", linear<double>({.in = 4, .out = 6})).add("b", linear<double>({.in = 6, .out = 4}));
        net.add("c", linear<double>({.in = 4, .out = out, .tied_to = to}));
        return net;
    };
    model right = net_of(6, "a/weight"), nowhere = net_of(6, "x/weight"), wider = net_of(7, "a/weight");
    arena<double> fits(right.parameters(), 1);
    CHECK(fits.parameters().size() == 5);  // the third bias is its own
    CHECK(test::contains(test::message_of([&] { arena<double>(nowhere.parameters(), 1); }),
                         "c/weight is tied to x/weight, which the model does not have"));
    CHECK(test::contains(test::message_of([&] { arena<double>(wider.parameters(), 1); }), "has another shape"));
    const std::string missing = test::message_of([&] {
        run_ranks(2, {.kernel_threads = 1, .time_limit = 5}, [&](threads_communicator& c) {
            channel<threads_communicator> over(c);
            model mine = net_of(6, "x/weight");
            arena<double> weights(mine.parameters(), 1, arena_scope::stage);
            ties sums(weights, over);
        });
    });
    CHECK(test::contains(missing, "c/weight is tied to x/weight, which no rank of the pipeline has"));
}

}  // namespace pipelines
