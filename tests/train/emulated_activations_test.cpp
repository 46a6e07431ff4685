// Runs whose activations are packed on another device (the emulated GPU): the host's losses, as many bytes that wait,
// plans for a limit of memory, and refusals.

#include "train/device_runs.hpp"

namespace cairn::packed_on_device {

using namespace device_runs;

namespace {

const std::string residual_network =
                      "[data]\nformat = 'cifar10'\n[model]\nkind = 'resnet-cifar'\ndepth = 8\n[optimizer]\nlr = 0.05\n",
                  sentences =
                      "[data]\nformat = 'text'\ntext.length = 8\n[model]\nkind = 'transformer'\nembedding_dim = 16\n"
                      "heads = 2\nblocks = 2\nffn_dim = 32\n[optimizer]\nlr = 1e-2\n";

struct packed_run {
    run_figures figures;
    std::vector<double> saved;  // bytes that wait for backward, by step
    audit_report audit;
    std::vector<stash_plan::entry> plan;
};

template <Device D>
packed_run packed(const std::string& workload, const session_options& options, std::vector<const char*> more = {}) {
    more.insert(more.begin(), {"train.activation_memory=compress", "activations.coder=planes",
                               "activations.audit_interval=2", "train.micro_batches=1"});
    session_options all = options;
    all.generated = true;
    session<D> s(settings_of(workload, more), all);
    s.train();
    packed_run run{{losses_of(options), weights_of(s)}, {}, s.audit(), {}};
    std::ifstream in((options.resume.empty() ? options.out : options.resume) / "metrics.jsonl");
    for (std::string line; std::getline(in, line);)
        if (const auto entry = nlohmann::json::parse(line); entry.contains("saved_bytes"))
            run.saved.push_back(entry["saved_bytes"].get<double>());
    return run;
}

}  // namespace

TEST_CASE("packed activations: on another device a run has the host's losses and bytes", "[train]") {
    for (const std::string& workload : {residual_network, sentences})
        for (const char* codec : {"activations.codec=bounded", "activations.codec=group", "activations.codec=bf16"}) {
            CAPTURE(workload, codec);
            const folder dir;
            const std::vector<const char*> more{codec, "activations.bits=4"};
            const auto host = packed<cpu>(workload, in_run(dir.path / "host", false, 4), more);
            const auto device = packed<emulated_gpu>(workload, in_run(dir.path / "device", false, 4), more);
            REQUIRE(host.figures.losses.size() == 4);
            CHECK(distance(device.figures, host.figures) < 5e-3);  // a symbol in many is the next one
            REQUIRE(device.saved.size() == host.saved.size());
            for (std::size_t i = 0; i < host.saved.size(); ++i)
                CHECK(device.saved[i] == Approx(host.saved[i]).epsilon(0.02));
            CHECK(device.audit.packed_bytes == Approx(host.audit.packed_bytes).epsilon(0.02));
            CHECK(device.audit.packed_bytes < 0.7 * device.audit.kept_bytes);
            REQUIRE(device.audit.layers.size() == host.audit.layers.size());
            for (std::size_t i = 0; i < host.audit.layers.size(); ++i)
                CHECK(device.audit.layers[i].bound == Approx(host.audit.layers[i].bound).epsilon(0.05));
        }
}

TEST_CASE("packed activations: on another device a resumed run has the bits of one that was not stopped", "[train]") {
    const folder dir;
    const auto whole = packed<emulated_gpu>(sentences, in_run(dir.path / "whole", false, 5));
    packed<emulated_gpu>(sentences, in_run(dir.path / "parts", false, 3));
    CHECK(distance(packed<emulated_gpu>(sentences, in_run(dir.path / "parts", true, 5)).figures, whole.figures) == 0);
}

TEST_CASE("packed activations: a plan for a device stays within its limit", "[train]") {
    const folder dir;
    const auto run = packed<emulated_gpu>(residual_network, in_run(dir.path / "auto", false, 3),
                                          {"train.activation_memory=auto", "train.memory_limit_mb=10", "train.batch=16",
                                           "activations.audit_interval=100"});
    CHECK(run.figures.losses.size() == 3);
    CHECK(run.audit.packed_bytes > 0);
}

TEST_CASE("packed activations: what a device cannot do is refused", "[train]") {
    const auto refused = [](const std::vector<const char*>& settings) {
        return test::message_of([&] {
            session<emulated_gpu>(settings_of(sentences, settings), {.out = {}, .resume = {}, .generated = true});
        });
    };
    for (const char* memory : {"train.activation_memory=compress", "train.activation_memory=auto"}) {
        CHECK(test::contains(refused({memory, "train.memory_limit_mb=100", "activations.coder=huffman"}),
                             "set it to planes"));
        CHECK(test::contains(refused({memory, "train.memory_limit_mb=100", "train.cuda_graph=on"}),
                             "set it to off, or train.activation_memory = keep"));
        CHECK(test::contains(test::message_of([&] {
                                 session<emulated_gpu, bfloat16>(settings_of(sentences, {memory}),
                                                                 {.out = {}, .resume = {}, .generated = true});
                             }),
                             "take keep, recompute"));
    }
}

}  // namespace cairn::packed_on_device
