// Training steps of a network on generated data that lie on the GPU: samples a second, and the driver's figure of
// memory. One line of JSON.
//
//   build/cuda/benchmarks/gpu_step resnet18|resnet50|cosmoflow|gpt [BATCH] [exact|tf32|bf16|fp16] [STEPS]
//                                  [eigen|inverse|recorded|profile]
// resnet: images of 224 x 224. cosmoflow: volumes of 128³ with 4 channels, the network of MLPerf HPC. gpt: 12 blocks of
// 768 with 12 heads, on texts of 512 tokens of 256.
// bf16: layers compute in bfloat16; weights, gradients, statistics, the loss and updates are float. fp16: in float16,
// under a dynamic loss scale. With both K-FAC's products are TF32's, as train.matmul_precision has it.
// recorded: the steps of a training run under train.cuda_graph = on, where forward, backward and update are one CUDA
// graph (train/graph_recorder.hpp).
// eigen or inverse: then the same with K-FAC of that form at its default intervals, over as many steps as lie between
// two decompositions, after those in which they are more frequent; and where their time goes.
// profile: then the time by kind of layer beside its floors (step_profile.hpp). The GPU waits at the beginning of each
// such step until the host is ahead, so gaps between launches are not in these times: they are the step's time less
// theirs. CUPTI would name kernels, but knows nothing of their floors, and is one library more to find.

#include "step_profile.hpp"
#include "timing.hpp"
#include "train/gpu_kernels.hpp"

#include <cairn/core/arena.hpp>
#include <cairn/core/clock.hpp>
#include <cairn/models/cosmoflow.hpp>
#include <cairn/models/resnet.hpp>
#include <cairn/models/transformer.hpp>
#include <cairn/nn/cast.hpp>
#include <cairn/objectives/classification.hpp>
#include <cairn/objectives/regression.hpp>
#include <cairn/optim/precondition/kfac.hpp>
#include <cairn/optim/sgd.hpp>
#include <cairn/train/loss_scaling.hpp>
#include <cairn/train/trainer.hpp>

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

namespace cairn {

namespace {

/// A network, and a batch with what it is to learn from it.
template <class T>
struct problem {
    sequential<T, cuda> model;
    any_objective<cuda> goal;
    samples<cuda> given;
};

tensor<float, cuda> drawn(const shape& s) {
    tensor<float> values(s);
    const random_stream random{1, 2, 3};
    for (index_t i = 0; i < values.size(); ++i) values[i] = random.uniform(static_cast<std::uint64_t>(i)) - 0.5f;
    return tensor<float, cuda>::copy_of(values);
}

template <class T>
problem<T> make_problem(const std::string& network, index_t batch) {
    if (network == "cosmoflow")
        return {
            cosmoflow<T, cuda>({.size = 128}), regression{}, {drawn({batch, 128, 128, 128, 4}), {}, drawn({batch, 3})}};
    if (network == "gpt") {
        constexpr index_t length = 512, tokens = 256;
        tensor<float> text({batch, length});
        tensor<std::int32_t> next({batch, length});
        const random_stream random{1, 2, 4};
        for (index_t i = 0; i < text.size(); ++i) {
            text[i] = static_cast<float>(random.below(tokens, static_cast<std::uint64_t>(i)));
            next[i] = static_cast<std::int32_t>(random.below(tokens, static_cast<std::uint64_t>(i + 1)));
        }
        return {transformer<T, cuda>(
                    {.vocab_size = tokens, .max_length = length, .embedding_dim = 768, .heads = 12, .blocks = 12}),
                classification{},
                {tensor<float, cuda>::copy_of(text), tensor<std::int32_t, cuda>::copy_of(next), {}}};
    }
    tensor<std::int32_t> labels({batch});
    for (index_t i = 0; i < batch; ++i) labels[i] = static_cast<std::int32_t>(i % 1000);
    return {resnet<T, cuda>(network == "resnet18" ? 18 : 50),
            classification{},
            {drawn({batch, 224, 224, 3}), tensor<std::int32_t, cuda>::copy_of(labels), {}}};
}

/// Moments of the stream, for step_profile.hpp.
class stream_marks {
public:
    ~stream_marks() {
        for (const cudaEvent_t e : events_) cudaEventDestroy(e);
    }
    double mark() {
        cudaEvent_t e = nullptr;
        check(cudaEventCreate(&e), "making an event");
        events_.push_back(e);
        check(cudaEventRecord(e, cuda::stream()), "recording an event");
        counted_.push_back(flop_counter::total());
        return static_cast<double>(events_.size() - 1);
    }
    std::vector<gpu_benchmark::step_mark> seconds() const {
        cuda::wait();
        std::vector<gpu_benchmark::step_mark> all;
        for (std::size_t i = 0; i < events_.size(); ++i) {
            float milliseconds = 0;
            check(cudaEventElapsedTime(&milliseconds, events_[0], events_[i]), "reading an event");
            all.push_back(
                {milliseconds / 1e3, static_cast<double>(counted_[i].flops), static_cast<double>(counted_[i].bytes)});
        }
        return all;
    }

private:
    std::vector<cudaEvent_t> events_;
    std::vector<flop_counter::totals> counted_;
};

/// Traces `steps` steps, whose launches begin when the host is ahead of the GPU. Returns the moments that its events
/// name.
template <class Step>
std::vector<gpu_benchmark::step_mark> trace_steps(Step&& step, std::int64_t steps) {
    stream_marks marks;
    trace::global().clear();
    trace::global().use_clock([&] { return marks.mark(); });
    const flop_counter::scope counting;
    for (std::int64_t i = 0; i < steps; ++i) {
        const auto wait = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
        check(cudaLaunchHostFunc(cuda::stream(), wait, nullptr), "making the GPU wait");
        trace::global().enable(true);
        step();
        trace::global().enable(false);
        cuda::wait();
    }
    trace::global().use_clock(nullptr);
    return marks.seconds();
}

/// Seconds of the GPU a step, over `steps` steps, in the trace's scopes of this kind, by their names.
template <class Step>
std::map<std::string, double> seconds_by_work(const char* kind, Step&& step, std::int64_t steps) {
    const auto at = trace_steps(step, steps);
    std::map<std::string, double> all;
    for (const trace_event& e : trace::global().events())
        if (std::string_view(e.kind) == kind)
            all[e.path.substr(e.path.rfind('/') + 1)] +=
                (at[static_cast<std::size_t>(e.end)].seconds - at[static_cast<std::size_t>(e.begin)].seconds) /
                static_cast<double>(steps);
    return all;
}

template <class T>
void run(const std::string& network, index_t batch, int steps, const char* products, const std::string& form) {
    const bool profiles = form == "profile";
    std::size_t before = 0, after = 0, total = 0;
    check(cudaMemGetInfo(&before, &total), "asking for memory");
    problem<T> given = make_problem<T>(network, batch);
    auto& model = given.model;
    const samples<cuda>& its = given.given;
    const auto& x = its.x;
    arena<float, cuda> weights(model.parameters(), 1);
    const auto make_optimizer = [&] {
        return bound_optimizer<sgd, float, cuda>(sgd{{.momentum = 0.9, .weight_decay = 1e-4}}, weights);
    };
    auto optimizer = make_optimizer();
    saved_tensors<T, cuda> saved;
    double loss = 0;
    std::uint32_t number = 0;
    std::optional<kfac<float, cuda>> curvature;
    constexpr bool scales = std::is_same_v<T, float16>;
    loss_scaler scaler({});
    gradient_scale<cuda> scale;
    int skipped = 0;
    scalar_on<cuda> last = 0;
    const auto in_phase = [](const char* phase, auto&& work) {
        const trace_scope scope(phase, phase, "compute");
        return work();
    };
    const auto launch_one_by_one = [&] {
        pass_context p{.mode = mode::train, .random = {.seed = 1, .step = number++}, .input_gradient = false};
        if (curvature) p.curvature = curvature->begin_step(), curvature->last_micro_batch();
        auto y = model.forward(cast<T>(x), saved, p);
        auto [value, dy] = in_phase("loss", [&] { return given.goal.loss(cast<float>(std::move(y)), given.given); });
        in_phase("update", [&] {
            flop_counter::count(0, static_cast<double>(weights.grads().size()) * 4);
            weights.zero_grad();
        });
        last = std::move(value);  // read when the host needs it: it would wait for forward
        if constexpr (scales) {
            scale.set(scaler.scale());
            if (curvature) curvature->gradients_scaled_by(scaler.scale());
            model.backward(scale.template times<T>(dy), saved, p);
            if (scale.divide_and_count(weights.grads()) > 0) {
                if (curvature) curvature->skip_step();
                require(scaler.skipped_step(), "no loss scale is small enough");
                ++skipped;
                return;
            }
            scaler.took_step();
        } else {
            model.backward(cast<T>(std::move(dy)), saved, p);
        }
        if (curvature) curvature->precondition(static_cast<double>(batch), 0.01);
        in_phase("update", [&] {
            flop_counter::count(0, static_cast<double>(weights.grads().size()) * 5 * 4);  // of SGD with momentum
            optimizer.step(0.01);
        });
    };
    std::optional<trainer<cuda, T>> recorded;
    if (form == "recorded") {
        step_hooks<cuda, T> hooks;
        if constexpr (scales) hooks.push_back(std::make_unique<loss_scaling<cuda>>(scaler));
        recorded.emplace(model_stages<cuda, T>(model, weights), update_rule<cuda>{make_optimizer(), constant(0.01)},
                         given.goal, std::move(hooks), trainer_config<cuda>{.cuda_graph = true});
    }
    const auto launch_recorded = [&] {
        cairn::batch host;
        host.count = host.global_count = batch;
        const step_result done = recorded->step(
            device_batch<cuda>(std::move(host), {its.x.share(), its.labels.share(), its.targets.share()}));
        loss = done.loss;
        skipped += done.skipped;
    };
    const auto step = [&] { recorded ? launch_recorded() : launch_one_by_one(); };
    for (int i = 0; i < 3; ++i) step();
    if constexpr (scales)
        for (int before_it = -1; before_it != skipped;) before_it = skipped, step();  // until the scale fits
    const int skipped_first = std::exchange(skipped, 0);
    const double seconds = gpu_benchmark::seconds_of(step, steps);
    if (!recorded) loss = last;
    check(cudaMemGetInfo(&after, &total), "asking for memory");
    std::printf(
        "{\"network\":\"%s\",\"batch\":%lld,\"products\":\"%s\",\"seconds_a_step\":%.5f,\"samples_per_s\":%.1f,"
        "\"loss\":%.4f,"
        "\"driver_megabytes\":%.0f,\"pool_peak_megabytes\":%.0f",
        network.c_str(), static_cast<long long>(batch), products, seconds, static_cast<double>(batch) / seconds, loss,
        static_cast<double>(before - after) / 1e6, static_cast<double>(cuda::memory().total().peak) / 1e6);
    if constexpr (scales)
        std::printf(",\"loss_scale\":%.0f,\"skipped_first\":%d,\"skipped_steps\":%d", scaler.scale(), skipped_first,
                    skipped);
    if (recorded) {
        require(recorded->recorder().launched() > 0, "no step was recorded: ", recorded->recorder().refusal());
        std::printf(",\"recorded_steps\":%lld,\"graphs_a_step\":%lld",
                    static_cast<long long>(recorded->recorder().launched()),
                    static_cast<long long>(recorded->recorder().graphs()));
    } else if (profiles) {
        const double copy_rate = gpu_benchmark::copy_rate(), matrix_rate = gpu_benchmark::product_rate<T>();
        const int traced = std::min(steps, 5);
        const auto at = trace_steps(step, traced);
        const auto found =
            gpu_benchmark::profile_of_steps(trace::global().events(), at, traced, copy_rate, matrix_rate);
        std::printf(",\"profile\":%s", gpu_benchmark::as_json(found, seconds, copy_rate, matrix_rate).c_str());
    } else if (!form.empty()) {
        const kfac_config c{.form = form == "eigen" ? kfac_form::eigen : kfac_form::inverse};
        const auto mean_seconds = [&] {
            cuda::wait();
            const stopwatch watch;
            for (std::int64_t i = 0; i < c.inverse_update_interval; ++i) step();
            cuda::wait();
            return watch.seconds() / static_cast<double>(c.inverse_update_interval);
        };
        const double without = mean_seconds();
        curvature.emplace(weights, c);
        for (std::int64_t i = 0; i <= c.inverse_update_interval; ++i) step();
        const double with = mean_seconds();
        std::printf(
            ",\"kfac\":\"%s\",\"kfac_seconds_a_step\":%.5f,\"kfac_overhead\":%.4f,\"kfac_pool_peak_megabytes\":%.0f",
            form.c_str(), with, with / without - 1, static_cast<double>(cuda::memory().total().peak) / 1e6);
        const char* separator = ",\"kfac_seconds_by_work\":{";
        for (const auto& [work, seconds] : seconds_by_work("kfac", step, c.inverse_update_interval))
            std::printf("%s\"%s\":%.6f", std::exchange(separator, ","), work.c_str(), seconds);
        std::printf("}");
    }
    std::printf("}\n");
}

}  // namespace

}  // namespace cairn

int main(int argc, char** argv) {
    using namespace cairn;
    try {
        const std::string network = argc > 1 ? argv[1] : "resnet50", products = argc > 3 ? argv[3] : "tf32";
        require(network == "resnet18" || network == "resnet50" || network == "cosmoflow" || network == "gpt",
                "network ", network, "; resnet18, resnet50, cosmoflow or gpt");
        const std::string form = argc > 5 ? argv[5] : "";
        require(form.empty() || form == "eigen" || form == "inverse" || form == "recorded" || form == "profile",
                "steps ", form, "; recorded, profile, or with K-FAC of form eigen or inverse");
        require(products == "tf32" || products == "exact" || products == "bf16" || products == "fp16", "products ",
                products, "; exact, tf32, bf16 or fp16");
        cuda::choose(0);
        gpu_float_products() = products == "exact" ? float_products::exact : float_products::tf32;
        const auto measure = products == "bf16" ? run<bfloat16> : products == "fp16" ? run<float16> : run<float>;
        measure(network, argc > 2 ? std::stoll(argv[2]) : 256, argc > 4 ? std::stoi(argv[4]) : 15, products.c_str(),
                form);
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "gpu_step: %s\n", e.what());
        return 1;
    }
}
