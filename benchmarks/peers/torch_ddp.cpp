// Data-parallel training in libtorch, for the comparison with Cairn on several ranks (benchmarks/compare_ddp).
//
//   mpirun -np 2 torch_ddp --model resnet18-cifar --batch 128 --layout channels_last
//
// The engine is that of DistributedDataParallel, c10d::Reducer over ProcessGroupGloo, driven as
// torch/nn/parallel/distributed.py drives it: gradients are all-reduced in buckets (the first of 1 MB, then 25 MB)
// by threads of Gloo while backward goes on. Only broadcast_buffers is off by default, which costs libtorch nothing:
// each rank keeps its own running statistics, as in Cairn. Rank and size come from mpirun (Open MPI); no MPI is used.
// The last line of the output is one JSON object, from rank 0.
#include "optimizer.hpp"
#include "process.hpp"
#include "workload.hpp"

#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr const char* usage = R"(torch_ddp: data-parallel training of Cairn's benchmark networks with libtorch and Gloo

  --model NAME        as torch_peer (default resnet18-cifar)
  --batch N           samples a step over all ranks (default: the model's own); a multiple of the ranks
  --threads N         threads a rank (default 1)
  --layout NAME       default or channels_last (default: default)
  --allocator NAME    best (default) or system
  --steps N           measured steps (default 10)
  --warmup N          steps before them (default 3; the buckets are made anew in the second)
  --size N            side of CosmoFlow's volume (default 64)
  --seed S            seed of weights and data (default 1)
  --bucket-view 0|1   gradients live in the buckets instead of being copied to and fro (default 1)
  --buffers 0|1       broadcast the running statistics of rank 0 before every step (default 0)
  --interface NAME    network interface of Gloo (default lo: all ranks on this machine)
)";

struct options {
    std::string model = "resnet18-cifar", layout = "default", allocator = "best", interface = "lo";
    int64_t batch = 0, threads = 1, steps = 10, warmup = 3, size = 64, seed = 1, bucket_view = 1, buffers = 0;

    [[nodiscard]] bool channels_last() const { return layout == "channels_last"; }
};

void require(bool ok, const std::string& message) {
    if (!ok) {
        throw std::invalid_argument(message);
    }
}

options parse(int argc, char** argv) {
    options o;
    const std::map<std::string, std::string*> texts{
        {"--model", &o.model}, {"--layout", &o.layout}, {"--allocator", &o.allocator}, {"--interface", &o.interface}};
    const std::map<std::string, int64_t*> numbers{
        {"--batch", &o.batch},   {"--threads", &o.threads},         {"--steps", &o.steps}, {"--size", &o.size},
        {"--warmup", &o.warmup}, {"--bucket-view", &o.bucket_view}, {"--seed", &o.seed},   {"--buffers", &o.buffers}};
    for (int i = 1; i < argc; ++i) {
        const std::string key = argv[i];
        if (key == "--help" || key == "-h") {
            std::fputs(usage, stdout);
            std::exit(0);
        }
        if (key == "--throughput") {  // the only mode
            continue;
        }
        require(texts.count(key) + numbers.count(key) > 0, "option '" + key + "' is unknown; see --help");
        require(i + 1 < argc, "option '" + key + "' needs a value");
        const std::string value = argv[++i];
        if (const auto t = texts.find(key); t != texts.end()) {
            *t->second = value;
            continue;
        }
        char* end = nullptr;
        *numbers.at(key) = std::strtoll(value.c_str(), &end, 10);
        require(!value.empty() && *end == 0, "option '" + key + "': '" + value + "' is no number");
    }
    require(o.layout == "default" || o.layout == "channels_last", "--layout must be default or channels_last");
    require(o.allocator == "best" || o.allocator == "system", "--allocator must be best or system");
    require(o.threads >= 1, "--threads must be at least 1");
    require(o.batch >= 0, "--batch must be at least 1");
    require(o.steps >= 1 && o.warmup >= 2, "--steps must be at least 1, --warmup 2");
    return o;
}

int from_environment(const char* key, int otherwise) {
    const char* text = std::getenv(key);
    return text != nullptr ? std::atoi(text) : otherwise;
}

/// A file that all ranks of this mpirun know, and no other run: in its session folder, else named after its process.
std::string store_path() {
    if (const char* folder = std::getenv("PMIX_SERVER_TMPDIR"); folder != nullptr) {
        return std::string(folder) + "/torch_ddp.store";
    }
    return "/tmp/torch_ddp." + std::to_string(getppid()) + ".store";
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    const std::size_t n = v.size();
    return n % 2 == 1 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

/// The ranks and what they say to one another outside the Reducer.
class world {
public:
    explicit world(const std::string& interface)
        : rank(from_environment("OMPI_COMM_WORLD_RANK", 0)), size(from_environment("OMPI_COMM_WORLD_SIZE", 1)) {
        auto gloo = c10d::ProcessGroupGloo::Options::create();
        gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForInterface(interface));
        gloo->threads = 2;  // as torch.distributed's init_process_group chooses for one device
        group = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::FileStore>(store_path(), size),
                                                            rank, size, gloo);
    }

    void broadcast(const std::vector<torch::Tensor>& tensors) const {
        const torch::NoGradGuard no_grad;
        for (const auto& t : tensors) {
            auto copy = t.contiguous();  // Gloo takes no other layout
            std::vector<torch::Tensor> one{copy};
            group->broadcast(one)->wait();
            if (rank != 0) {
                t.copy_(copy);
            }
        }
    }

    [[nodiscard]] double maximum(double value) const {
        std::vector<torch::Tensor> one{torch::full({1}, value, torch::kFloat64)};
        c10d::AllreduceOptions how;
        how.reduceOp = c10d::ReduceOp::MAX;
        group->allreduce(one, how)->wait();
        return one[0].item<double>();
    }

    /// The largest difference of any parameter between any rank and rank 0.
    [[nodiscard]] double difference(const std::vector<torch::Tensor>& tensors) const {
        const torch::NoGradGuard no_grad;
        double largest = 0;
        for (const auto& t : tensors) {
            auto first = t.contiguous().clone();
            std::vector<torch::Tensor> one{first};
            group->broadcast(one)->wait();
            largest = std::max(largest, (first - t).abs().max().item<double>());
        }
        return maximum(largest);
    }

    const int rank, size;
    c10::intrusive_ptr<c10d::ProcessGroupGloo> group;
};

/// What DistributedDataParallel.__init__ does with the parameters.
c10d::Reducer make_reducer(const torch::nn::Module& net, const world& ranks, bool bucket_view) {
    auto params = net.parameters();
    const std::vector<bool> sparse(params.size(), false);
    auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
        params, {c10d::kDefaultFirstBucketBytes, c10d::kDefaultBucketBytesCap}, sparse);
    std::reverse(buckets.begin(), buckets.end());
    std::reverse(limits.begin(), limits.end());
    std::unordered_map<std::size_t, std::string> names;
    for (const auto& p : net.named_parameters()) {
        names.emplace(names.size(), p.key());
    }
    return c10d::Reducer(std::move(params), std::move(buckets), std::move(limits), ranks.group, sparse,
                         c10d::kDefaultBucketBytesCap, /*find_unused_parameters*/ false, bucket_view, std::move(names),
                         c10d::kDefaultFirstBucketBytes);
}

void measure_speed(const options& o, const peer::workload& w) {
    const world ranks(o.interface);
    const int64_t total = o.batch > 0 ? o.batch : w.batch;
    require(total % ranks.size == 0,
            "--batch " + std::to_string(total) + " is no multiple of the " + std::to_string(ranks.size) + " ranks");
    const int64_t n = total / ranks.size;

    // Weights of its own on every rank, so that only the broadcast can make them equal.
    torch::manual_seed(static_cast<uint64_t>(o.seed + ranks.rank));
    auto net = w.build();
    peer::initialise(*net);
    peer::set_layout(*net, o.channels_last());
    net->train();
    ranks.broadcast(net->parameters());
    ranks.broadcast(net->buffers());

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

    auto reducer = make_reducer(*net, ranks, o.bucket_view != 0);
    peer::sgd optimizer(net->parameters(), {/*lr*/ 1e-3});
    double loss_value = 0;
    const auto step = [&] {
        reducer.prepare_for_forward();
        reducer.rebuild_buckets();  // does something once, after the first step
        if (o.buffers != 0) {
            ranks.broadcast(net->buffers());
        }
        auto loss = peer::loss_of(w.loss, net->forward(x), target);
        reducer.prepare_for_backward({});
        loss.backward();  // ends when all buckets are reduced
        optimizer.step();
        optimizer.zero_grad();
        loss_value = loss.item<double>();
    };

    for (int64_t i = 0; i < o.warmup; ++i) {
        step();
    }
    std::vector<double> seconds;
    for (int64_t i = 0; i < o.steps; ++i) {
        const double begin = now();
        step();
        seconds.push_back(now() - begin);
    }

    const double middle = ranks.maximum(median(seconds));
    const double best = ranks.maximum(*std::min_element(seconds.begin(), seconds.end()));
    const double peak = ranks.maximum(static_cast<double>(peer::status_bytes("VmHWM")));
    const double different = ranks.difference(net->parameters());
    int64_t parameters = 0;
    for (const auto& p : net->parameters()) {
        parameters += p.numel();
    }
    if (ranks.rank == 0) {
        std::printf(
            "%s, %d ranks, batch %ld in all, %ld threads a rank, layout %s: %.2f samples/s (median of %ld steps), "
            "loss %.4f, parameters of the ranks differ by %g\n",
            w.name.c_str(), ranks.size, total, o.threads, o.layout.c_str(), total / middle, o.steps, loss_value,
            different);
        std::printf(
            "{\"samples_per_s\": %.6g, \"best_samples_per_s\": %.6g, \"peak_bytes\": %.0f, \"model\": \"%s\", "
            "\"ranks\": %d, \"batch\": %ld, \"batch_per_rank\": %ld, \"threads\": %ld, \"layout\": \"%s\", "
            "\"steps\": %ld, \"parameters\": %ld, \"parameter_difference\": %g, \"bucket_view\": %ld, "
            "\"engine\": \"c10d::Reducer over Gloo\", \"allocator\": \"%s\", \"loss\": %.6g, "
            "\"library\": \"libtorch %s\"}\n",
            total / middle, total / best, peak, w.name.c_str(), ranks.size, total, n, o.threads, o.layout.c_str(),
            o.steps, parameters, different, o.bucket_view, peer::allocator_in_use().c_str(), loss_value, TORCH_VERSION);
        std::fflush(stdout);
    }
    if (!(different == 0)) {
        throw std::runtime_error(w.name + ": the parameters of the ranks are not equal");
    }
    if (!std::isfinite(loss_value)) {
        throw std::runtime_error(w.name + ": the loss is not finite");
    }
}

}  // namespace

int main(int argc, char** argv) {
    try {
        const auto o = parse(argc, argv);
        peer::restart_with_environment(static_cast<int>(o.threads), o.allocator == "best", argv);
        const auto w = peer::find_workload(o.model, o.size);
        at::set_num_threads(static_cast<int>(o.threads));
        at::globalContext().setFlushDenormal(true);
        measure_speed(o, w);
    } catch (const c10::Error& e) {
        std::fprintf(stderr, "torch_ddp: %s\n", e.what_without_backtrace());
        return 1;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "torch_ddp: %s\n", e.what());
        return 1;
    }
    return 0;
}
