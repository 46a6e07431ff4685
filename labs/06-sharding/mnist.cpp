// A real network trained by your sharded Adam: 784-128-10 on MNIST, on four ranks that are threads. Not graded.
// README.md has the commands.
//   mnist [FOLDER] [--stage 0|1|2|3]      FOLDER holds MNIST's four files; default as labs/mnist.hpp says

#include "zero1.hpp"
#include "zero2.hpp"
#include "zero3.hpp"

#include "../mnist.hpp"

#include <cairn/comm/collectives/ring.hpp>
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

using floats = std::vector<float>;
using counted = cairn::counting_communicator<cairn::threads_communicator>;

constexpr std::size_t inputs = 784, hidden = 128, outputs = 10, batch = 32;  // of each rank
constexpr int ranks = 4;
const std::vector<std::size_t> layers{hidden * (inputs + 1), outputs*(hidden + 1)};  // weights, then biases

struct digits {
    floats x;  // 784 pixels of each image, in [0, 1]
    std::vector<std::uint8_t> labels;
};

digits read(const std::filesystem::path& folder, cairn::part which) {
    const auto set = cairn::read_mnist(folder, which);
    digits d;
    for (const auto pixel : set->pixels) d.x.push_back(static_cast<float>(pixel) / 255);
    d.labels.assign(set->labels.begin(), set->labels.end());
    return d;
}

/// y = x Wᵀ + b of some rows; `layer` holds W (out × in), then b.
void linear(const floats& layer, const floats& x, std::size_t in, std::size_t out, floats& y) {
    const std::size_t rows = x.size() / in;
    y.assign(rows * out, 0);
    for (std::size_t n = 0; n < rows; ++n)
        for (std::size_t o = 0; o < out; ++o) {
            float lanes[16] = {};
            for (std::size_t i = 0; i < in; i += 16)
                for (std::size_t l = 0; l < 16; ++l) lanes[l] += layer[o * in + i + l] * x[n * in + i + l];
            for (const float lane : lanes) y[n * out + o] += lane;
            y[n * out + o] += layer[out * in + o];
        }
}

/// The gradient of the layer; dx where it is asked for.
floats linear_backward(const floats& layer, const floats& x, const floats& dy, std::size_t in, std::size_t out,
                       floats* dx) {
    floats gradient(layer.size());
    if (dx) dx->assign(x.size(), 0);
    for (std::size_t n = 0; n < x.size() / in; ++n)
        for (std::size_t o = 0; o < out; ++o) {
            const float g = dy[n * out + o];
            if (g == 0) continue;
            for (std::size_t i = 0; i < in; ++i) gradient[o * in + i] += g * x[n * in + i];
            gradient[out * in + o] += g;
            if (!dx) continue;
            for (std::size_t i = 0; i < in; ++i) (*dx)[n * in + i] += g * layer[o * in + i];
        }
    return gradient;
}

/// The loss of a batch; logits become its gradient.
double cross_entropy(floats& logits, const std::uint8_t* labels) {
    double loss = 0;
    const std::size_t rows = logits.size() / outputs;
    for (std::size_t n = 0; n < rows; ++n) {
        float* z = &logits[n * outputs];
        const float most = *std::max_element(z, z + outputs);
        float sum = 0;
        for (std::size_t j = 0; j < outputs; ++j) sum += std::exp(z[j] - most);
        loss += std::log(sum) - (z[labels[n]] - most);
        for (std::size_t j = 0; j < outputs; ++j)
            z[j] = (std::exp(z[j] - most) / sum - (j == labels[n])) / static_cast<float>(rows);
    }
    return loss / static_cast<double>(rows);
}

/// One micro-batch through both layers. gather(l) gives a layer's parameters, reduce(l, gradient) takes its gradient.
struct network {
    floats layer[2], x, h, z;
    double loss = 0;

    void forward(std::size_t l) {
        linear(layer[l], l ? h : x, l ? hidden : inputs, l ? outputs : hidden, l ? z : h);
        if (l == 0)
            for (float& v : h) v = std::max(v, 0.0f);
    }
    floats dh;
    floats backward(std::size_t l, const std::uint8_t* labels) {
        if (l == 0) return linear_backward(layer[0], x, dh, inputs, hidden, nullptr);
        loss = cross_entropy(z, labels);
        floats gradient = linear_backward(layer[1], h, z, hidden, outputs, &dh);
        for (std::size_t i = 0; i < h.size(); ++i)
            if (!(h[i] > 0)) dh[i] = 0;
        return gradient;
    }
};

/// This rank's training, whatever the stage.
class trainer {
public:
    trainer(counted& c, int stage, const floats& initial) : c_(c), stage_(stage) {
        const int p = stage == 0 ? 1 : c.size(), r = stage == 0 ? 0 : c.rank();
        state_ = stage == 3   ? student::zero3_start(layers, initial, p, r)
                 : stage == 2 ? student::zero2_start(initial, p, r)
                              : student::zero1_start(initial, p, r);
    }
    std::size_t numbers() const {
        return state_.parameters.size() + state_.gradients.size() + state_.m.size() + state_.v.size();
    }
    floats gathered(std::size_t l) {
        if (stage_ == 3) return student::zero3_gather(c_, state_, layers, l);
        const auto begin = state_.parameters.begin() + (l ? static_cast<std::ptrdiff_t>(layers[0]) : 0);
        return floats(begin, begin + static_cast<std::ptrdiff_t>(layers[l]));
    }
    double step(const float* x, const std::uint8_t* labels) {
        net_.x.assign(x, x + batch * inputs);
        floats whole(layers[0] + layers[1]);
        for (const auto& [what, number] : student::zero3_plan(2)) {
            const auto l = static_cast<std::size_t>(number);
            if (what == student::action::gather) net_.layer[l] = gathered(l);
            if (what == student::action::forward) net_.forward(l);
            if (what == student::action::backward) gradient_ = net_.backward(l, labels);
            if (what == student::action::release) net_.layer[l].clear();
            if (what != student::action::reduce) continue;
            if (stage_ == 3) student::zero3_reduce(c_, state_, layers, l, gradient_);
            std::copy(gradient_.begin(), gradient_.end(),
                      whole.begin() + (l ? static_cast<std::ptrdiff_t>(layers[0]) : 0));
        }
        if (stage_ == 3) {
            student::zero3_step(c_, state_, settings_, 1);
        } else if (stage_ == 2) {
            student::zero2_accumulate(c_, state_, whole);
            student::zero2_step(c_, state_, settings_, 1);
        } else if (stage_ == 1) {
            student::zero1_accumulate(c_, state_, whole);
            student::zero1_step(c_, state_, settings_, 1);
        } else {
            cairn::ring_all_reduce(c_, std::span<float>(whole));
            for (float& g : whole) g /= static_cast<float>(c_.size());
            student::adam(settings_, ++state_.steps, whole, state_.parameters, state_.m, state_.v);
        }
        return net_.loss;
    }

private:
    counted& c_;
    int stage_;
    student::rank_state state_;
    student::adam_settings settings_{};
    network net_;
    floats gradient_;
};

double accuracy(trainer& t, const digits& d) {
    network net;
    net.x = d.x;
    for (std::size_t l = 0; l < 2; ++l) net.layer[l] = t.gathered(l), net.forward(l);
    std::size_t right = 0;
    for (std::size_t n = 0; n < d.labels.size(); ++n) {
        const float* z = &net.z[n * outputs];
        right += std::max_element(z, z + outputs) - z == d.labels[n];
    }
    return 100.0 * static_cast<double>(right) / static_cast<double>(d.labels.size());
}

}  // namespace

int main(int argc, char** argv) try {
    std::filesystem::path given;
    int stage = 3;
    for (int i = 1; i < argc; ++i)
        if (std::string(argv[i]) == "--stage" && i + 1 < argc)
            stage = std::atoi(argv[++i]);
        else
            given = argv[i];
    const std::filesystem::path folder = lab::mnist_folder(given);
    if (folder.empty()) return 0;
    const digits learn = read(folder, cairn::part::train), test = read(folder, cairn::part::test);
    floats initial(layers[0] + layers[1]);
    const cairn::random_stream random{1, 1, 0};
    for (std::size_t l = 0; l < 2; ++l) {
        const std::size_t in = l ? hidden : inputs, begin = l ? layers[0] : 0;
        const double size = std::sqrt(6.0 / static_cast<double>(in));
        for (std::size_t i = 0; i < (l ? outputs : hidden) * in; ++i)
            initial[begin + i] = static_cast<float>(size * (2 * random.uniform(begin + i) - 1));
    }
    cairn::run_ranks(ranks, {.kernel_threads = 1}, [&](cairn::threads_communicator& world) {
        counted c(world.split(0, world.rank()));
        trainer t(c, stage, initial);
        const std::size_t steps = learn.labels.size() / (batch * ranks);
        std::int64_t sent = 0;
        for (int epoch = 1; epoch <= 4; ++epoch) {
            double loss = 0;
            for (std::size_t s = 0; s < steps; ++s) {
                const std::size_t at = (s * ranks + static_cast<std::size_t>(c.rank())) * batch;
                const std::int64_t before = c.counts().bytes;
                loss += t.step(&learn.x[at * inputs], &learn.labels[at]) / static_cast<double>(steps);
                sent = c.counts().bytes - before;
            }
            const double right = accuracy(t, test);
            if (c.rank() == 0)
                std::printf("epoch %d: loss %.6f, %.2f %% of the test images right\n", epoch, loss, right);
        }
        if (c.rank() == 0)
            std::printf("stage %d: rank 0 keeps %zu bytes and sends %lld a step\n", stage, 4 * t.numbers(),
                        static_cast<long long>(sent));
    });
} catch (const std::exception& error) {
    std::fprintf(stderr, "mnist: %s\n", error.what());
    return 1;
}
