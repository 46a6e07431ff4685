// A real classifier: trains what you wrote on MNIST, 60,000 handwritten digits. Not graded. README.md has the commands.
//   mnist [FOLDER]      FOLDER holds MNIST's four files; default $CAIRN_DATA/mnist, data/mnist, ../shared/data/mnist

#include "classifier.hpp"

#include "../mnist.hpp"

#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>

namespace {

struct digits {
    student::matrix<float> x;  // (images, 784), pixels in [0, 1]
    std::vector<int> labels;
};

digits read(const std::filesystem::path& folder, cairn::part which) {
    const auto set = cairn::read_mnist(folder, which);
    const auto count = static_cast<std::size_t>(set->count);
    digits d{student::matrix<float>::from_shape({count, set->pixels.size() / count}), {}};
    for (std::size_t i = 0; i < d.x.size(); ++i) d.x.data()[i] = static_cast<float>(set->pixels[i]) / 255;
    d.labels.assign(set->labels.begin(), set->labels.end());
    return d;
}

double accuracy(const student::classifier<float>& net, const digits& d) {
    const student::matrix<float> z = student::logits_of(net, d.x);
    std::size_t right = 0;
    for (std::size_t n = 0; n < z.shape(0); ++n) {
        const auto scores = student::row(z, n);
        right += std::max_element(scores.begin(), scores.end()) - scores.begin() == d.labels[n];
    }
    return 100.0 * static_cast<double>(right) / static_cast<double>(z.shape(0));
}

}  // namespace

int main(int argc, char** argv) try {
    const std::filesystem::path folder = lab::mnist_folder(argc > 1 ? argv[1] : "");
    if (folder.empty()) return 0;
    const digits learn = read(folder, cairn::part::train), test = read(folder, cairn::part::test);
    auto net = student::initialised<float>(learn.x.shape(1), 64, 10, 1);
    std::printf("784 pixels, 64 hidden, 10 digits; before training %.2f %% of the test images are right\n",
                accuracy(net, test));
    for (std::uint64_t epoch = 1; epoch <= 5; ++epoch) {  // one call each, to look in between: velocities start anew
        const auto start = std::chrono::steady_clock::now();
        const double loss =
            student::train(net, learn.x, learn.labels,
                           {.epochs = 1, .batch = 64, .optimizer = {.lr = epoch < 4 ? 0.05 : 0.01}, .seed = epoch})
                .at(0);
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        std::printf("epoch %d: loss %.4f, %.2f %% right, %.1f s\n", static_cast<int>(epoch), loss, accuracy(net, test),
                    seconds.count());
    }
} catch (const std::exception& error) {
    std::fprintf(stderr, "mnist: %s\n", error.what());
    return 1;
}
