#pragma once
// Whole runs on ranks that are threads, as `train` does them, for tests of meshes.

#include "messages.hpp"
#include "state/temporary_folder.hpp"
#include "train/compiled_session.hpp"

#include <cairn/comm/threads.hpp>

#include <fstream>
#include <string>
#include <vector>

namespace cairn::test {

using settings_list = std::vector<std::string>;

/// The last line of a run, or the error that ended it.
inline nlohmann::json train(int ranks, const session_options& options, const settings_list& set,
                            const std::string& text) {
    autotune_cache::global().set_policy(autotune_policy::first);
    nlohmann::json result;
    run_ranks(ranks, {.kernel_threads = 1, .time_limit = 30}, [&](threads_communicator& c) {
        configuration settings = options.resume.empty() ? configuration::from_text(text)
                                                        : configuration::from_file(options.resume / "config.toml");
        for (const std::string& s : set) settings.set(s);
        const bool narrow = settings.choice("train.precision", {"float32", "bf16"}, "float32") == "bf16";
        any_communicator world(c.split(0, c.rank()));
        const nlohmann::json line = narrow
                                        ? session<cpu, bfloat16>(std::move(settings), options, std::move(world)).train()
                                        : session<>(std::move(settings), options, std::move(world)).train();
        if (c.rank() == 0) result = line;
    });
    return result;
}

/// A field of a run's metrics, of the lines that have it.
inline std::vector<double> metrics_of(const std::filesystem::path& run, const std::string& field) {
    std::ifstream in(run / "metrics.jsonl");
    std::vector<double> all;
    for (std::string line; std::getline(in, line);)
        if (const auto entry = nlohmann::json::parse(line); entry.contains(field)) all.push_back(entry[field]);
    return all;
}

/// Training losses of a run's metrics.
inline std::vector<double> losses(const std::filesystem::path& run) { return metrics_of(run, "loss"); }

/// Why a run of so many steps fails.
inline std::string why(int ranks, const settings_list& set, const std::string& text, std::int64_t steps = 1) {
    const ::temporary_folder folder;
    return message_of([&] { train(ranks, {.out = folder / "run", .resume = {}, .max_steps = steps}, set, text); });
}

}  // namespace cairn::test
