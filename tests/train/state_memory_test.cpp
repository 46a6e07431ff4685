// No rank gathers: while it saves its state and while it reads one, a rank has its own part and a copy of what it
// writes.

#include "catch.hpp"
#include "train/saved_states.hpp"
#include "train/thread_runs.hpp"

#include <cairn/train/run_versions.hpp>
#include <cairn/train/shared_kernels.hpp>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace cairn::state_memory_test {

const std::string text =
    "[data]\nformat='text'\npath='TEXT'\ntext.length=8\n[model]\nkind='transformer'\nembedding_dim=96\nheads=4\n"
    "blocks=4\n[train]\nbatch=8\nmicro_batches=2\ntest_every=0\n[optimizer]\nkind='adam'\n";

/// Bytes of one rank.
struct rank_memory {
    double training, saving, copy;  // peaks; what is copied to be written
    double before, reading;         // live before a state is read, the peak meanwhile
    double weights;                 // of the whole model and Adam's two moments, shared by all
};

std::vector<rank_memory> measure(int ranks, const test::settings_list& set) {
    const temporary_folder folder;
    std::ofstream out(folder / "text.txt");
    for (int i = 0; i < 4000; ++i) out << static_cast<char>('a' + (i * i + i / 7) % 11);
    out.close();
    std::vector<rank_memory> all(static_cast<std::size_t>(ranks));
    run_ranks(ranks, {.kernel_threads = 1, .time_limit = 60}, [&](threads_communicator& c) {
        rank_memory& mine = all[static_cast<std::size_t>(c.rank())];
        memory_pool& pool = memory_pool::host();
        const auto peak = [&] { return static_cast<double>(pool.total().peak); };
        const auto make = [&] {
            configuration settings = configuration::from_text(text);
            settings.set("data.path='" + (folder / "text.txt").string() + "'");
            for (const std::string& s : set) settings.set(s);
            return std::make_unique<run_parts<>>(std::move(settings),
                                                 session_options{.out = {}, .resume = {}, .max_steps = 9},
                                                 any_communicator(c.split(0, c.rank())));
        };
        {
            const auto run = make();
            discover_layers(*run);
            auto b = run->batches.train->next();
            for (int i = 0; i < 2; ++i) run->update.trainer->step({*b, run->task.micro_batches});
            mine.training = peak();
            std::optional<run_directory> directory;
            if (c.rank() == 0) directory.emplace(folder / "run");
            run_progress progress;
            run_versions<cpu, float> versions(*run, directory ? &*directory : nullptr, progress);
            pool.reset_peaks();
            versions.finish();
            mine.saving = peak();
            mine.copy = static_cast<double>(pool.use_of(memory_category::staging).peak);
            mine.weights = static_cast<double>(
                saved_state::of_packs(test::newest_version(folder / "run"),
                                      own_packs(read_manifest(test::newest_version(folder / "run"))))
                    .bytes());
        }
        wait_for_all(c);
        const auto run = make();
        discover_layers(*run);
        run_progress progress;
        pool.reset_peaks();
        mine.before = peak();
        const std::string failure =
            version_reader<cpu, float>(*run, progress).load(test::newest_version(folder / "run"));
        require(failure.empty(), failure);
        mine.reading = peak();
    });
    return all;
}

TEST_CASE("versions: no rank gathers what others hold, neither to save nor to read", "[session]") {
    autotune_cache::global().set_policy(autotune_policy::first);
    for (const test::settings_list& set : {test::settings_list{"parallel.zero_stage=1"},
                                           {"parallel.zero_stage=2"},
                                           {"parallel.pipeline=2", "parallel.tensor=2"}}) {
        for (const rank_memory& m : measure(4, set)) {
            CAPTURE(set, m.training, m.saving, m.copy, m.before, m.reading, m.weights);
            CHECK(m.copy < 0.3 * m.weights);  // a quarter, and what does not divide
            CHECK(m.saving <= m.training + 1.02 * m.copy);
            CHECK(m.reading <= 1.02 * m.before);
        }
    }
}

}  // namespace cairn::state_memory_test
