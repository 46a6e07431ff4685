// The tests that grade beside the public ones.

#include "../tests/arrays.hpp"

#include "gradient_check.hpp"

#include "../tests/counted.hpp"  // behind what is handed in, which does not see it

namespace {

using lab::counted;

/// The numbers of `x` as elements that count.
student::matrix<counted> counting(const student::matrix<double>& x) {
    student::matrix<counted> c = student::matrix<counted>::from_shape({x.shape(0), x.shape(1)});
    for (std::size_t i = 0; i < x.size(); ++i) c.data()[i] = x.data()[i];
    return c;
}

double value(const counted& c) { return static_cast<double>(c); }

}  // namespace

TEST_CASE("tensors: any number of axes") {
    using sizes = std::vector<std::size_t>;
    CHECK(student::row_major_strides({}) == sizes{});
    CHECK(student::row_major_strides({2, 1, 4, 3, 1}) == sizes{12, 12, 3, 1, 1});
    CHECK(student::offset_of({}, {}) == 0);
    sizes shape;
    for (std::uint32_t axis = 0; axis < 4; ++axis) shape.push_back(static_cast<std::size_t>(lab::number(1, 5, axis)));
    const sizes strides = student::row_major_strides(shape);
    REQUIRE(strides.size() == 4);
    std::size_t place = 0;
    for (std::size_t i = 0; i < shape[0]; ++i)
        for (std::size_t j = 0; j < shape[1]; ++j)
            for (std::size_t k = 0; k < shape[2]; ++k)
                for (std::size_t l = 0; l < shape[3]; ++l, ++place)
                    REQUIRE(student::offset_of(strides, {i, j, k, l}) == place);
}

TEST_CASE("tensors: transposition moves few cache lines") {
    const auto rows = static_cast<std::size_t>(lab::number(100, 150, 1)),
               columns = static_cast<std::size_t>(lab::number(100, 150, 2));
    const auto x = lab::matrix<double>(rows, columns, 10);
    const student::matrix<counted> c = counting(x);
    lab::reset_counts();
    const student::matrix<counted> y = student::transposed(c);
    const std::int64_t moved = lab::cache.moved, elements = static_cast<std::int64_t>(rows * columns);
    REQUIRE(y.shape(0) == columns);
    REQUIRE(y.shape(1) == rows);
    for (std::size_t i = 0; i < rows; ++i)
        for (std::size_t j = 0; j < columns; ++j) REQUIRE(value(y(j, i)) == x(i, j));
    // Each line of both matrices once are 2/8 a element; 5/8 leave room for filling y first and for lines that two
    // tiles share. Going down columns moves 9/8.
    INFO(moved << " cache lines moved for " << elements << " elements");
    CHECK(8 * moved <= 5 * elements);
}

TEST_CASE("tensors: standardised columns far from zero") {
    for (const std::size_t rows : {2, 57})
        CHECK(lab::fault_of_standardised(rows, static_cast<std::size_t>(lab::number(1, 9, 3)), 11, 1e6) == "");
}

TEST_CASE("tensors: standardising computes nothing twice") {
    const student::matrix<counted> x = counting(lab::matrix<double>(120, 40, 12));
    lab::reset_counts();
    const student::matrix<counted> y = student::standardised(x, counted(1e-3));
    const std::int64_t operations = lab::operations, allocated = lab::allocated, elements = 120 * 40;
    REQUIRE(y.shape(0) == 120);
    REQUIRE(y.shape(1) == 40);
    // The result is still right.
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < 120; ++i) sum += value(y(i, 3)), squares += value(y(i, 3)) * value(y(i, 3));
    CHECK(std::abs(sum) < 1e-9);
    CHECK(std::abs(squares / 120 - 1) < 0.1);
    INFO(operations << " operations, " << allocated << " bytes allocated for " << elements << " elements");
    CHECK(operations <= 12 * elements);
    CHECK(allocated <= 8 * (2 * elements + elements / 2));
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
    CHECK_THROWS_AS(student::linear_forward(x, w, lab::vec<double>(5, 38)), std::invalid_argument);
    CHECK_THROWS_AS(student::linear_forward(x, lab::matrix<double>(5, 4, 37), lab::vec<double>(4, 38)),
                    std::invalid_argument);
    CHECK_THROWS_AS(student::linear_backward(x, w, lab::matrix<double>(3, 5, 39)), std::invalid_argument);
    CHECK_THROWS_AS(student::linear_backward(x, lab::matrix<double>(5, 4, 37), lab::matrix<double>(2, 5, 39)),
                    std::invalid_argument);
}

TEST_CASE("linear: products walk along rows") {
    const std::size_t batch = 10, in = 96, out = 100;
    const auto x = lab::matrix<double>(batch, in, 40), w = lab::matrix<double>(out, in, 41),
               dy = lab::matrix<double>(batch, out, 42);
    student::vec<counted> b = student::vec<counted>::from_shape({out});
    for (std::size_t o = 0; o < out; ++o) b(o) = counted(0);
    const auto cx = counting(x), cw = counting(w), cdy = counting(dy);
    const auto products = static_cast<std::int64_t>(batch * in * out);
    // A loop along rows moves a line for every 8 products and matrix that does not fit; one down a column moves one for
    // every product.
    lab::reset_counts();
    const student::matrix<counted> y = student::linear_forward(cx, cw, b);
    REQUIRE(y.shape(1) == out);
    INFO("forward: " << lab::cache.moved << " cache lines moved for " << products << " products");
    CHECK(8 * lab::cache.moved <= 3 * products);
    lab::reset_counts();
    const student::linear_gradients<counted> d = student::linear_backward(cx, cw, cdy);
    REQUIRE(d.w.shape(1) == in);
    INFO("backward: " << lab::cache.moved << " cache lines moved for " << 2 * products << " products");
    CHECK(8 * lab::cache.moved <= 3 * 2 * products);
    // One element of each, so that what was counted is the product.
    double y_37 = 0, dx_37 = 0, dw_37 = 0;
    for (std::size_t i = 0; i < in; ++i) y_37 += x(3, i) * w(7, i);
    for (std::size_t o = 0; o < out; ++o) dx_37 += dy(3, o) * w(o, 7);
    for (std::size_t n = 0; n < batch; ++n) dw_37 += dy(n, 3) * x(n, 7);
    CHECK(std::abs(value(y(3, 7)) - y_37) < 1e-12);
    CHECK(std::abs(value(d.x(3, 7)) - dx_37) < 1e-12);
    CHECK(std::abs(value(d.w(3, 7)) - dw_37) < 1e-12);
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
    student::matrix<double> low = student::matrix<double>::from_shape({1, 3});
    for (std::size_t k = 0; k < 3; ++k) low(0, k) = -1e4;
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
    CHECK_THROWS_AS(student::cross_entropy(row, {static_cast<int>(classes)}), std::invalid_argument);
    CHECK_THROWS_AS(student::cross_entropy(row, {-1}), std::invalid_argument);
    CHECK_THROWS_AS(student::cross_entropy(one, {0, 0, 0}), std::invalid_argument);
    CHECK_THROWS_AS(student::cross_entropy(lab::matrix<double>(0, 3, 62), {}), std::invalid_argument);
}

TEST_CASE("gradient check: large and small parameters, two calls each") {
    // Σ log θ_i: its derivatives are 1/θ and 2/θ³, so the errors are ε^⅔ (|f| / 2 + 1/3) / θ with a step of ∛ε θ.
    for (const double size : {1.0, 1e4}) {
        auto theta = lab::numbers<double>(6, 70);
        for (double& t : theta) t = size * (2 + t);
        const std::vector<double> before = theta;
        int calls = 0;
        const auto f = [&](std::span<const double> at) {
            ++calls;
            long double sum = 0;
            for (const double t : at) sum += std::log(static_cast<long double>(t));
            return static_cast<double>(sum);
        };
        const auto got = student::numerical_gradient(f, std::span<const double>(theta));
        CHECK(calls == 12);
        CHECK(theta == before);
        std::vector<double> expected(6), bound(6);
        for (std::size_t i = 0; i < 6; ++i) {
            expected[i] = 1 / theta[i];
            bound[i] = 10 * std::pow(lab::epsilon<double>, 2.0 / 3) * (std::abs(f(theta)) / 2 + 1.0 / 3) / theta[i];
        }
        CHECK(lab::difference(std::span<const double>(got), expected, bound) == "");
    }
    CHECK(student::numerical_gradient([](std::span<const double>) { return 1.0; }, std::span<const double>()).empty());
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
        CHECK(student::check_gradient(f, theta, right).right);
        const auto where = static_cast<std::size_t>(lab::number(0, static_cast<int>(n) - 1, 82));
        auto wrong = right;
        wrong[where] += 1e-3 * largest;
        const auto verdict = student::check_gradient(f, theta, wrong);
        CHECK(!verdict.right);
        CHECK(verdict.worst == where);
        wrong = right;
        for (double& g : wrong) g *= 1.001;  // such as a mean over 1000 instead of 1001
        CHECK(!student::check_gradient(f, theta, wrong).right);
        wrong = right;
        wrong[where] = std::numeric_limits<double>::quiet_NaN();
        CHECK(!student::check_gradient(f, theta, wrong).right);
        CHECK(student::check_gradient(f, theta, wrong).worst == where);
    }
    const lab::smooth f(3, 83);
    const auto theta = lab::numbers<double>(3, 84);
    const auto nan = [](std::span<const double>) { return std::numeric_limits<double>::quiet_NaN(); };
    CHECK(!student::check_gradient(nan, theta, theta).right);
    CHECK_THROWS_AS(student::check_gradient(f, theta, std::span<const double>(theta).first(2)), std::invalid_argument);
}

TEST_CASE("sgd: learning rates that change, several parameters") {
    auto a = lab::numbers<double>(5, 90), b = lab::numbers<double>(3, 91);
    auto expected_a = a, expected_b = b;
    std::vector<double> velocity_a(5), velocity_b(3);
    const double momentum = 0.9, decay = 0.01;
    student::sgd<double> optimizer({.lr = 0, .momentum = momentum, .weight_decay = decay}), other({.lr = 0.5});
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
        std::vector<double> moved_a = a, moved_b = b;  // the same parameters in other memory
        optimizer.config.lr = lr;
        optimizer.step({std::span<double>(moved_a), std::span<double>(moved_b)},
                       {std::span<const double>(ga), std::span<const double>(gb)});
        std::vector<double> unrelated(4, 1.0);  // another optimizer has velocities of its own
        other.step({std::span<double>(unrelated)}, {std::span<const double>(unrelated)});
        a = moved_a, b = moved_b;
    }
    // Six steps of five operations on numbers below 10.
    CHECK(lab::difference(std::span<const double>(a), expected_a, std::vector<double>(5, 300 * lab::epsilon<double>)) ==
          "");
    CHECK(lab::difference(std::span<const double>(b), expected_b, std::vector<double>(3, 300 * lab::epsilon<double>)) ==
          "");
    std::vector<double> theta(2);
    const std::vector<double> three(3);
    CHECK_THROWS_AS(student::sgd<double>({}).step({std::span<double>(theta)}, {std::span<const double>(three)}),
                    std::invalid_argument);
}

TEST_CASE("train: two epochs to the last batch") {
    const std::size_t rows = 23, hidden = 6;  // batches of 5, 5, 5, 5 and 3
    const auto x = lab::matrix<double>(rows, 4, 120);
    const auto labels = lab::labels(rows, 3, 121);
    auto net = student::initialised<double>(4, hidden, 3, lab::seed());
    lab::plain_classifier plain(net);
    const student::training settings{
        .epochs = 2, .batch = 5, .optimizer = {.lr = 0.1, .momentum = 0.8, .weight_decay = 0.01}, .seed = lab::seed()};
    std::vector<std::vector<double>> velocity, g;
    for (const auto* p : plain.parameters()) velocity.emplace_back(p->size());
    std::vector<double> expected;
    for (std::size_t epoch = 0; epoch < 2; ++epoch) {
        const auto order = student::shuffled(rows, settings.seed, epoch);
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
    const std::vector<double> losses = student::train(net, x, labels, settings);
    // Ten steps, each off by about 1e-15, and none of them makes earlier errors more than some times as large.
    CHECK(lab::difference(std::span<const double>(losses), expected, {1e-11, 1e-11}) == "");
    CHECK(lab::difference(net, plain, 1e-11) == "");
}

TEST_CASE("train: the same bits in every run") {
    const lab::spirals<float> learn(90, 130);
    const student::training settings{.epochs = 3, .batch = 16, .optimizer = {.lr = 0.05}, .seed = lab::seed()};
    auto first = student::initialised<float>(2, 8, 3, 5), second = student::initialised<float>(2, 8, 3, 5);
    const auto losses = student::train(first, learn.x, learn.labels, settings);
    REQUIRE(losses.size() == 3);
    CHECK(losses.back() < losses.front());
    CHECK(student::train(second, learn.x, learn.labels, settings) == losses);
    for (std::size_t i = 0; i < 4; ++i) CHECK(std::ranges::equal(first.parameters()[i], second.parameters()[i]));
}
