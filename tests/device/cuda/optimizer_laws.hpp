#pragma once
// Optimizers on a grid device: the plain loops of tests/oracle, and what optim/optimizer.hpp says of memory, launches,
// saved states and gradients that are not finite. The twins of tests/optim.

#include "catch.hpp"
#include "device/cuda/kernel_laws.hpp"
#include "optim/small_model.hpp"
#include "state/temporary_folder.hpp"

#include <cairn/optim/adam.hpp>
#include <cairn/optim/clip.hpp>
#include <cairn/optim/lamb.hpp>
#include <cairn/optim/lars.hpp>
#include <cairn/optim/sgd.hpp>
#include <cairn/state/staged.hpp>
#include <cairn/state/state_file.hpp>

#include <limits>
#include <memory>
#include <vector>

namespace cairn::optimizer_laws {

using Catch::Matchers::Contains;

/// Calls f with every optimizer, with settings that use all of its terms.
template <class F>
void with_each(F&& f) {
    f(sgd{{.weight_decay = 0.1, .nesterov = true}});
    f(sgdw{{.weight_decay = 0.1}});
    f(adam{{.weight_decay = 0.1}});
    f(adamw{});
    f(lars{{.trust_coefficient = 0.02}});
    f(lars{{.trust_coefficient = 0.02, .clip = true}});
    f(lamb{});
    f(clipped{adamw{}, by_norm{0.5}});
    f(clipped{clipped{lars{}, by_value{0.5}}, by_norm{2}});
    f(clipped{lamb{}, by_norm{0.5}});
}

/// A change of all parameters of the oracle.
using reference =
    std::function<void(std::vector<oracle::trained>&, const std::vector<oracle::gradient>&, double lr, int t)>;

/// oracle::NAME(parameter, gradient, lr, settings…) of every parameter.
template <class Rule>
reference of_each(Rule rule) {
    return [=](auto& all, const auto& gradients, double lr, int t) {
        for (std::size_t k = 0; k < all.size(); ++k) rule(all[k], gradients[k], lr, t);
    };
}
inline reference of_sgd(double momentum, double decay, bool nesterov, bool decoupled) {
    return of_each(
        [=](auto& p, const auto& g, double lr, int) { oracle::sgd(p, g, lr, momentum, decay, nesterov, decoupled); });
}
inline reference of_adam(double decay, bool decoupled) {
    return of_each([=](auto& p, const auto& g, double lr, int t) {
        oracle::adam(p, g, lr, t, 0.9, 0.999, 1e-8, decay, decoupled);
    });
}
inline reference of_lars(double decay, double trust, bool clip) {
    return of_each(
        [=](auto& p, const auto& g, double lr, int) { oracle::lars(p, g, lr, 0.9, decay, trust, 1e-8, clip); });
}
inline reference of_lamb(double decay) {
    return of_each(
        [=](auto& p, const auto& g, double lr, int t) { oracle::lamb(p, g, lr, t, 0.9, 0.999, 1e-6, decay); });
}

/// 25 steps, with decay of some parameters and not of others. Tolerances are the host's (tests/optim).
template <class D, class T>
void oracle_steps() {
    const bool exact = std::is_same_v<T, double>;
    const auto check = [&](const auto& o, double lr, const reference& plain, double in_double, double in_float) {
        CAPTURE(o.name);
        CHECK(distance_after<T, D>(o, 25, lr, plain) < (exact ? in_double : in_float));
    };
    for (const double momentum : {0.0, 0.9})
        for (const bool nesterov : {false, true}) {
            CAPTURE(momentum, nesterov);
            const sgd::config c{momentum, 0.02, nesterov};
            check(sgd{c}, 0.1, of_sgd(momentum, 0.02, nesterov, false), 1e-13, 2e-6);
            check(sgdw{c}, 0.1, of_sgd(momentum, 0.02, nesterov, true), 1e-13, 2e-6);
        }
    for (const double decay : {0.0, 0.1}) {
        CAPTURE(decay);
        check(adam{{.weight_decay = decay}}, 0.01, of_adam(decay, false), 1e-11, 1e-4);
        check(adamw{{.weight_decay = decay}}, 0.01, of_adam(decay, true), 1e-11, 1e-4);
    }
    for (const bool clip : {false, true}) {
        CAPTURE(clip);
        check(lars{{.weight_decay = 0.02, .trust_coefficient = 0.02, .clip = clip}}, 0.3, of_lars(0.02, 0.02, clip),
              1e-12, 2e-5);
    }
    check(lamb{{.weight_decay = 0.1}}, 0.01, of_lamb(0.1), 1e-11, 1e-4);
}

template <class T, class D, class U>
void check_bits(const tensor<T, D>& got, const tensor<T, U>& expected) {
    CHECK(same_bits(got.on_host(), expected.on_host()));
}

/// Gaps stay zero; one launch for neighbours gives the bits of one for each parameter.
template <class D, class O>
void check_layout(const O& o) {
    CAPTURE(o.name);
    small_model<float, D> fused, apart;
    bound_optimizer opt(o, *fused.memory);
    CHECK(opt.launches() == (ElementwiseOptimizer<O, float> ? 5u : 8u));
    std::vector<typename O::template state<float, D>> states;
    for (const auto& p : apart.owned) {
        auto& s = states.emplace_back();
        std::apply([&](auto&... field) { ((field = tensor<float, D>::zeros(p->shape)), ...); }, fields(s));
    }
    for (int t = 1; t <= 4; ++t) {
        fused.set_gradients(t);
        apart.set_gradients(t);
        update_context at{.number = t, .lr = 0.05, .gradient_norm = norm(apart.memory->grads())};
        CHECK(opt.step(at.lr) == at.gradient_norm);
        for (std::size_t k = 0; k < states.size(); ++k) {
            at.decay = apart.owned[k]->decay;
            update(o, apart.owned[k]->value, apart.owned[k]->grad, states[k], at);
        }
        check_bits(fused.memory->values(), apart.memory->values());
    }
    CHECK(fused.gaps(fused.memory->values()) == 0);
    CHECK(fused.gaps(fused.memory->grads()) == 0);
    for (const auto& [name, flat] : opt.flat_state()) CHECK(fused.gaps(flat) == 0);
}

/// Of the optimizer's memory, and of what it refuses.
template <class D>
void layout() {
    with_each([](const auto& o) { check_layout<D>(o); });
    const index_t before = D::memory().use_of(memory_category::optimizer).live;
    small_model<float, D> model;
    bound_optimizer opt(adam{}, *model.memory);
    const index_t values = model.memory->values().bytes(),
                  state = D::memory().use_of(memory_category::optimizer).live - before;
    CHECK(state >= 2 * values);
    // Beside it: the norm of the gradients, and where the 8 parameters lie (a range and an index each).
    CHECK(state <= 2 * values + (1 + 2 + 2) * memory_pool::alignment);
    CHECK(opt.tensors()[11].name == "v/p3");
    CHECK(opt.tensors()[11].t.shape() == shape{model.rows, 131});

    for (double lr : {-0.1, std::nan(""), std::numeric_limits<double>::infinity()})
        CHECK_THROWS_WITH(opt.step(lr), Contains("learning rate"));
    CHECK(opt.steps() == 0);
    CHECK_THROWS_WITH(bound_optimizer(clipped{sgd{}, by_norm{0}}, *model.memory), Contains("max_norm 0"));

    arena<float, D> nothing(parameter_list<float, D>{}, 1);
    CHECK(bound_optimizer(lamb{}, nothing).step(0.1) == 0);
}

/// Model and optimizer go on when the arena has moved elsewhere.
template <class D>
void arena_moves() {
    parameter<float, D> p;
    p.shape = {4};
    auto memory = std::make_unique<arena<float, D>>(parameter_list<float, D>{{"p", &p}}, 1);
    bound_optimizer opt(sgd{{.momentum = 0}}, *memory);
    const arena<float, D> elsewhere = std::move(*memory);
    memory.reset();
    tensor<float> g({4});
    g[2] = 1;
    D::copy_to_device(p.grad.data(), g.data(), g.bytes());
    opt.step(0.5);
    CHECK(p.value.on_host()[2] == -0.5f);
}

/// Values, state and number of steps of `a` go to `b`, by tensors() or through a file.
template <class D, class O>
void hand_over(small_model<float, D>& from, bound_optimizer<O, float, D>& a, small_model<float, D>& to,
               bound_optimizer<O, float, D>& b, bool by_file) {
    if (!by_file) {
        D::copy_within(to.memory->values().data(), from.memory->values().data(), from.memory->values().bytes());
        const auto there = a.tensors(), here = b.tensors();
        REQUIRE(there.size() == here.size());
        for (std::size_t i = 0; i < there.size(); ++i) {
            REQUIRE(there[i].name == here[i].name);
            D::copy_within(const_cast<float*>(here[i].t.data()), there[i].t.data(), there[i].t.bytes());
        }
        b.steps() = a.steps();
        return;
    }
    const temporary_folder folder;
    staged_tensors<D> of_a, of_b;
    const auto view = [](small_model<float, D>& model, bound_optimizer<O, float, D>& o, staged_tensors<D>& staged) {
        state_view v;
        v.add("values", staged.host_of(model.memory->values()));
        for (const auto& [name, t] : o.tensors()) v.add(name, staged.host_of(t));
        v.add("steps", o.steps());
        return v;
    };
    save_state(folder / "state", view(from, a, of_a));
    load_state(folder / "state", view(to, b, of_b));
    of_b.put_back();
}

/// State in a fresh optimizer goes on with the same bits.
template <class D>
void resume() {
    with_each([](const auto& o) {
        for (const bool by_file : {false, true}) {
            CAPTURE(o.name, by_file);
            small_model<float, D> first, second;
            bound_optimizer a(o, *first.memory), b(o, *second.memory);
            for (int t = 1; t <= 2; ++t) first.set_gradients(t), a.step(0.1);
            hand_over(first, a, second, b, by_file);
            CHECK(b.steps() == 2);
            for (int t = 3; t <= 4; ++t) {
                first.set_gradients(t), second.set_gradients(t);
                a.step(0.1), b.step(0.1);
                check_bits(first.memory->values(), second.memory->values());
            }
        }
    });
}

/// A gradient that is not finite is named, nothing is changed, and training goes on as if that step had not been tried.
template <class D>
void broken_gradient() {
    with_each([](const auto& o) {
        CAPTURE(o.name);
        small_model<float, D> model, other;
        bound_optimizer opt(o, *model.memory), unbroken(o, *other.memory);
        for (auto* m : {&model, &other}) m->set_gradients(1);
        opt.step(0.1), unbroken.step(0.1);
        const float infinite = std::numeric_limits<float>::infinity();
        for (const float bad : {std::numeric_limits<float>::quiet_NaN(), infinite, -infinite}) {
            CAPTURE(bad);
            model.set_gradients(2);
            auto g = model.owned[7]->grad.on_host();
            g[32] = bad;
            model.set(model.owned[7]->grad, g);
            CHECK_THROWS_WITH(opt.step(0.1), Contains("step 2: gradient of p7 (33)") && Contains("element 32 is ") &&
                                                 Contains("nothing was updated"));
            CHECK(opt.steps() == 1);
            check_bits(model.memory->values(), other.memory->values());
            const auto got = opt.flat_state(), expected = unbroken.flat_state();
            for (std::size_t i = 0; i < got.size(); ++i) check_bits(got[i].t, expected[i].t);
        }
        for (int t = 2; t <= 3; ++t) {
            for (auto* m : {&model, &other}) m->set_gradients(t);
            CHECK(opt.step(0.1) == unbroken.step(0.1));
            check_bits(model.memory->values(), other.memory->values());
        }
        CHECK(opt.steps() == 3);
    });
}

/// By norm and by value as the plain loop, around optimizers of elements and of whole parameters.
template <class D>
void clipping() {
    for (const double most : {0.01, 10.0, 1e9}) {
        CAPTURE(most);
        const auto clipped_by = [=](bool by_value, const reference& rule) -> reference {
            return [=](auto& all, const auto& gradients, double lr, int t) {
                auto g = gradients;
                by_value ? oracle::clip_value(g, most) : oracle::clip_norm(g, most);
                rule(all, g, lr, t);
            };
        };
        const sgd inner{{.weight_decay = 0.01}};
        const reference plain = of_sgd(0.9, 0.01, false, false), layers = of_lars(5e-4, 0.001, false);
        const auto check = [&](const auto& o, const reference& expected) {
            CAPTURE(o.name);
            CHECK(distance_after<double, D>(o, 10, 0.1, expected) < 1e-12);
        };
        check(clipped{inner, by_norm{most}}, clipped_by(false, plain));
        check(clipped{inner, by_value{most}}, clipped_by(true, plain));
        check(clipped{lars{}, by_norm{most}}, clipped_by(false, layers));
        check(clipped{lars{}, by_value{most}}, clipped_by(true, layers));
    }
    // The norm is that before clipping.
    parameter<float, D> p;
    p.shape = {2};
    arena<float, D> memory(parameter_list<float, D>{{"p", &p}}, 1);
    bound_optimizer opt(clipped{sgd{{.momentum = 0}}, by_norm{1}}, memory);
    tensor<float> g({2});
    g[0] = 3, g[1] = 4;
    D::copy_to_device(p.grad.data(), g.data(), g.bytes());
    CHECK(opt.step(1) == Approx(5));
    CHECK(p.value.on_host()[0] == Approx(-0.6));
    CHECK(p.value.on_host()[1] == Approx(-0.8));
    // A limit that is not reached changes no bit.
    small_model<float, D> a, b;
    bound_optimizer plain(adam{}, *a.memory);
    bound_optimizer limited(clipped{clipped{adam{}, by_norm{1e6}}, by_value{1e6}}, *b.memory);
    for (int t = 0; t < 3; ++t) {
        a.set_gradients(t), b.set_gradients(t);
        plain.step(0.01), limited.step(0.01);
    }
    check_bits(a.memory->values(), b.memory->values());
}

/// Gradients of zero and of any finite size; parameters at zero without a gradient.
template <class D>
void ends() {
    parameter<float, D> p;
    p.shape = {3};
    arena<float, D> memory(parameter_list<float, D>{{"p", &p}}, 1);
    bound_optimizer opt(adam{}, memory);
    tensor<float> g({3});
    g[0] = 0, g[1] = 1e-30f, g[2] = 3e38f;
    for (int step = 0; step < 3; ++step) {
        D::copy_to_device(p.grad.data(), g.data(), g.bytes());
        opt.step(0.1);
        const tensor<float> value = p.value.on_host();
        for (index_t i = 0; i < 3; ++i) CHECK(std::isfinite(value[i]));
        CHECK(value[0] == 0);
    }
    const auto stays = [](const auto& o) {
        CAPTURE(o.name);
        parameter<float, D> zero;
        zero.shape = {5};
        arena<float, D> its_memory(parameter_list<float, D>{{"p", &zero}}, 1);
        bound_optimizer(o, its_memory).step(0.1);
        const tensor<float> left = zero.value.on_host();
        for (index_t i = 0; i < 5; ++i) CHECK(left[i] == 0);
    };
    stays(lamb{});
    stays(lars{});
}

template <GridDevice D>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"plain loops, float", oracle_steps<D, float>},
                                       {"plain loops, double", oracle_steps<D, double>},
                                       {"layout", layout<D>},
                                       {"an arena that moves", arena_moves<D>},
                                       {"resumed", resume<D>},
                                       {"gradients that are not finite", broken_gradient<D>},
                                       {"clipping", clipping<D>},
                                       {"zeros and the largest numbers", ends<D>}};
    return laws;
}

}  // namespace cairn::optimizer_laws
