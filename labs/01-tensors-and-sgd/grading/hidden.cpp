// The tests that grade beside the public ones.

#include "../tests/arrays.hpp"

TEST_CASE("tensors: any number of axes") {
    using sizes = std::vector<std::size_t>;
    CHECK(lab::call<sizes>("row_major_strides", sizes{}) == sizes{});
    CHECK(lab::call<sizes>("row_major_strides", sizes{2, 1, 4, 3, 1}) == sizes{12, 12, 3, 1, 1});
    CHECK(lab::call<std::size_t>("offset_of", sizes{}, sizes{}) == 0);
    sizes shape;
    for (std::uint32_t axis = 0; axis < 4; ++axis) shape.push_back(static_cast<std::size_t>(lab::number(1, 5, axis)));
    const auto strides = lab::call<sizes>("row_major_strides", shape);
    REQUIRE(strides.size() == 4);
    std::size_t place = 0;
    for (std::size_t i = 0; i < shape[0]; ++i)
        for (std::size_t j = 0; j < shape[1]; ++j)
            for (std::size_t k = 0; k < shape[2]; ++k)
                for (std::size_t l = 0; l < shape[3]; ++l, ++place)
                    REQUIRE(lab::call<std::size_t>("offset_of", strides, sizes{i, j, k, l}) == place);
}

TEST_CASE("tensors: a transposed copy of any shape") {
    const auto size = [](std::uint32_t stream) { return static_cast<std::size_t>(lab::number(100, 150, stream)); };
    for (const auto& [rows, columns] : std::vector<std::pair<std::size_t, std::size_t>>{
             {size(1), size(2)}, {1, size(3)}, {size(4), 1}, {64, 128}, {3, 5}, {0, 4}, {4, 0}}) {
        const auto x = lab::matrix<float>(rows, columns, 10);
        lab::expectation e{columns, rows};
        for (std::size_t i = 0; i < rows; ++i)
            for (std::size_t j = 0; j < columns; ++j) e.value[j * rows + i] = static_cast<double>(x(i, j));
        INFO("of (" << rows << ", " << columns << ")");
        CHECK(lab::difference(lab::call<lab::array<float>>("transposed float", x), e) == "");
    }
}

TEST_CASE("tensors: standardised columns far from zero") {
    for (const std::size_t rows : {2, 57})
        CHECK(lab::fault_of_standardised(rows, static_cast<std::size_t>(lab::number(1, 9, 3)), 11, 1e6) == "");
}

TEST_CASE("tensors: standardising computes nothing twice") {
    // Whoever adds up a column again for each of its elements needs minutes for 300,000 of them, on any machine.
    lab::doing("300000 x 2 elements: is something computed again for every element?");
    CHECK(lab::fault_of_standardised(300000, 2, 12, 0) == "");
}

TEST_CASE("linear: other shapes, a batch of one and of none") {
    const auto size = [](std::uint32_t stream) { return static_cast<std::size_t>(lab::number(2, 33, stream)); };
    for (const bool backward : {false, true}) {
        CHECK(lab::fault_of_linear<double>(size(1), size(2), size(3), 20, backward) == "");
        CHECK(lab::fault_of_linear<float>(1, size(4), size(5), 24, backward) == "");
        CHECK(lab::fault_of_linear<double>(size(6), 1, 1, 28, backward) == "");
        CHECK(lab::fault_of_linear<double>(0, size(7), size(8), 32, backward) == "");
    }
    const auto x = lab::matrix<double>(3, 4, 36), w = lab::matrix<double>(5, 6, 37);
    CHECK(lab::thrown("linear_forward double", x, w, lab::vec<double>(5, 38)) == "invalid_argument");
    CHECK(lab::thrown("linear_forward double", x, lab::matrix<double>(5, 4, 37), lab::vec<double>(4, 38)) ==
          "invalid_argument");
    CHECK(lab::thrown("linear_backward double", x, w, lab::matrix<double>(3, 5, 39)) == "invalid_argument");
    CHECK(lab::thrown("linear_backward double", x, lab::matrix<double>(5, 4, 37), lab::matrix<double>(2, 5, 39)) ==
          "invalid_argument");
}

TEST_CASE("linear: large shapes") {
    for (const bool backward : {false, true}) {
        CHECK(lab::fault_of_linear<double>(10, 96, 100, 40, backward) == "");
        CHECK(lab::fault_of_linear<float>(150, 257, 130, 44, backward) == "");
    }
}

TEST_CASE("cross-entropy: logits of ten thousand") {
    for (const double size : {1e2, 1e4}) {
        const auto wide = lab::matrix<double>(5, 6, 50, size);
        const auto labels = lab::labels(5, 6, 51);
        CHECK(lab::fault_of_softmax(wide) == "");
        CHECK(lab::fault_of_loss(wide, labels, false) == "");
        CHECK(lab::fault_of_loss(wide, labels, true) == "");
        const auto narrow = lab::matrix<float>(5, 6, 52, size);
        CHECK(lab::fault_of_softmax(narrow) == "");
        CHECK(lab::fault_of_loss(narrow, labels, false) == "");
        CHECK(lab::fault_of_loss(narrow, labels, true) == "");
    }
    // All the same and far below zero: log 3, for any label.
    lab::array<double> low(1, 3);
    low.values = {-1e4, -1e4, -1e4};
    CHECK(lab::fault_of_loss(low, {2}, false) == "");
    CHECK(lab::fault_of_loss(low, {2}, true) == "");
}

TEST_CASE("cross-entropy: one row, one class, labels out of range") {
    const auto classes = static_cast<std::size_t>(lab::number(2, 20, 1));
    const auto row = lab::matrix<double>(1, classes, 60, 2), one = lab::matrix<double>(4, 1, 61, 50);
    CHECK(lab::fault_of_loss(row, {static_cast<int>(classes) - 1}, false) == "");
    CHECK(lab::fault_of_loss(row, {0}, true) == "");
    CHECK(lab::fault_of_loss(one, {0, 0, 0, 0}, false) == "");
    CHECK(lab::fault_of_loss(one, {0, 0, 0, 0}, true) == "");
    CHECK(lab::thrown("cross_entropy double", row, std::vector{static_cast<int>(classes)}) == "invalid_argument");
    CHECK(lab::thrown("cross_entropy double", row, std::vector{-1}) == "invalid_argument");
    CHECK(lab::thrown("cross_entropy double", one, std::vector{0, 0, 0}) == "invalid_argument");
    CHECK(lab::thrown("cross_entropy double", lab::matrix<double>(0, 3, 62), std::vector<int>{}) == "invalid_argument");
}

TEST_CASE("gradient check: large and small parameters, two calls each") {
    // Σ log θ_i: its derivatives are 1/θ and 2/θ³, so the errors are ε^⅔ (|f| / 2 + 1/3) / θ with a step of ∛ε θ.
    for (const double size : {1.0, 1e4}) {
        auto theta = lab::numbers<double>(6, 70);
        for (double& t : theta) t = size * (2 + t);
        int calls = 0;
        const auto f = [&](std::span<const double> at) {
            ++calls;
            long double sum = 0;
            for (const double t : at) sum += std::log(static_cast<long double>(t));
            return static_cast<double>(sum);
        };
        const auto got = lab::numerical_gradient(f, theta);
        CHECK(calls == 12);
        std::vector<double> expected(6), bound(6);
        for (std::size_t i = 0; i < 6; ++i) {
            expected[i] = 1 / theta[i];
            bound[i] = 10 * std::pow(lab::epsilon<double>, 2.0 / 3) * (std::abs(f(theta)) / 2 + 1.0 / 3) / theta[i];
        }
        CHECK(lab::difference(std::span<const double>(got), expected, bound) == "");
    }
    CHECK(lab::numerical_gradient([](std::span<const double>) { return 1.0; }, {}).empty());
}

TEST_CASE("gradient check: finds one wrong number in many") {
    const std::size_t n = 300;
    for (const double scale : {1e-6, 1.0, 1e6}) {
        const lab::smooth f(n, 80, scale);
        const auto theta = lab::numbers<double>(n, 81);
        const auto right = f.gradient(theta);
        const double largest = std::abs(*std::max_element(
            right.begin(), right.end(), [](double a, double b) { return std::abs(a) < std::abs(b); }));
        INFO("a function of size " << scale);
        CHECK(lab::check_gradient(f, theta, right).first);
        const auto where = static_cast<std::size_t>(lab::number(0, static_cast<int>(n) - 1, 82));
        auto wrong = right;
        wrong[where] += 1e-3 * largest;
        const auto [is_right, worst] = lab::check_gradient(f, theta, wrong);
        CHECK(!is_right);
        CHECK(worst == where);
        wrong = right;
        for (double& g : wrong) g *= 1.001;  // such as a mean over 1000 instead of 1001
        CHECK(!lab::check_gradient(f, theta, wrong).first);
        wrong = right;
        wrong[where] = std::numeric_limits<double>::quiet_NaN();
        CHECK(!lab::check_gradient(f, theta, wrong).first);
        CHECK(lab::check_gradient(f, theta, wrong).second == where);
    }
    const auto theta = lab::numbers<double>(3, 84);
    const auto nan = [](std::span<const double>) { return std::numeric_limits<double>::quiet_NaN(); };
    CHECK(!lab::check_gradient(nan, theta, theta).first);
    CHECK(lab::thrown("check_gradient", theta, std::vector<double>{theta[0], theta[1]}) == "invalid_argument");
}

TEST_CASE("sgd: learning rates that change, several parameters") {
    auto a = lab::numbers<double>(5, 90), b = lab::numbers<double>(3, 91);
    auto expected_a = a, expected_b = b;
    std::vector<double> velocity_a(5), velocity_b(3);
    const double momentum = 0.9, decay = 0.01;
    using parameters = std::vector<std::vector<double>>;
    lab::call<void>("sgd", 1, 0.0, momentum, decay);
    lab::call<void>("sgd", 2, 0.5, 0.9, 0.0);
    for (std::uint32_t step = 0; step < 6; ++step) {
        const double lr = step < 3 ? 0.1 : 0.01;
        const auto ga = lab::numbers<double>(5, 100 + step), gb = lab::numbers<double>(3, 110 + step);
        const auto update = [&](std::vector<double>& theta, const std::vector<double>& g, std::vector<double>& v) {
            for (std::size_t k = 0; k < theta.size(); ++k) {
                v[k] = momentum * v[k] + g[k] + decay * theta[k];
                theta[k] -= lr * v[k];
            }
        };
        update(expected_a, ga, velocity_a), update(expected_b, gb, velocity_b);
        const auto moved = lab::call<parameters>("sgd::step", 1, lr, parameters{a, b}, parameters{ga, gb});
        REQUIRE(moved.size() == 2);
        const std::vector<double> unrelated(4, 1.0);  // another optimizer has velocities of its own
        lab::call<parameters>("sgd::step", 2, 0.5, parameters{unrelated}, parameters{unrelated});
        a = moved[0], b = moved[1];
    }
    // Six steps of five operations on numbers below 10.
    CHECK(lab::difference(std::span<const double>(a), expected_a, std::vector<double>(5, 300 * lab::epsilon<double>)) ==
          "");
    CHECK(lab::difference(std::span<const double>(b), expected_b, std::vector<double>(3, 300 * lab::epsilon<double>)) ==
          "");
    lab::call<void>("sgd", 3, 0.1, 0.9, 0.0);
    CHECK(lab::thrown("sgd::step", 3, 0.1, parameters{{0, 0}}, parameters{{0, 0, 0}}) == "invalid_argument");
}

TEST_CASE("train: two epochs to the last batch") {
    const std::size_t rows = 23, hidden = 6;  // batches of 5, 5, 5, 5 and 3
    const auto x = lab::matrix<double>(rows, 4, 120);
    const auto labels = lab::labels(rows, 3, 121);
    const auto net = lab::initialised<double>(4, hidden, 3, lab::seed());
    lab::plain_classifier plain(net);
    const lab::training settings{
        .epochs = 2, .batch = 5, .lr = 0.1, .momentum = 0.8, .weight_decay = 0.01, .seed = lab::seed()};
    std::vector<std::vector<double>> velocity, g;
    for (const auto* p : plain.parameters()) velocity.emplace_back(p->size());
    std::vector<double> expected;
    for (std::size_t epoch = 0; epoch < 2; ++epoch) {
        const auto order = lab::shuffled(rows, settings.seed, epoch);
        double sum = 0;
        for (std::size_t begin = 0; begin < rows; begin += 5) {
            const std::vector<std::size_t> batch(
                order.begin() + static_cast<std::ptrdiff_t>(begin),
                order.begin() + static_cast<std::ptrdiff_t>(std::min(begin + 5, rows)));
            sum += plain.gradient(x, labels, batch, g) * static_cast<double>(batch.size());
            for (std::size_t i = 0; i < 4; ++i)
                for (std::size_t k = 0; k < g[i].size(); ++k) {
                    double& theta = (*plain.parameters()[i])[k];
                    velocity[i][k] = 0.8 * velocity[i][k] + g[i][k] + 0.01 * theta;
                    theta -= 0.1 * velocity[i][k];
                }
        }
        expected.push_back(sum / static_cast<double>(rows));
    }
    const auto [losses, after] = lab::train(net, x, labels, settings);
    // Ten steps, each off by about 1e-15, and none of them makes earlier errors more than some times as large.
    CHECK(lab::difference(std::span<const double>(losses), expected, {1e-11, 1e-11}) == "");
    CHECK(lab::difference(after, plain, 1e-11) == "");
}

TEST_CASE("train: the same bits in every run") {
    const lab::spirals<float> learn(90, 130);
    const lab::training settings{.epochs = 3, .batch = 16, .lr = 0.05, .seed = lab::seed()};
    const auto net = lab::initialised<float>(2, 8, 3, 5);
    const auto [losses, first] = lab::train(net, learn.x, learn.labels, settings);
    REQUIRE(losses.size() == 3);
    CHECK(losses.back() < losses.front());
    const auto [again, second] = lab::train(net, learn.x, learn.labels, settings);
    CHECK(again == losses);
    CHECK((second.w1.values == first.w1.values && second.b1 == first.b1));
    CHECK((second.w2.values == first.w2.values && second.b2 == first.b2));
}
