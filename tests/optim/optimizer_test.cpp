#include "catch.hpp"
#include "optim/small_model.hpp"

#include <cairn/optim/adam.hpp>
#include <cairn/optim/clip.hpp>
#include <cairn/optim/lamb.hpp>
#include <cairn/optim/lars.hpp>
#include <cairn/optim/sgd.hpp>

#include <limits>

using namespace cairn;
using Catch::Matchers::Contains;

static_assert(Optimizer<sgd> && Optimizer<sgdw> && Optimizer<adam> && Optimizer<adamw> && Optimizer<lars> &&
              Optimizer<lamb>);
static_assert(Optimizer<clipped<adam>> && Optimizer<clipped<lamb, by_value>> &&
              Optimizer<clipped<clipped<sgd>, by_value>, double>);
static_assert(ElementwiseOptimizer<sgd, float> && ElementwiseOptimizer<clipped<adam>, float> &&
              !ElementwiseOptimizer<lars, float>);

namespace {

// Laws run over every optimizer with settings that use all of its terms.
template <class O>
O with_all_terms() {
    if constexpr (std::is_same_v<O, sgd>)
        return {{.weight_decay = 0.1, .nesterov = true}};
    else if constexpr (std::is_same_v<O, clipped<adamw, by_norm>>)
        return {{}, {0.5}};
    else
        return {};
}

}  // namespace

#define OPTIMIZERS sgd, sgdw, adam, adamw, lars, lamb, (clipped<adamw, by_norm>)

TEMPLATE_TEST_CASE("one launch for many parameters gives the bits of one launch for each", "", OPTIMIZERS) {
    const TestType o = with_all_terms<TestType>();
    const cairn::threads_for_now one(1);
    small_model<float> fused, apart;
    bound_optimizer opt(o, *fused.memory);
    std::vector<typename TestType::template state<float, cpu>> states;
    for (const auto& p : apart.owned) {
        auto& s = states.emplace_back();
        std::apply([&](auto&... field) { ((field = tensor<float>::zeros(p->shape)), ...); }, fields(s));
    }
    for (int t = 1; t <= 20; ++t) {
        fused.set_gradients(t);
        apart.set_gradients(t);
        std::vector<double> squares;
        for (const auto& p : apart.owned) squares.push_back(sum_of_squares(cpu{}, p->grad.size(), p->grad.data()));
        update_context at{.number = t, .lr = 0.05, .gradient_norm = std::sqrt(sum_in_path_order(squares))};
        CHECK(opt.step(at.lr) == at.gradient_norm);
        for (std::size_t k = 0; k < states.size(); ++k) {
            at.decay = apart.owned[k]->decay;
            update(o, apart.owned[k]->value, apart.owned[k]->grad, states[k], at);
        }
        REQUIRE(same_bits(fused.memory->values(), apart.memory->values()));
    }
}

TEMPLATE_TEST_CASE("the gaps between parameters stay zero", "", OPTIMIZERS) {
    small_model<float> model;
    bound_optimizer opt(with_all_terms<TestType>(), *model.memory);
    REQUIRE(model.gaps(model.memory->values()) == 0);
    for (int t = 1; t <= 5; ++t) {
        model.set_gradients(t);
        opt.step(0.1);
    }
    CHECK(model.gaps(model.memory->values()) == 0);
    CHECK(model.gaps(model.memory->grads()) == 0);
}

TEMPLATE_TEST_CASE("the number of threads changes no bit", "", OPTIMIZERS) {
    const auto run = [](int n) {
        const cairn::threads_for_now guard(n);
        auto model = std::make_unique<small_model<float>>();
        bound_optimizer opt(with_all_terms<TestType>(), *model->memory);
        for (int t = 1; t <= 5; ++t) {
            model->set_gradients(t);
            opt.step(0.1);
        }
        return model->memory->values().clone();
    };
    const auto one = run(1), two = run(2), three = run(3);
    CHECK(same_bits(one, two));
    CHECK(same_bits(one, three));
}

TEMPLATE_TEST_CASE("state that is copied into a fresh optimizer goes on with the same bits", "", OPTIMIZERS) {
    const cairn::threads_for_now one(1);
    const TestType o = with_all_terms<TestType>();
    small_model<float> first, second;
    bound_optimizer a(o, *first.memory);
    for (int t = 1; t <= 7; ++t) {
        first.set_gradients(t);
        a.step(0.1);
    }
    bound_optimizer b(o, *second.memory);
    std::copy_n(first.memory->values().data(), first.memory->values().size(), second.memory->values().data());
    auto from = a.tensors(), to = b.tensors();
    REQUIRE(from.size() == to.size());
    for (std::size_t i = 0; i < from.size(); ++i) {
        REQUIRE(from[i].name == to[i].name);
        std::copy_n(from[i].t.data(), from[i].t.size(), to[i].t.data());
    }
    b.steps() = a.steps();
    for (int t = 8; t <= 14; ++t) {
        first.set_gradients(t);
        second.set_gradients(t);
        a.step(0.1);
        b.step(0.1);
        REQUIRE(same_bits(first.memory->values(), second.memory->values()));
    }
}

TEMPLATE_TEST_CASE("a gradient that is not finite is an error that changes nothing", "", OPTIMIZERS) {
    small_model<float> model;
    bound_optimizer opt(with_all_terms<TestType>(), *model.memory);
    model.set_gradients(1);
    opt.step(0.1);
    const auto values = model.memory->values().clone();
    std::vector<tensor<float>> state;
    for (const auto& [name, t] : opt.tensors()) state.push_back(t.clone());

    const float bad = GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity());
    model.set_gradients(2);
    model.owned[3]->grad[18'339] = bad;
    CHECK_THROWS_WITH(opt.step(0.1), Contains("step 2") && Contains("p3 (140, 131)") && Contains("element 18339"));
    CHECK(opt.steps() == 1);
    CHECK(same_bits(values, model.memory->values()));
    for (std::size_t i = 0; i < state.size(); ++i) CHECK(same_bits(state[i], opt.tensors()[i].t));

    model.set_gradients(2);  // and training can go on
    opt.step(0.1);
    CHECK(opt.steps() == 2);
}

TEMPLATE_TEST_CASE("every optimizer gets close to the minimum of a quadratic", "", OPTIMIZERS) {
    parameter<double> p;  // f = Σ a_i (x_i - 1)² / 2
    p.shape = {20};
    p.init = {initializer::distribution::normal, 1.0, 3.0};
    arena<double> memory(parameter_list<double>{{"p", &p}}, 3);
    TestType o{};
    if constexpr (requires { o.c.weight_decay; }) o.c.weight_decay = 0;
    if constexpr (requires { o.inner.c.weight_decay; }) o.inner.c.weight_decay = 0;
    if constexpr (requires { o.c.trust_coefficient; }) o.c.trust_coefficient = 0.05;
    bound_optimizer opt(o, memory);
    const auto f = [&] {
        double sum = 0;
        for (cairn::index_t i = 0; i < 20; ++i)
            sum += (1 + 0.2 * static_cast<double>(i)) * (p.value[i] - 1) * (p.value[i] - 1) / 2;
        return sum;
    };
    const double start = f();
    constexpr int steps = 3000;
    for (int t = 0; t < steps; ++t) {
        for (cairn::index_t i = 0; i < 20; ++i) p.grad[i] = (1 + 0.2 * static_cast<double>(i)) * (p.value[i] - 1);
        opt.step(0.05 * (1 - static_cast<double>(t) / steps));
    }
    CHECK(f() < 1e-6 * start);
}

TEST_CASE("neighbours with the same decay flag share a launch") {
    small_model<float> model;  // decay: yes, no, no, yes, yes, yes (empty), no, yes
    CHECK(bound_optimizer(sgd{}, *model.memory).launches() == 5);
    CHECK(bound_optimizer(clipped{adam{}, by_norm{1}}, *model.memory).launches() == 5);
    CHECK(bound_optimizer(lars{}, *model.memory).launches() == 8);
}

TEST_CASE("gradients that a preconditioner made of unit length are neither clipped nor divided by their size") {
    constexpr double lr = 0.01, beta = 0.9, decay = 0.1;
    // θ after five steps, and where plain loops have it. `ratio`: LAMB's step is as long as a share of θ.
    const auto check = [&](const auto& o, bool l2, bool decoupled, bool ratio) {
        CAPTURE(o.name);
        parameter<double> p, other;
        p.shape = other.shape = {4, 5};
        p.init = other.init = {initializer::distribution::normal, 1.0, 0.0};
        arena<double> memory(parameter_list<double>{{"p", &p}, {"other", &other}}, 3);
        bound_optimizer opt(o, memory);
        p.unit_gradient = true;  // after the optimizer was made, as a preconditioner does it
        CHECK(opt.launches() == 2);
        std::vector<double> expected(p.value.data(), p.value.data() + 20), m(20, 0.0);
        for (int t = 1; t <= 5; ++t) {
            std::vector<double> u(20);
            double theta2 = 0, u2 = 0;
            for (std::size_t i = 0; i < 20; ++i) {
                const double g = std::sin(static_cast<double>(i) + 7.0 * t);
                p.grad[static_cast<cairn::index_t>(i)] = g;
                other.grad[static_cast<cairn::index_t>(i)] = 1e6 * g;
                m[i] = beta * m[i] + (1 - beta) * (g + (l2 ? decay * expected[i] : 0));
                u[i] = m[i] / (1 - std::pow(beta, t)) + (decoupled ? decay * expected[i] : 0);
                theta2 += expected[i] * expected[i], u2 += u[i] * u[i];
            }
            for (std::size_t i = 0; i < 20; ++i) expected[i] -= lr * (ratio ? std::sqrt(theta2 / u2) : 1) * u[i];
            opt.step(lr);
        }
        for (std::size_t i = 0; i < 20; ++i)
            CHECK(std::abs(p.value[static_cast<cairn::index_t>(i)] - expected[i]) < 1e-12);
    };
    check(adam{{.weight_decay = decay}}, true, false, false);
    check(adamw{{.weight_decay = decay}}, false, true, false);
    check(lamb{{.weight_decay = decay}}, false, true, true);
    check(clipped{adamw{{.weight_decay = decay}}, by_norm{1}}, false, true, false);
}

TEST_CASE("state is counted as optimizer memory and has names") {
    const auto before = memory_pool::host().use_of(memory_category::optimizer).live;
    small_model<float> model;
    bound_optimizer opt(adam{}, *model.memory);
    CHECK(memory_pool::host().use_of(memory_category::optimizer).live - before == 2 * model.memory->values().bytes());
    const auto all = opt.tensors();
    REQUIRE(all.size() == 16);
    CHECK(all[0].name == "m/p0");
    CHECK(all[0].t.shape() == shape{3, 3, 5, 7});
    CHECK(all[11].name == "v/p3");
    CHECK(all[11].t.shape() == shape{140, 131});
}

TEST_CASE("an optimizer outlives a move of its arena") {
    parameter<float> p;
    p.shape = {4};
    auto memory = std::make_unique<arena<float>>(parameter_list<float>{{"p", &p}}, 1);
    bound_optimizer opt(sgd{{.momentum = 0}}, *memory);
    const arena<float> elsewhere = std::move(*memory);
    memory.reset();
    p.grad[2] = 1;
    opt.step(0.5);
    CHECK(p.value[2] == -0.5f);
}

TEST_CASE("learning rates that make no sense are refused") {
    small_model<float> model;
    bound_optimizer opt(sgd{}, *model.memory);
    for (double lr : {-0.1, std::nan(""), std::numeric_limits<double>::infinity()})
        CHECK_THROWS_WITH(opt.step(lr), Contains("learning rate"));
    CHECK(opt.steps() == 0);
}

TEST_CASE("a model without parameters can be stepped") {
    arena<float> memory(parameter_list<float>{}, 1);
    bound_optimizer opt(adam{}, memory);
    CHECK(opt.step(0.1) == 0);
}
