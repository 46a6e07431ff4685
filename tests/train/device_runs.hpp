#pragma once
// Runs of a session on the host and on the emulated GPU, on one rank and on several that are threads, and what they
// leave.

#include "catch.hpp"
#include "messages.hpp"
#include "train/targets.hpp"

#include "train/compiled_session.hpp"

#include <cairn/comm/collectives/staged.hpp>
#include <cairn/comm/threads.hpp>

#include <unistd.h>
#include <filesystem>

namespace cairn::device_runs {

struct folder {
    std::filesystem::path path = std::filesystem::temp_directory_path() / concat("cairn_device_session_", ::getpid());
    folder() { std::filesystem::create_directories(path); }
    ~folder() { std::filesystem::remove_all(path); }
};

// Workloads of all tasks, small enough for a GPU made of coroutines.
inline const std::vector<std::string> workloads{
    "[data]\nformat = 'mnist'\n[model]\nkind = 'lenet'\n[optimizer]\nkind = 'adam'\nlr = 1e-3\n"
    "[loss]\nlabel_smoothing = 0.1\n",
    "[data]\nformat = 'mnist'\n[model]\nkind = 'autoencoder'\nhidden = [8, 4]\n[loss]\nkind = 'reconstruction'\n"
    "[optimizer]\nlr = 1e-5\n",
    "[data]\nformat = 'cosmology'\ncosmology.size = 8\n[model]\nkind = 'cosmoflow'\nfilters = 2\nblocks = 1\nnormalise "
    "= "
    "true\n[optimizer]\nlr = 1e-4\n",
    "[data]\nformat = 'text'\ntext.length = 6\n[model]\nkind = 'transformer'\nembedding_dim = 8\nheads = 2\nblocks = "
    "1\n"
    // not Adam: a gradient of keys' biases is 0 but for rounding
    "ffn_dim = 8\ndropout = 0.1\n[optimizer]\nlr = 1e-2\n"};

inline configuration settings_of(const std::string& workload, const std::vector<const char*>& more = {}) {
    configuration settings = configuration::from_text(workload);
    for (const char* one :
         {"train.batch=6", "train.micro_batches=2", "train.seed=3", "train.test_every=0", "train.log_every=1"})
        settings.set(one);
    for (const char* one : more) settings.set(one);
    return settings;
}

struct run_figures {
    std::vector<double> losses;
    std::vector<tensor<float>> weights;
};

template <Device D, class T>
std::vector<tensor<float>> weights_of(session<D, T>& s) {
    std::vector<tensor<float>> all;
    for (const auto& [name, p] : s.model().parameters()) all.push_back(p->value.on_host());
    return all;
}

inline std::vector<double> losses_of(const session_options& options) {
    std::vector<double> all;
    std::ifstream in((options.resume.empty() ? options.out : options.resume) / "metrics.jsonl");
    for (std::string line; std::getline(in, line);)  // of steps; other lines are of tests
        if (const auto entry = nlohmann::json::parse(line); entry.contains("loss"))
            all.push_back(entry["loss"].get<double>());
    return all;
}

template <Device D, class T = float>
run_figures run(const std::string& workload, session_options options, const std::vector<const char*>& more = {}) {
    options.generated = true;
    session<D, T> s(settings_of(workload, more), options);
    s.train();
    return {losses_of(options), weights_of(s)};
}

/// A run in this directory: a new one, or one that goes on.
inline session_options in_run(const std::filesystem::path& directory, bool resume, std::int64_t steps) {
    session_options options{.out = {}, .resume = {}, .max_steps = steps};
    (resume ? options.resume : options.out) = directory;
    return options;
}

/// On ranks that are threads, which must end with the same bits. What they send goes by way of the host.
template <Device D, class T = float>
run_figures run_on(int count, const std::string& workload, session_options options,
                   std::vector<const char*> more = {}) {
    options.generated = true;
    more.push_back("train.micro_batches=1");
    run_figures figures;
    std::mutex one_at_a_time;
    run_ranks(count, [&](threads_communicator& c) {
        std::optional<any_communicator> device_channel;
        if constexpr (!std::same_as<D, cpu>)
            device_channel = staged_communicator<D, threads_communicator>(c.split(0, c.rank()));
        session<D, T> s(settings_of(workload, more), options, c.split(0, c.rank()), std::move(device_channel));
        s.train();
        auto mine = weights_of(s);
        const std::scoped_lock lock(one_at_a_time);
        if (figures.weights.empty())
            figures.weights = std::move(mine);
        else
            for (std::size_t i = 0; i < mine.size(); ++i)
                require(std::ranges::equal(mine[i].span(), figures.weights[i].span()), "rank ", c.rank(),
                        ": parameter ", i, " has other bits");
    });
    figures.losses = losses_of(options);
    return figures;
}

inline double distance(const run_figures& a, const run_figures& b) {
    double most = 0;
    REQUIRE(a.losses.size() == b.losses.size());
    REQUIRE(a.weights.size() == b.weights.size());
    for (std::size_t i = 0; i < a.losses.size(); ++i)
        most = std::max(most, std::abs(a.losses[i] - b.losses[i]) / (1 + std::abs(b.losses[i])));
    for (std::size_t i = 0; i < a.weights.size(); ++i)
        for (index_t k = 0; k < a.weights[i].size(); ++k)
            most = std::max(most, static_cast<double>(std::abs(a.weights[i][k] - b.weights[i][k])));
    return most;
}

}  // namespace cairn::device_runs
