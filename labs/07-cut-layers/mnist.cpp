// A real network that is your linear pair: 784-128-10 on MNIST, its hidden numbers cut over ranks that are threads. Not
// graded. README.md has the commands.
//   mnist [FOLDER] [--ranks P]      FOLDER holds MNIST's four files; default as labs/mnist.hpp says

#include "linear_pair.hpp"

#include "../mnist.hpp"

#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/core/random.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>

namespace {

using student::matrix;
using counted = cairn::counting_communicator<cairn::threads_communicator>;

struct digits {
    matrix x;  // (images, 784), pixels in [0, 1]
    std::vector<std::size_t> labels;

    matrix rows(std::size_t begin, std::size_t count) const {
        matrix part(count, x.cols);
        std::copy_n(&x.values[begin * x.cols], count * x.cols, part.values.begin());
        return part;
    }
};

digits read(const std::filesystem::path& folder, cairn::part which) {
    const auto set = cairn::read_mnist(folder, which);
    digits d{matrix(set->labels.size(), 784), {}};
    for (std::size_t i = 0; i < d.x.values.size(); ++i) d.x.values[i] = static_cast<double>(set->pixels[i]) / 255;
    d.labels.assign(set->labels.begin(), set->labels.end());
    return d;
}

/// The loss of the rows from `begin` on; logits become its gradient.
double cross_entropy(matrix& z, const std::vector<std::size_t>& labels, std::size_t begin) {
    double loss = 0;
    for (std::size_t n = 0; n < z.rows; ++n) {
        double most = z(n, 0), sum = 0;
        for (std::size_t j = 0; j < z.cols; ++j) most = std::max(most, z(n, j));
        for (std::size_t j = 0; j < z.cols; ++j) sum += std::exp(z(n, j) - most);
        loss += std::log(sum) + most - z(n, labels[begin + n]);
        for (std::size_t j = 0; j < z.cols; ++j)
            z(n, j) = (std::exp(z(n, j) - most) / sum - (j == labels[begin + n])) / static_cast<double>(z.rows);
    }
    return loss / static_cast<double>(z.rows);
}

student::linear_pair initial() {
    student::linear_pair net{matrix(128, 784), std::vector<double>(128), matrix(10, 128), std::vector<double>(10)};
    std::uint32_t stream = 0;
    for (matrix* w : {&net.w1, &net.w2}) {
        const cairn::random_stream random{1, ++stream, 0};
        for (std::size_t i = 0; i < w->values.size(); ++i)
            w->values[i] = std::sqrt(6.0 / static_cast<double>(w->cols)) * (2 * random.uniform(i) - 1);
    }
    return net;
}

void descend(std::vector<double>& w, const std::vector<double>& gradient) {
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= 0.1 * gradient[i];
}

}  // namespace

int main(int argc, char** argv) try {
    std::filesystem::path given;
    int ranks = 2;
    for (int i = 1; i < argc; ++i)
        if (std::string(argv[i]) == "--ranks" && i + 1 < argc)
            ranks = std::atoi(argv[++i]);
        else
            given = argv[i];
    const std::filesystem::path folder = lab::mnist_folder(given);
    if (folder.empty()) return 0;
    const digits learn = read(folder, cairn::part::train), test = read(folder, cairn::part::test);
    cairn::run_ranks(ranks, {.kernel_threads = 1}, [&](cairn::threads_communicator& world) {
        counted c(world.split(0, world.rank()));
        student::linear_pair mine = student::cut(initial(), c.rank(), c.size());
        student::saved_for_backward saved;
        const std::size_t batch = 64, steps = learn.labels.size() / batch;
        for (int epoch = 1; epoch <= 3; ++epoch) {
            double loss = 0;
            std::size_t right = 0;
            std::int64_t sent = 0;
            for (std::size_t s = 0; s < steps; ++s) {
                const std::int64_t before = c.counts().bytes;
                matrix z = student::forward(c, mine, learn.rows(s * batch, batch), saved);
                loss += cross_entropy(z, learn.labels, s * batch) / static_cast<double>(steps);
                student::linear_pair gradient;
                student::backward(c, mine, saved, z, gradient);
                sent = c.counts().bytes - before;
                descend(mine.w1.values, gradient.w1.values), descend(mine.b1, gradient.b1);
                descend(mine.w2.values, gradient.w2.values), descend(mine.b2, gradient.b2);
            }
            const matrix z = student::forward(c, mine, test.x, saved);
            for (std::size_t n = 0; n < z.rows; ++n) {
                const auto row = z.values.begin() + static_cast<std::ptrdiff_t>(n * z.cols);
                const auto best = std::max_element(row, row + 10) - row;
                right += static_cast<std::size_t>(best) == test.labels[n];
            }
            if (c.rank() == 0)
                std::printf("epoch %d: loss %.9f, %.2f %% of the test images right; rank 0 sends %lld bytes a step\n",
                            epoch, loss, 100.0 * static_cast<double>(right) / static_cast<double>(z.rows),
                            static_cast<long long>(sent));
        }
    });
} catch (const std::exception& error) {
    std::fprintf(stderr, "mnist: %s\n", error.what());
    return 1;
}
