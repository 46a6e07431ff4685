// The tests of the tape that grade beside the public ones.

#include "../tests/expressions.hpp"

TEST_CASE("tape: any expression") {
    // Short ones first: the first that is wrong is the one to look at.
    for (std::uint32_t i = 0; i < 150; ++i) {
        const lab::expression e = lab::drawn(1 + i / 10, 150 + i);
        REQUIRE(lab::fault_of_tape(e, {static_cast<int>(e.size()) - 1}) == "");
    }
}

TEST_CASE("tape: kinks and powers at zero") {
    const double a = lab::numbers<double>(1, 300)[0];
    const std::vector<lab::expression> all{
        {{a, a}, {{"max", 0, 1}}},
        {{a}, {{"max", 0, 0}, {"*", 1, 0}}},
        {{0, 0}, {{"max", 0, 1}, {"exp", 2, 0}}},
        {{0}, {{"relu", 0, 0}, {"+", 1, 0}}},
        {{0}, {{"pow", 0, 0}}},
        {{0}, {{"pow", 0, 1}}},
        {{0}, {{"pow", 0, 2}, {"exp", 1, 0}}},
        {{a}, {{"pow", 0, 0}, {"*", 1, 0}}},
        {{-2}, {{"pow", 0, 5}, {"pow", 0, -3}, {"+", 1, 2}}},
        {{a}, {{"-", 0, 0}, {"*", 1, 0}}},
    };
    for (const lab::expression& e : all) CHECK(lab::fault_of_tape(e, {static_cast<int>(e.size()) - 1}) == "");
}

TEST_CASE("tape: backward from any node, several times") {
    for (std::uint32_t i = 0; i < 20; ++i) {
        const lab::expression e = lab::drawn(8, 310 + i);
        const int last = static_cast<int>(e.size()) - 1, middle = last - 3;
        REQUIRE(lab::fault_of_tape(e, {middle}) == "");
        REQUIRE(lab::fault_of_tape(e, {0}) == "");
        REQUIRE(lab::fault_of_tape(e, {last, middle}) == "");
        REQUIRE(lab::fault_of_tape(e, {middle, last, -1, middle, middle, last}) == "");
    }
}

TEST_CASE("tape: long computations in one sweep") {
    const auto gradients = [](const lab::expression& e) {
        return lab::call<lab::values_and_gradients>("tape", e.inputs, e.operations,
                                                    std::vector{static_cast<int>(e.size()) - 1})
            .second;
    };
    // v ← v + v, sixty times: 2⁶⁰ paths lead from the result to the input.
    lab::expression doubled{{1}, {}};
    for (int i = 0; i < 60; ++i) doubled.operations.emplace_back("+", i, i);
    lab::doing("x doubled 60 times: does backward follow each path by itself?");
    std::vector<double> expected(61);
    for (int i = 0; i <= 60; ++i) expected[static_cast<std::size_t>(i)] = std::ldexp(1.0, 60 - i);
    const auto of_doubled = gradients(doubled);
    CHECK(lab::difference(std::span<const double>(of_doubled), expected, std::vector<double>(61)) == "");
    // v ← v + y, 200,000 times.
    const int steps = 200'000;
    lab::expression added{{0, 1}, {}};
    for (int i = 0; i < steps; ++i) added.operations.emplace_back("+", i == 0 ? 0 : i + 1, 1);
    lab::doing("y added 200,000 times: does backward call itself for each node, or look at the tape again for each?");
    expected.assign(added.size(), 1);
    expected[1] = steps;
    const auto of_added = gradients(added);
    CHECK(lab::difference(std::span<const double>(of_added), expected, std::vector<double>(added.size())) == "");
}

TEST_CASE("tape: layers of other shapes") {
    const auto size = [](std::uint32_t stream) { return static_cast<std::size_t>(lab::number(2, 12, stream)); };
    for (const auto& [rows, in, out] : std::vector<std::tuple<std::size_t, std::size_t, std::size_t>>{
             {size(1), size(2), size(3)}, {1, 1, size(4)}, {size(5), size(6), 1}, {3, 9, 9}, {2, 0, 3}}) {
        const lab::relu_layer layer(rows, in, out, 340);
        INFO(rows << " rows, " << in << " inputs, " << out << " outputs");
        CHECK(layer.fault(layer.on_tape()) == "");
    }
    const auto x = lab::matrix<double>(1, 3, 344), w = lab::matrix<double>(2, 4, 345),
               dy = lab::matrix<double>(1, 2, 346);
    CHECK(lab::thrown("layer on a tape", x, w, lab::vec<double>(2, 347), dy) == "invalid_argument");
}
