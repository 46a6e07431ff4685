// The libtorch side of Cairn's comparisons: the same networks, losses and optimizer, trained as fast as libtorch can.
//
//   torch_peer --model resnet18-cifar --threads 2 --layout channels_last           speed, on generated data
//   torch_peer --model resnet20-cifar --train --data DIR --epochs 5 --seed 1       accuracy, on real data
//
// The last line of the output is one JSON object. benchmarks/compare_peers runs this next to Cairn's `train`.
#include "dataset.hpp"
#include "op_profile.hpp"
#include "optimizer.hpp"
#include "process.hpp"
#include "workload.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr const char* usage = R"(torch_peer: trains Cairn's benchmark networks with libtorch

  --model NAME           resnet18-cifar, resnet20-cifar, resnet32-cifar, resnet56-cifar, resnet50-imagenet, cosmoflow,
                         lenet, autoencoder
  --batch N              samples a step (default: the model's own)
  --threads N            threads (default 2)
  --layout NAME          default or channels_last (default: default)
  --allocator NAME       best (default: jemalloc if installed, else glibc tuned) or system (glibc as it is)
  --seed S               seed of weights, data order and augmentation (default 1)
  --size N               side of CosmoFlow's volume (default 64)
speed, on generated data:
  --steps N              measured steps (default 10)
  --warmup N             steps before them (default 3)
  --optimizer NAME       sgd (default) or adam: the arithmetic of torch::optim's with fewer temporaries;
                         torch_sgd or torch_adam: torch::optim's own
  --profile              print the self time of each operator (profiling slows the small networks)
accuracy, on real data (models *-cifar and lenet):
  --train --data DIR     folder with data_batch_[1-5].bin and test_batch.bin, or with the four unpacked MNIST idx files
  --epochs N             default 5
  --lr X                 peak learning rate (default 0.4; lenet 0.05)
  --pad N --flip 0|1     random crop out of N pixels of zero padding, random flip (default 4 and 1; lenet 2 and 0)
)";

struct options {
    std::string model, layout = "default", optimizer = "sgd", allocator = "best", data;
    int64_t batch = 0, threads = 2, steps = 10, warmup = 3, seed = 1, size = 64, epochs = 5, pad = -1, flip = -1;
    double lr = 0;
    bool train = false, profile = false;

    [[nodiscard]] bool channels_last() const { return layout == "channels_last"; }
};

options parse(int argc, char** argv) {
    options o;
    const std::map<std::string, std::string*> texts{{"--model", &o.model},
                                                    {"--layout", &o.layout},
                                                    {"--optimizer", &o.optimizer},
                                                    {"--allocator", &o.allocator},
                                                    {"--data", &o.data}};
    const std::map<std::string, int64_t*> numbers{
        {"--batch", &o.batch},   {"--threads", &o.threads}, {"--steps", &o.steps},
        {"--warmup", &o.warmup}, {"--seed", &o.seed},       {"--size", &o.size},
        {"--epochs", &o.epochs}, {"--pad", &o.pad},         {"--flip", &o.flip}};
    const std::map<std::string, bool*> flags{{"--train", &o.train}, {"--profile", &o.profile}};
    for (int i = 1; i < argc; ++i) {
        const std::string key = argv[i];
        if (key == "--help" || key == "-h") {
            std::fputs(usage, stdout);
            std::exit(0);
        }
        if (const auto f = flags.find(key); f != flags.end()) {
            *f->second = true;
            continue;
        }
        const bool known = texts.count(key) + numbers.count(key) > 0 || key == "--lr";
        if (!known) {
            throw std::invalid_argument("option '" + key + "' is unknown; see --help");
        }
        if (i + 1 == argc) {
            throw std::invalid_argument("option '" + key + "' needs a value");
        }
        const std::string value = argv[++i];
        if (const auto t = texts.find(key); t != texts.end()) {
            *t->second = value;
            continue;
        }
        try {
            std::size_t used = 0;
            if (key == "--lr") {
                o.lr = std::stod(value, &used);
            } else {
                *numbers.at(key) = std::stoll(value, &used);
            }
            if (used != value.size()) {
                throw std::invalid_argument(value);
            }
        } catch (const std::exception&) {
            throw std::invalid_argument("option '" + key + "': '" + value + "' is no number");
        }
    }
    const auto require = [](bool ok, const std::string& message) {
        if (!ok) {
            throw std::invalid_argument(message);
        }
    };
    require(!o.model.empty(), "--model is missing; see --help");
    require(o.layout == "default" || o.layout == "channels_last", "--layout must be default or channels_last");
    require(o.allocator == "best" || o.allocator == "system", "--allocator must be best or system");
    require(o.threads >= 1, "--threads must be at least 1");
    require(o.steps >= 1 && o.warmup >= 0 && o.epochs >= 1, "--steps and --epochs must be at least 1, --warmup 0");
    require(o.batch >= 0, "--batch must be at least 1");
    require(!o.train || !o.data.empty(), "--train needs --data DIR");
    return o;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    const std::size_t n = v.size();
    return n % 2 == 1 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

std::unique_ptr<peer::optimizer> make_optimizer(const std::string& name, std::vector<torch::Tensor> params, double lr) {
    using namespace torch::optim;
    if (name == "sgd") {
        return std::make_unique<peer::sgd>(params, peer::sgd::config{lr});
    }
    if (name == "adam") {
        return std::make_unique<peer::adam>(params, peer::adam::config{lr});
    }
    if (name == "torch_sgd") {
        return std::make_unique<peer::library_optimizer<SGD, SGDOptions>>(
            params, SGDOptions(lr).momentum(0.9).weight_decay(5e-4));
    }
    if (name == "torch_adam") {
        return std::make_unique<peer::library_optimizer<Adam, AdamOptions>>(params, AdamOptions(lr));
    }
    throw std::invalid_argument("--optimizer '" + name + "' is unknown; known are: sgd adam torch_sgd torch_adam");
}

/// Trains on one generated batch and prints the median speed of the measured steps.
void measure_speed(const options& o, const peer::workload& w) {
    const int64_t baseline = peer::status_bytes("VmRSS");  // the libraries themselves
    const int64_t n = o.batch > 0 ? o.batch : w.batch;
    auto net = w.build();
    peer::initialise(*net);
    peer::set_layout(*net, o.channels_last());
    net->train();

    auto shape = w.sample;
    shape.insert(shape.begin(), n);
    torch::Tensor x, target;
    switch (w.loss) {
        case peer::loss_kind::cross_entropy:
            x = torch::randn(shape);
            target = torch::randint(w.outputs, {n}, torch::kInt64);
            break;
        case peer::loss_kind::mean_squared:
            x = torch::randn(shape);
            target = torch::randn({n, w.outputs});
            break;
        case peer::loss_kind::binary_cross_entropy:
            x = torch::rand(shape);
            target = x;
            break;
    }
    x = x.contiguous(peer::memory_format(o.channels_last(), x.dim()));

    constexpr double lr = 1e-3;  // small: random targets are not to be learnt, and nothing may overflow
    const auto optimizer = make_optimizer(o.optimizer, net->parameters(), lr);
    double loss_value = 0;
    const auto step = [&] {
        auto loss = peer::loss_of(w.loss, net->forward(x), target);
        loss.backward();
        optimizer->step();
        optimizer->zero_grad();  // drops the gradients; libtorch 1.13's own zero_grad can only fill them with zeros
        loss_value = loss.item<double>();
    };

    for (int64_t i = 0; i < o.warmup; ++i) {
        step();
    }
    std::vector<double> seconds;
    {
        std::unique_ptr<peer::op_profile> profile;
        if (o.profile) {
            profile = std::make_unique<peer::op_profile>();
        }
        for (int64_t i = 0; i < o.steps; ++i) {
            const double begin = now();
            step();
            seconds.push_back(now() - begin);
        }
    }
    if (o.profile) {
        peer::op_profile::print(static_cast<int>(o.steps));
    }

    const double middle = median(seconds), best = *std::min_element(seconds.begin(), seconds.end());
    int64_t parameters = 0;
    for (const auto& p : net->parameters()) {
        parameters += p.numel();
    }
    std::printf("%s, batch %ld, %ld threads, layout %s: %.2f samples/s (median of %ld steps; best %.2f), loss %.4f\n",
                w.name.c_str(), n, o.threads, o.layout.c_str(), n / middle, o.steps, n / best, loss_value);
    std::printf(
        "{\"samples_per_s\": %.6g, \"best_samples_per_s\": %.6g, \"peak_bytes\": %ld, \"baseline_bytes\": %ld, "
        "\"model\": \"%s\", \"batch\": %ld, \"threads\": %ld, \"layout\": \"%s\", \"steps\": %ld, "
        "\"parameters\": %ld, \"optimizer\": \"%s\", \"allocator\": \"%s\", \"loss\": %.6g, "
        "\"library\": \"libtorch %s\"}\n",
        n / middle, n / best, peer::status_bytes("VmHWM"), baseline, w.name.c_str(), n, o.threads, o.layout.c_str(),
        o.steps, parameters, o.optimizer.c_str(), peer::allocator_in_use().c_str(), loss_value, TORCH_VERSION);
    if (!std::isfinite(loss_value)) {
        throw std::runtime_error(w.name + ": the loss is not finite");
    }
}

/// Learning rate of step t of `total`: linear from 0.05 peak to peak over the first fifth, then half a cosine to 0.
double one_cycle(int64_t t, int64_t total, double peak) {
    const int64_t warm = total / 5;
    if (t < warm) {
        return peak * (0.05 + 0.95 * static_cast<double>(t) / static_cast<double>(warm));
    }
    const double done = static_cast<double>(t - warm) / static_cast<double>(total - warm);
    return 0.5 * peak * (1 + std::cos(M_PI * done));
}

double test_accuracy(torch::nn::Sequential& net, const peer::image_set& set, const peer::normalisation& norm,
                     at::MemoryFormat format) {
    const torch::NoGradGuard no_grad;
    net->eval();
    std::vector<int64_t> order(static_cast<std::size_t>(set.size()));
    std::iota(order.begin(), order.end(), 0);
    std::mt19937_64 unused;
    int64_t correct = 0;
    for (int64_t at = 0; at < set.size(); at += 500) {
        const auto b =
            peer::make_batch(set, norm, order, at, std::min<int64_t>(500, set.size() - at), {}, unused, format);
        correct += net->forward(b.images).argmax(1).eq(b.labels).sum().item<int64_t>();
    }
    net->train();
    return static_cast<double>(correct) / static_cast<double>(set.size());
}

/// Trains on real images: Nesterov SGD, momentum 0.9, weight decay 5e-4 on every parameter, one-cycle schedule.
void train_real(const options& o, const peer::workload& w) {
    const bool mnist = w.name == "lenet";
    if (!mnist && w.sample != std::vector<int64_t>{3, 32, 32}) {
        throw std::invalid_argument("--train knows the CIFAR networks and lenet, not '" + w.name + "'");
    }
    const auto load = mnist ? peer::load_mnist : peer::load_cifar;
    const auto train_set = load(o.data, true), test_set = load(o.data, false);
    const peer::normalisation norm =
        mnist ? peer::normalisation{{0.1307F}, {0.3081F}}
              : peer::normalisation{{0.4914F, 0.4822F, 0.4465F}, {0.2470F, 0.2435F, 0.2616F}};
    const peer::augmentation aug{o.pad >= 0 ? o.pad : (mnist ? 2 : 4), o.flip >= 0 ? o.flip == 1 : !mnist};
    const double peak = o.lr > 0 ? o.lr : (mnist ? 0.05 : 0.4);
    const int64_t n = o.batch > 0 ? o.batch : w.batch;
    const int64_t steps = train_set.size() / n;  // the last, short batch of an epoch is dropped
    if (steps == 0) {
        throw std::invalid_argument("--batch " + std::to_string(n) + " is larger than the training set of " +
                                    std::to_string(train_set.size()) + " images in " + o.data);
    }
    auto net = w.build();
    peer::initialise(*net);
    peer::set_layout(*net, o.channels_last());
    net->train();
    const auto format = peer::memory_format(o.channels_last(), 4);
    peer::sgd sgd(net->parameters(), {/*lr*/ 0, /*momentum*/ 0.9, /*weight_decay*/ 5e-4, /*nesterov*/ true});

    std::mt19937_64 random(static_cast<uint64_t>(o.seed));
    std::vector<int64_t> order(static_cast<std::size_t>(train_set.size()));
    std::iota(order.begin(), order.end(), 0);
    const double begin = now();
    double accuracy = 0, train_loss = 0;
    int64_t t = 0;
    for (int64_t epoch = 1; epoch <= o.epochs; ++epoch) {
        std::shuffle(order.begin(), order.end(), random);
        train_loss = 0;
        for (int64_t i = 0; i < steps; ++i, ++t) {
            const auto b = peer::make_batch(train_set, norm, order, i * n, n, aug, random, format);
            sgd.set_lr(one_cycle(t, steps * o.epochs, peak));
            auto loss = peer::loss_of(w.loss, net->forward(b.images), b.labels);
            loss.backward();
            sgd.step();
            sgd.zero_grad();
            const double value = loss.item<double>();
            if (!std::isfinite(value)) {
                throw std::runtime_error("the loss is not finite at step " + std::to_string(t) + " of epoch " +
                                         std::to_string(epoch) + ": lower --lr (now " + std::to_string(peak) + ")");
            }
            train_loss += value / static_cast<double>(steps);
        }
        accuracy = test_accuracy(net, test_set, norm, format);
        std::printf("epoch %ld/%ld: training loss %.4f, test accuracy %.4f, %.1f s\n", epoch, o.epochs, train_loss,
                    accuracy, now() - begin);
        std::fflush(stdout);
    }
    std::printf(
        "{\"test_accuracy\": %.6g, \"train_loss\": %.6g, \"seed\": %ld, \"epochs\": %ld, \"seconds\": %.6g, "
        "\"model\": \"%s\", \"batch\": %ld, \"threads\": %ld, \"layout\": \"%s\", \"lr\": %g, \"pad\": %ld, "
        "\"flip\": %s, \"peak_bytes\": %ld, \"library\": \"libtorch %s\"}\n",
        accuracy, train_loss, o.seed, o.epochs, now() - begin, w.name.c_str(), n, o.threads, o.layout.c_str(), peak,
        aug.pad, aug.flip ? "true" : "false", peer::status_bytes("VmHWM"), TORCH_VERSION);
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const auto o = parse(argc, argv);
        peer::restart_with_environment(static_cast<int>(o.threads), o.allocator == "best", argv);
        const auto w = peer::find_workload(o.model, o.size);
        at::set_num_threads(static_cast<int>(o.threads));
        at::globalContext().setFlushDenormal(true);
        if (!at::hasMKLDNN()) {
            std::fputs("torch_peer: warning: this libtorch has no oneDNN and is slow\n", stderr);
        }
        torch::manual_seed(static_cast<uint64_t>(o.seed));
        o.train ? train_real(o, w) : measure_speed(o, w);
    } catch (const c10::Error& e) {
        std::fprintf(stderr, "torch_peer: %s\n", e.what_without_backtrace());
        return 1;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "torch_peer: %s\n", e.what());
        return 1;
    }
    return 0;
}
