// A version is taken beside training: it has the numbers of its capture, and whatever fails costs it and no step.

#include "catch.hpp"
#include "messages.hpp"
#include "state/small_version.hpp"

#include <cairn/comm/threads.hpp>
#include <cairn/parallel/progress_thread.hpp>
#include <cairn/state/flush.hpp>
#include <cairn/state/saved_state.hpp>

#include <atomic>
#include <bit>
#include <chrono>
#include <csignal>
#include <thread>

#include <sys/resource.h>

namespace cairn::test {

using Catch::Matchers::Contains;

namespace {

constexpr std::array<std::uint64_t, 2> attempt_of_flush{0x3f2a9c41d07b5e66, 7};

version_writer::config writer_config(const std::filesystem::path& states, const threads_communicator& c) {
    return {.states = states, .attempt = attempt_of_flush, .rank = c.rank(), .ranks = c.size()};
}

std::filesystem::path flushed_version(const std::filesystem::path& states, std::int64_t step) {
    return states / version_id{step, attempt_of_flush}.name();
}

// The votes of a step, and what comes of them.
version_votes vote(threads_communicator& c, version_writer& writer) {
    double sum = writer.votes().number();
    all_reduce(c, std::span<double>(&sum, 1));
    const version_votes all = version_votes::of(sum);
    writer.decide(all);
    return all;
}

// Steps until nothing is in flight. Returns how many.
int steps_of_flight(threads_communicator& c, version_writer& writer) {
    int steps = 0;
    for (; writer.in_flight(); ++steps) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        vote(c, writer);
    }
    return steps;
}

std::uint64_t saved_digest(const std::filesystem::path& states, std::int64_t step) {
    return verify_version(flushed_version(states, step), true).digest;
}

// A queue whose jobs begin late.
class late_queue final : public job_queue {
public:
    explicit late_queue(double seconds) : seconds_(seconds), jobs_(start_helper()) {}
    void submit(std::function<void()> job) override {
        jobs_->submit([job = std::move(job), seconds = seconds_] {
            std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
            job();
        });
    }
    void wait() override { jobs_->wait(); }
    void wait_for_first(std::size_t jobs) override { jobs_->wait_for_first(jobs); }

private:
    double seconds_;
    std::unique_ptr<job_queue> jobs_;
};

// While it lives, no file of this process grows beyond so many bytes: EFBIG.
struct file_size_limit {
    rlimit before{};
    void (*handler)(int);

    explicit file_size_limit(rlim_t bytes) : handler(std::signal(SIGXFSZ, SIG_IGN)) {
        getrlimit(RLIMIT_FSIZE, &before);
        const rlimit narrow{bytes, before.rlim_max};
        setrlimit(RLIMIT_FSIZE, &narrow);
    }
    ~file_size_limit() {
        setrlimit(RLIMIT_FSIZE, &before);
        std::signal(SIGXFSZ, handler);
    }
};

}  // namespace

TEST_CASE("a version has the numbers of its capture, whatever training does meanwhile") {
    for (const int ranks : {1, 2, 4}) {
        const temporary_folder run;
        const auto states = run / "states";
        std::atomic<int> wrong = 0;
        run_ranks(ranks, [&](threads_communicator& c) {
            version_writer writer(writer_config(states, c), start_helper());
            for (const int step : {3, 5}) {
                small_rank rank(c.rank(), c.size(), step);
                wrong += writer.in_flight();
                writer.capture(step, rank.view, c.rank() == 0 ? "of rank 0\n" : "");
                std::ranges::fill(rank.table.span(), -1.0f);
                std::ranges::fill(rank.all.span(), -1.0f);
                rank.number = -1, rank.text = "other";
                wrong += !writer.in_flight();
                wrong += !contains(message_of([&] { writer.capture(4, rank.view, ""); }),
                                   concat("step 4: that of step ", step, " is still on its way"));
                steps_of_flight(c, writer);
                wrong += writer.finish(c).failed != 0;  // committed, too
                wrong += writer.last_step() != step;
            }
            const flush_times t = writer.times();
            wrong += t.shared.versions != 2 || t.captured != 2 || t.failed != 0;
            wrong += t.first_stall <= 0 || std::abs(t.usual_stall() - (t.stall - t.first_stall)) > 1e-9;
        });
        CHECK(wrong == 0);
        CHECK(saved_digest(states, 3) == digest_of_small_version(3));
        CHECK(saved_digest(states, 5) == digest_of_small_version(5));
        CHECK(text_of(flushed_version(states, 5) / "lineage.json") == "of rank 0\n");
        CHECK(leavings_in(states).empty());

        std::vector<std::string> files;
        for (int r = 0; r < ranks; ++r) files.push_back(pack_id{{}, r, ranks}.file());
        const small_rank expected(0, 1, 5);
        small_rank found(0, 1, 1);
        saved_state::of_packs(flushed_version(states, 5), files).load(found.view);
        CHECK(std::ranges::equal(found.table.span(), expected.table.span()));
        CHECK(std::ranges::equal(found.all.span(), expected.all.span()));
        CHECK((found.number == 5 && found.text == "plan 5"));
    }
}

TEST_CASE("what is in flight at the end is committed before finish() returns") {
    const temporary_folder run;
    std::atomic<int> wrong = 0;
    // The helper of rank 1 takes longer than a message may.
    run_ranks(2, {.time_limit = 2}, [&](threads_communicator& c) {
        version_writer writer(writer_config(run.path, c), std::make_unique<late_queue>(c.rank() * 2.5));
        const small_rank rank(c.rank(), c.size(), 7);
        writer.capture(7, rank.view, "{}");
        wrong += vote(c, writer).prepared == 2;
        wrong += writer.finish(c).failed != 0;
        if (c.rank() == 0) wrong += saved_digest(run.path, 7) != digest_of_small_version(7);
        wrong += writer.finish(c).failed != 0 || writer.last_step() != 7;
    });
    CHECK(wrong == 0);
}

TEST_CASE("a rank whose disk fails costs the version, no step, and the next one succeeds") {
    for (const int ranks : {1, 2, 4}) {
        const temporary_folder run;
        const auto states = run / "states", other = run / "other";
        std::filesystem::create_directory(states);
        std::ofstream(other) << "no directory";  // where the last rank expects one
        std::atomic<int> wrong = 0;
        run_ranks(ranks, [&](threads_communicator& c) {
            const bool fails = c.rank() == c.size() - 1;
            version_writer writer(writer_config(fails ? other : states, c), start_helper());
            const auto take = [&](int step) {
                const small_rank rank(c.rank(), c.size(), step);
                writer.capture(step, rank.view, "{}");
            };
            take(1);
            steps_of_flight(c, writer);
            wrong += writer.last_step() != -1 || writer.finish(c).failed != c.size();
            wrong += writer.times().failed != 1 || writer.times().shared.versions != 0;
            if (fails) {
                std::filesystem::remove(other);
                std::filesystem::create_directory_symlink(states, other);
            }
            vote(c, writer);  // all wait for that
            take(2);
            wrong += writer.finish(c).failed != 0 || writer.last_step() != 2;
            wrong += writer.times().failed != 1 || writer.times().shared.versions != 1;
        });
        CHECK(wrong == 0);
        CHECK(saved_digest(states, 2) == digest_of_small_version(2));
        CHECK(list_versions(states).size() == 1);
        CHECK(leavings_in(states).empty());  // what the others had written
    }
}

TEST_CASE("a disk that is full is left as it was, and is used again when there is room") {
    const temporary_folder run;
    std::atomic<int> wrong = 0;
    run_ranks(2, [&](threads_communicator& c) {
        version_writer writer(writer_config(run.path, c), start_helper());
        const tensor<float> large = tensor<float>::filled({c.rank() == 0 ? 1000 : 300'000}, 1.0f);
        state_view view;
        view.add(concat("tensor of ", c.rank()), large);
        std::optional<file_size_limit> full;
        if (c.rank() == 0) full.emplace(500'000);
        vote(c, writer);
        writer.capture(1, view, "{}");
        wrong += writer.finish(c).failed != 2;
        if (c.rank() == 0) wrong += !std::filesystem::is_empty(run.path);
        full.reset();
        vote(c, writer);
        writer.capture(2, view, "{}");
        wrong += writer.finish(c).failed != 0;
    });
    CHECK(wrong == 0);
    CHECK(verify_version(flushed_version(run.path, 2), true).tensors.size() == 2);
}

TEST_CASE("a version is given up when the last rank has written; meanwhile training goes on") {
    const temporary_folder run;
    std::ofstream(run / "file") << "no directory";
    std::atomic<int> wrong = 0, steps = 0;
    run_ranks(2, {.time_limit = 2}, [&](threads_communicator& c) {
        version_writer writer(writer_config(c.rank() == 0 ? run / "file" : run / "states", c),
                              std::make_unique<late_queue>(c.rank() * 0.5));
        const small_rank rank(c.rank(), c.size(), 1);
        writer.capture(1, rank.view, "{}");
        const int taken = steps_of_flight(c, writer);
        if (c.rank() == 0) steps = taken;
        const stopwatch stalled;
        writer.capture(2, rank.view, "{}");  // does not wait for the disk
        wrong += stalled.seconds() > 0.4;
        wrong += writer.finish(c).failed != 2;
    });
    CHECK(wrong == 0);
    CHECK(steps > 5);
}

TEST_CASE("a commit that fails, and what follows one, are told apart") {
    const temporary_folder run;
    std::atomic<int> wrong = 0;
    run_ranks(1, [&](threads_communicator& c) {
        version_writer::config config = writer_config(run.path, c);
        std::string before = "the log cannot be synced", after;
        config.before_commit = [&] { require(before.empty(), before); };
        config.after_commit = [&] { require(after.empty(), after); };
        version_writer writer(config, start_helper());
        const small_rank rank(0, 1, 1);
        writer.capture(1, rank.view, "{}");
        wrong += writer.finish(c).failed != 1 || !std::filesystem::is_empty(run.path);
        before.clear(), after = "an old version cannot be removed";
        writer.capture(2, rank.view, "{}");
        wrong += writer.finish(c).failed != 0;
    });
    CHECK(wrong == 0);
    CHECK(saved_digest(run.path, 2) == digest_of_small_version(1));
}

TEST_CASE("a rank that has what must not be saved tells all") {
    const temporary_folder run;
    std::atomic<int> wrong = 0;
    run_ranks(4, [&](threads_communicator& c) {
        version_writer::config config = writer_config(run.path, c);
        config.examine = [r = c.rank()](const packed_piece& p, const std::byte*) {
            return r == 2 && p.name == "model/table" ? "model/table is not finite" : "";
        };
        version_writer writer(config, start_helper());
        const small_rank rank(c.rank(), c.size(), 1);
        writer.capture(1, rank.view, "{}");
        version_votes all;
        while (all.broken == 0 && writer.in_flight()) all = vote(c, writer);
        wrong += all.broken != 1 || !writer.in_flight();
        wrong += writer.why_broken() != (c.rank() == 2 ? "model/table is not finite" : "");
        wrong += writer.finish(c).broken != 1;
    });
    CHECK(wrong == 0);
    CHECK(list_versions(run.path).empty());
}

TEST_CASE("replicas that have drifted apart are named, tensor and ranks") {
    using bits_of_ranks = std::vector<std::uint32_t>;
    // The bits of element 70,000 on each rank; what rank 0 says, "" where all is well.
    for (const auto& [bits, expected] : std::vector<std::pair<bits_of_ranks, std::string>>{
             {{5, 5, 5, 5}, ""},
             {{5, 5, 4, 5}, "weight (100000) of rank 2 is not that of ranks 0, 1, 3"},
             {{7, 5, 5}, "weight (100000) of rank 0 is not that of ranks 1, 2"},
             {{5, 5, 0x80000005, 4}, "weight (100000) of rank 3 is not that of ranks 0, 1"},
             {{5, 6}, "weight (100000) of rank 1 is not that of rank 0"}}) {
        const temporary_folder run;
        const int ranks = static_cast<int>(bits.size());
        std::string said;
        std::atomic<int> wrong = 0;
        run_ranks(ranks, [&, bits = bits](threads_communicator& c) {
            tensor<float> weight = tensor<float>::filled({100'000}, 1.5f), statistics({10});
            weight[70'000] = std::bit_cast<float>(bits[static_cast<std::size_t>(c.rank())]);
            statistics[3] = static_cast<float>(c.rank());  // not said to be alike
            state_view view;
            view.add("weight", weight, {.where = {}, .share = {c.rank(), ranks}, .alike = true});
            view.add("statistics", statistics, {.where = {}, .share = {c.rank(), ranks}});
            version_writer writer(writer_config(run.path, c), start_helper());
            writer.capture(1, view, "{}");
            const version_votes last = writer.finish(c);
            const bool drifted = std::ranges::count(bits, bits[0]) != ranks;
            wrong += last.broken != drifted || last.failed != drifted;
            wrong += writer.has_drifted() != (drifted && c.rank() == 0);
            if (c.rank() == 0) said = writer.why_broken();
        });
        CHECK(wrong == 0);
        CHECK(list_versions(run.path).size() == expected.empty());
        CHECK(leavings_in(run.path).empty());
        if (expected.empty())
            CHECK(said.empty());
        else
            CHECK_THAT(said, Contains("state of step 1") && Contains("have drifted apart") && Contains(expected));
    }
}

TEST_CASE("memory for versions is one copy of the rank's part, within its limit") {
    const temporary_folder run;
    std::atomic<int> wrong = 0;
    run_ranks(2, [&](threads_communicator& c) {
        const auto live = [] { return memory_pool::host().use_of(memory_category::staging).live; };
        auto large = tensor<float>::filled({500'000}, 1.0f);
        state_view view;
        view.add("all", large, {.where = {}, .share = {c.rank(), 2}});
        const double part = 1e6;  // bytes: half of 500,000 elements of 4
        {
            version_writer::config config = writer_config(run.path, c);
            config.staging = 600'000;
            version_writer writer(config, start_helper());
            const std::string text = message_of([&] { writer.capture(1, view, "{}"); });
            wrong += !contains(text, "state.staging_mb allows 0.6 MB") || !contains(text, "0.40") ||
                     !contains(text, "MB are missing");
            wrong += live() != 0 || writer.in_flight();
        }
        version_writer::config config = writer_config(run.path, c);
        config.staging = 1'010'000;
        config.after_commit = [&] {
            const std::vector<stored_version> all = list_versions(run.path);
            for (std::size_t i = 1; i < all.size(); ++i) remove_version(run.path, all[i].name);
        };
        version_writer writer(config, start_helper());
        for (int step = 1; step <= 200; ++step) {
            writer.capture(step, view, "{}");
            large[static_cast<index_t>(step) * 1000] = 0;  // something is new each time
            steps_of_flight(c, writer);
            wrong += std::abs(static_cast<double>(live()) / part - 1) > 0.02;
        }
        wrong += writer.finish(c).failed != 0;
        wrong += static_cast<double>(memory_pool::host().use_of(memory_category::staging).peak) > 1.02 * part;
    });
    CHECK(wrong == 0);
    CHECK(list_versions(run.path).size() == 1);
}

TEST_CASE("what did not change since the version before is linked") {
    const temporary_folder run, branch;
    std::atomic<int> wrong = 0;
    run_ranks(2, [&](threads_communicator& c) {
        const auto frozen = tensor<float>::filled({20'000}, 1.5f);
        tensor<float> trained({2'000});
        state_view view;
        view.add("frozen", frozen, {.where = {}, .share = {c.rank(), 2}});
        view.add("trained", trained, {.where = piece::whole({2'000}).in_row(c.rank(), 2), .share = {}});
        const auto take = [&](version_writer& writer, int step) {
            std::ranges::fill(trained.span(), static_cast<float>(step));
            writer.capture(step, view, "{}");
            wrong += writer.finish(c).failed != 0;
        };
        version_writer writer(writer_config(run.path, c), start_helper());
        take(writer, 1);
        const double first = writer.times().bytes;
        take(writer, 2);
        wrong += writer.times().bytes > 1.5 * first;
        version_writer::config config = writer_config(branch.path, c);
        config.attempt = {1, 1};
        version_writer other(config, start_helper());
        other.begins_with(flushed_version(run.path, 2));
        take(other, 2);
        wrong += other.times().bytes > 3000;  // nothing is new
    });
    CHECK(wrong == 0);
    CHECK(std::filesystem::hard_link_count(flushed_version(run.path, 1) / pack_id{{}, 1, 2}.file()) == 3);
    CHECK(saved_digest(run.path, 2) == verify_version(list_versions(branch.path).at(0).directory, true).digest);
    CHECK(saved_digest(run.path, 1) != saved_digest(run.path, 2));
}

TEST_CASE("votes of ranks add up in one number") {
    const std::int64_t most = version_votes::base - 1;
    for (const std::int64_t prepared : {std::int64_t{0}, std::int64_t{1}, std::int64_t{4096}, most})
        for (const std::int64_t failed : {std::int64_t{0}, std::int64_t{1}, most - prepared})
            for (const std::int64_t broken : {std::int64_t{0}, std::int64_t{3}, most - prepared - failed})
                for (const std::int64_t due : {0, 1}) {
                    if (broken < 0) continue;
                    // One rank after another, as an all-reduce adds.
                    double sum = version_votes{.due = due}.number();
                    sum += static_cast<double>(prepared) * version_votes{.prepared = 1}.number();
                    sum += static_cast<double>(failed) * version_votes{.failed = 1}.number();
                    sum += static_cast<double>(broken) * version_votes{.broken = 1}.number();
                    const version_votes found = version_votes::of(sum);
                    CHECK((found.due == due && found.prepared == prepared && found.failed == failed &&
                           found.broken == broken));
                }
}

}  // namespace cairn::test
