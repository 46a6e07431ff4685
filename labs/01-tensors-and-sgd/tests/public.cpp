// The tests that students have.

#include "arrays.hpp"

TEST_CASE("tensors: strides and offsets") {
    using sizes = std::vector<std::size_t>;
    CHECK(lab::call<sizes>("row_major_strides", sizes{2, 3, 5}) == sizes{15, 5, 1});
    CHECK(lab::call<sizes>("row_major_strides", sizes{7}) == sizes{1});
    CHECK(lab::call<std::size_t>("offset_of", sizes{15, 5, 1}, sizes{1, 2, 4}) == 29);
    // Row 2, column 7 of 4 × 9 elements.
    CHECK(lab::call<std::size_t>("offset_of", sizes{9, 1}, sizes{2, 7}) == 25);
}

TEST_CASE("tensors: a transposed copy") {
    const auto rows = static_cast<std::size_t>(lab::number(9, 40, 1)),
               columns = static_cast<std::size_t>(lab::number(9, 40, 2));
    const auto x = lab::matrix<double>(rows, columns, 10);
    lab::expectation e{columns, rows};  // bounds of 0: the same bits
    for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j) e.value[j * rows + i] = x(i, j);
    CHECK(lab::difference(lab::call<lab::array<double>>("transposed double", x), e) == "");
}

TEST_CASE("tensors: standardised columns") {
    CHECK(lab::fault_of_standardised(30, 7, 11, 0) == "");
    CHECK(lab::fault_of_standardised(1, 3, 12, 0) == "");
}

TEST_CASE("linear: forward") {
    CHECK(lab::fault_of_linear<double>(3, 4, 4, 20, false) == "");
    CHECK(lab::fault_of_linear<float>(5, 7, 2, 24, false) == "");
}

TEST_CASE("linear: backward") {
    CHECK(lab::fault_of_linear<double>(4, 4, 4, 28, true) == "");
    CHECK(lab::fault_of_linear<float>(5, 7, 2, 32, true) == "");
}

TEST_CASE("relu: forward and backward") {
    const auto x = lab::matrix<float>(6, 5, 36), dy = lab::matrix<float>(6, 5, 37);
    lab::array<float> at = x;
    at(2, 2) = 0;
    lab::expectation y{6, 5}, dx{6, 5};
    for (std::size_t i = 0; i < 30; ++i) {
        y.value[i] = std::max(at.values[i], 0.0f);
        dx.value[i] = at.values[i] > 0 ? dy.values[i] : 0.0f;
    }
    CHECK(lab::difference(lab::call<lab::array<float>>("relu float", at), y) == "");
    CHECK(lab::difference(lab::call<lab::array<float>>("relu_backward float", at, dy), dx) == "");
}

TEST_CASE("cross-entropy: softmax and loss") {
    const auto logits = lab::matrix<double>(6, 4, 40, 3);
    CHECK(lab::fault_of_softmax(logits) == "");
    CHECK(lab::fault_of_loss(logits, lab::labels(6, 4, 41), false) == "");
    CHECK(lab::fault_of_loss(lab::matrix<float>(5, 10, 42, 3), lab::labels(5, 10, 43), false) == "");
}

TEST_CASE("cross-entropy: gradient") {
    CHECK(lab::fault_of_loss(lab::matrix<double>(6, 4, 44, 3), lab::labels(6, 4, 45), true) == "");
    CHECK(lab::fault_of_loss(lab::matrix<float>(5, 10, 46, 3), lab::labels(5, 10, 47), true) == "");
}

TEST_CASE("gradient check: numerical gradients are as good as central differences") {
    const lab::smooth f(8, 50);
    const auto theta = lab::numbers<double>(8, 51);
    const auto got = lab::numerical_gradient(f, theta);
    CHECK(lab::difference(std::span<const double>(got), f.gradient(theta), f.bounds(theta)) == "");
}

TEST_CASE("gradient check: accepts what is right and finds what is wrong") {
    const lab::smooth f(8, 52);
    const auto theta = lab::numbers<double>(8, 53);
    auto gradient = f.gradient(theta);
    CHECK(lab::check_gradient(f, theta, gradient).first);
    for (double& g : gradient) g = -g;
    CHECK(!lab::check_gradient(f, theta, gradient).first);
    gradient = f.gradient(theta);
    gradient[5] += 0.01 * (1 + std::abs(gradient[5]));
    const auto [right, worst] = lab::check_gradient(f, theta, gradient);
    CHECK(!right);
    CHECK(worst == 5);
}

TEST_CASE("sgd: three steps by hand") {
    // lr 0.1, momentum 0.5, weight decay 0.1, gradient 1 in each step, from 2:
    //   g = 1.2      v = 1.2       theta = 1.88
    //   g = 1.188    v = 1.788     theta = 1.7012
    //   g = 1.17012  v = 2.06412   theta = 1.494788
    using parameters = std::vector<std::vector<double>>;
    lab::call<void>("sgd", 1, 0.1, 0.5, 0.1);
    parameters theta{{2}};
    for (const double expected : {1.88, 1.7012, 1.494788}) {
        theta = lab::call<parameters>("sgd::step", 1, 0.1, theta, parameters{{1}});
        REQUIRE(theta.size() == 1);
        CHECK(lab::difference(std::span<const double>(theta[0]), std::vector<double>{expected}, {1e-14}) == "");
    }
}

TEST_CASE("classifier: the gradient of both layers") {
    auto net = lab::initialised<double>(5, 7, 3, lab::seed());
    net.b1 = lab::numbers<double>(7, 60), net.b2 = lab::numbers<double>(3, 61);
    const auto x = lab::matrix<double>(6, 5, 62);
    const auto labels = lab::labels(6, 3, 63);
    CHECK(lab::fault_of_gradient(net, x, labels) == "");
}

TEST_CASE("train: three spirals") {
    const lab::spirals<float> learn(600, 70), test(300, 71);
    const auto net = lab::initialised<float>(2, 32, 3, lab::seed());
    const auto [losses, after] =
        lab::train(net, learn.x, learn.labels,
                   {.epochs = 40, .batch = 20, .lr = 0.05, .momentum = 0.9, .weight_decay = 1e-4, .seed = lab::seed()});
    REQUIRE(losses.size() == 40);
    CHECK(losses.back() < 0.3 * losses.front());
    CHECK(lab::accuracy(lab::call<lab::array<float>>("logits_of float", after, test.x), test.labels) >= 0.95);
}
