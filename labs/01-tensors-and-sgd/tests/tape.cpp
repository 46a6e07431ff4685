// The tests of the tape that students have.

#include "expressions.hpp"

TEST_CASE("tape: one operation") {
    const auto x = lab::numbers<double>(2, 140);
    const double u = 0.5 + std::abs(x[0]), v = -2 - x[1];  // between 0.5 and 1.5, between -3 and -1
    for (const lab::operation& o : std::vector<lab::operation>{{"+", 0, 1},
                                                               {"-", 0, 1},
                                                               {"*", 0, 1},
                                                               {"/", 0, 1},
                                                               {"exp", 1, 0},
                                                               {"log", 0, 0},
                                                               {"pow", 1, 3},
                                                               {"pow", 0, -2},
                                                               {"max", 0, 1},
                                                               {"max", 1, 0},
                                                               {"relu", 0, 0},
                                                               {"relu", 1, 0}}) {
        const lab::expression e{{u, v}, {o}};
        CHECK(lab::fault_of_tape(e, {2}) == "");
        // The same by differences of what the submission itself computes, with an error of h² and of ε/h.
        const double h = 1e-5;
        const auto gradient = lab::on_tape(e, {2}).second;
        for (std::size_t i = 0; i < 2; ++i) {
            lab::expression above = e, below = e;
            above.inputs[i] += h, below.inputs[i] -= h;
            const double slope = (lab::on_tape(above, {}).first.at(2) - lab::on_tape(below, {}).first.at(2)) / (2 * h);
            INFO("d(" << e.formula(2) << ")/d(" << e.name(i) << ") beside differences of your values; " << e.given());
            CHECK(gradient.at(i) == Approx(slope).epsilon(1e-6).margin(1e-8));
        }
    }
}

TEST_CASE("tape: a value that is used several times") {
    // The example of the hand-out: L = y · y + w with y = w x.
    CHECK(lab::fault_of_tape({{2, 3}, {{"*", 0, 1}, {"*", 2, 2}, {"+", 3, 0}}}, {4}) == "");
    const auto x = lab::numbers<double>(2, 141);
    CHECK(lab::fault_of_tape({x, {{"+", 0, 0}, {"*", 2, 0}, {"-", 3, 2}, {"*", 4, 1}}}, {5}) == "");
    CHECK(lab::fault_of_tape({x, {{"exp", 0, 0}, {"/", 2, 0}, {"/", 0, 3}, {"+", 4, 2}}}, {5}) == "");
}

TEST_CASE("tape: gradients add up until they are set to zero") {
    const lab::expression e{lab::numbers<double>(2, 142), {{"*", 0, 1}, {"exp", 2, 0}, {"*", 3, 0}}};
    CHECK(lab::fault_of_tape(e, {4, -1}) == "");
    CHECK(lab::fault_of_tape(e, {4, -1, 4}) == "");
    CHECK(lab::fault_of_tape(e, {4, 4}) == "");  // twice as much, at all nodes
}

TEST_CASE("tape: a layer out of scalars") {
    for (const std::size_t rows : {1, 4}) {
        const lab::relu_layer layer(rows, 3, 5, 144);
        CHECK(layer.fault(layer.on_tape()) == "");
    }
}

TEST_CASE("tape and layer: the same gradients") {
    // relu(x Wᵀ + b) of task 3 beside that of task 1: off from each other by no more than twice what each may be off.
    const lab::relu_layer layer(4, 6, 5, 148);
    const auto [y, d_x, d_w, d_b] = layer.on_tape();
    const auto before = lab::call<lab::array<double>>("linear_forward double", layer.x, layer.w, layer.b);
    const auto by_hand = lab::call<lab::array<double>>("relu double", before);
    const auto inner = lab::call<lab::array<double>>("relu_backward double", before, layer.dy);
    const auto [x, w, b] = lab::call<std::tuple<lab::array<double>, lab::array<double>, std::vector<double>>>(
        "linear_backward double", layer.x, layer.w, inner);
    const auto apart = [](lab::expectation tape, const std::vector<double>& values) {
        REQUIRE(values.size() == tape.value.size());
        tape.value = values;
        for (double& bound : tape.bound) bound *= 2;
        return tape;
    };
    INFO("expected is what your tape says");
    CHECK(lab::difference(by_hand, apart(layer.e.y, y.values)) == "");
    CHECK(lab::difference(x, apart(layer.e.dx, d_x.values)) == "");
    CHECK(lab::difference(w, apart(layer.e.dw, d_w.values)) == "");
    CHECK(lab::difference(b, apart(layer.e.db, d_b)) == "");
    INFO("but both are wrong");
    CHECK(layer.fault({by_hand, x, w, b}) == "");
}
