// Whole runs on the host: what they refuse, and how they end after they were killed.

#include "catch.hpp"
#include "data/writers.hpp"
#include "train/saved_states.hpp"
#include "train/thread_runs.hpp"

#include <cairn/comm/threads.hpp>

#include <chrono>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cairn {

namespace {

// Two epochs of two steps, each followed by a test.
const std::string volumes =
    "[data]\nformat = 'cosmology'\ncosmology.size = 8\ncosmology.volumes = 8\ncosmology.test_volumes = "
    "4\n[model]\nkind = 'cosmoflow'\nfilters = 2\n"
    "blocks = 1\n[optimizer]\nlr = 1e-3\n[train]\nbatch = 4\nepochs = 2\nlog_every = 1\n";

nlohmann::json train(const session_options& options, const std::string& workload = volumes) {
    session<> s(configuration::from_text(workload), options);
    return s.train();
}

nlohmann::json resume(const std::filesystem::path& run) { return train({.out = {}, .resume = run, .max_steps = -1}); }

/// Those volumes, with batch normalisation, in a format whose first sample is infinite in the first epoch.
struct infinite_once {
    any_dataset base;
    index_t size() const { return base.size(); }
    shape sample_shape() const { return base.sample_shape(); }
    target_info targets() const { return base.targets(); }
    std::string sample_name(index_t i) const { return base.sample_name(i); }
    bool read(index_t i, augment_key key, sample_slot slot) const {
        const bool kept = base.read(i, key, slot);
        if (i == 0 && key.epoch == 0) slot.x[0] = std::numeric_limits<float>::infinity();
        return kept;
    }
};
struct infinite_once_format : cosmology_format {
    static constexpr const char* name = "test-infinite-once";
    data_parts load() const {
        data_parts all = cosmology_format::load();
        all.train = infinite_once{all.train};
        return all;
    }
};
const register_data_format<infinite_once_format> infinite_once_is_known;

std::string normalised(const std::string& format) {
    std::string text = volumes + "non_finite = 'skip'\n";
    for (auto at = text.find("cosmology"); at != std::string::npos; at = text.find("cosmology", at + format.size()))
        text.replace(at, 9, format);
    return text.replace(text.find("blocks = 1"), 10, "blocks = 1\nnormalise = true");
}

// Two classes of images for training and for tests, in files of which some may be cut short.
struct image_files {
    temporary_folder folder;

    image_files(int training, int testing) {
        for (int i = 0; i < training; ++i) write("train", i);
        for (int i = 0; i < testing; ++i) write("test", i);
    }
    std::filesystem::path file(const char* part, int i) const {
        return folder / "images" / part / (i % 2 ? "odd" : "even") / concat(i, ".png");
    }
    void write(const char* part, int i) const {
        std::filesystem::create_directories(file(part, i).parent_path());
        const auto content = test::png_file(test::picture(9, 9, static_cast<unsigned>(i)));
        std::ofstream(file(part, i), std::ios::binary)
            .write(reinterpret_cast<const char*>(content.data()), static_cast<std::streamsize>(content.size()));
    }
    void cut_short(const char* part, int i) const {
        std::filesystem::resize_file(file(part, i), std::filesystem::file_size(file(part, i)) / 2);
    }
    std::string workload(const std::string& model) const {
        return "[data]\nformat = 'folder'\nfolder.size = 8\npath = '" + (folder / "images").string() + "'\n[model]\n" +
               model + "[optimizer]\nlr = 1e-3\n[train]\nlog_every = 1\nepochs = 2\nbatch = 2\n";
    }
};

const std::string perceptron = "kind = 'mlp'\nhidden = [3]\n";

}  // namespace

TEST_CASE("session: a run that was killed between its last state and its record gets the rest, once", "[session]") {
    const temporary_folder folder;
    const nlohmann::json whole = train({.out = folder / "run", .resume = {}, .max_steps = -1});
    REQUIRE(whole["finished"] == true);
    const std::string metrics = test::text_of(folder / "run" / "metrics.jsonl");
    const std::vector<std::vector<const char*>> lost{{"record.json"},  // killed before the record, or before the report
                                                     {"record.json", "report.html"},
                                                     {"record.json", "report.html", "trace.json"},
                                                     {"report.html"}};
    for (const auto& files : lost) {
        CAPTURE(files.size());
        for (const char* file : files) std::filesystem::remove(folder / "run" / file);
        const nlohmann::json rest = resume(folder / "run");
        for (const char* figure : {"train_loss", "test_loss", "steps", "finished", "test_times_better_than_mean"})
            CHECK(rest.at(figure) == whole.at(figure));
        CHECK(rest["samples_per_s"] > 0);
        CHECK(rest["seconds"] > 0);
        CHECK(test::text_of(folder / "run" / "metrics.jsonl") == metrics);
        for (const char* file : {"record.json", "report.html", "trace.json"})
            CHECK(std::filesystem::exists(folder / "run" / file));
        const auto record = nlohmann::json::parse(test::text_of(folder / "run" / "record.json"));
        CHECK(record["result"] == rest);
        CHECK(test::contains(test::message_of([&] { resume(folder / "run"); }), "nothing is left to do"));
    }
}

TEST_CASE("session: a state that is older than its record is gone on from", "[session]") {
    const temporary_folder folder;
    train({.out = folder / "run", .resume = {}, .max_steps = 2});
    const nlohmann::json rest = resume(folder / "run"),
                         whole = train({.out = folder / "whole", .resume = {}, .max_steps = -1});
    CHECK(rest["test_loss"] == whole["test_loss"]);
    CHECK(rest["train_loss"] == whole["train_loss"]);
}

TEST_CASE("session: a run goes on with the batches that it was saved with, or not at all", "[session]") {
    const temporary_folder folder;
    train({.out = folder / "run", .resume = {}, .max_steps = 1});
    const auto saved = [&] { return test::text_of(test::newest_version(folder / "run") / "rank-0000.pack"); };
    const std::string before = saved();
    const auto refused = [&](const char* setting, const char* other) {
        const std::string why = test::message_of([&] {
            configuration settings = configuration::from_text(volumes);
            settings.set(setting);
            session<>(std::move(settings), {.out = {}, .resume = folder / "run", .max_steps = -1}).train();
        });
        CAPTURE(setting, why);
        CHECK(test::contains(why, "saved with 8 training samples, train.batch = 4, 2 batches an epoch"));
        CHECK(test::contains(why, other));
        CHECK(saved() == before);
    };
    refused("train.batch=2", "8 training samples, train.batch = 2, 4 batches");
    refused("train.batch=8", "8 training samples, train.batch = 8, 1 batches");
    refused("data.cosmology.volumes=12", "12 training samples, train.batch = 4, 3 batches");
    // As earlier programs saved it.
    test::make_file_of_newest(folder / "run", {"loader_batch_size", "loader_batches", "loader_samples"});
    CHECK(resume(folder / "run")["finished"] == true);
}

TEST_CASE("session: the one file that runs left before there were versions is gone on from", "[session]") {
    const temporary_folder folder;
    for (const int ranks : {1, 2}) {
        const auto run = folder / concat("run", ranks), whole = folder / concat("whole", ranks);
        const std::string workload = normalised("cosmology");
        test::train(ranks, {.out = whole, .resume = {}, .max_steps = -1}, {}, workload);
        test::train(1, {.out = run, .resume = {}, .max_steps = 2}, {}, workload);
        test::make_file_of_newest(run);
        test::train(ranks, {.out = {}, .resume = run, .max_steps = -1}, {}, workload);
        if (ranks == 1) CHECK(test::losses(run) == test::losses(whole));
        CHECK(test::has_state(run));
        CHECK(test::losses(run).size() == test::losses(whole).size());
    }
}

TEST_CASE("session: a test image that cannot be read costs no step, on any number of ranks", "[session]") {
    const image_files images(8, 4);
    const std::string workload = images.workload(perceptron);
    for (const int ranks : {1, 2}) {
        CAPTURE(ranks);
        const auto run = images.folder / concat("run", ranks), whole = images.folder / concat("whole", ranks);
        const auto go = [&](const session_options& options) { return test::train(ranks, options, {}, workload); };
        images.cut_short("test", 3);
        const std::string why = test::message_of([&] { go({.out = run, .resume = {}, .max_steps = -1}); });
        CHECK(test::contains(why, "3.png"));
        REQUIRE(test::has_state(run));
        images.write("test", 3);
        CHECK(go({.out = {}, .resume = run, .max_steps = -1})["finished"] == true);
        go({.out = whole, .resume = {}, .max_steps = -1});
        CHECK(test::losses(run) == test::losses(whole));
    }
}

TEST_CASE("session: a training image that cannot be read costs no step before it", "[session]") {
    const image_files images(8, 2);
    const std::string workload = images.workload(perceptron) + "test_every = 0\n";
    const auto whole = images.folder / "whole";
    train({.out = whole, .resume = {}, .max_steps = -1}, workload);
    REQUIRE(test::losses(whole).size() == 8);
    int saved = 0;
    for (int i = 0; i < 8; ++i) {
        CAPTURE(i);
        const auto run = images.folder / concat("run", i);
        images.cut_short("train", i);
        CHECK(test::contains(test::message_of([&] { train({.out = run, .resume = {}, .max_steps = -1}, workload); }),
                             concat(i, ".png")));
        images.write("train", i);
        if (!test::has_state(run)) continue;  // of the first batch
        ++saved;
        CHECK(train({.out = {}, .resume = run, .max_steps = -1}, workload)["finished"] == true);
        CHECK(test::losses(run) == test::losses(whole));
    }
    CHECK(saved == 6);
}

TEST_CASE("session: a last batch that batch normalisation cannot do with is refused before the first step",
          "[session]") {
    const image_files images(5, 2);
    const std::string workload = images.workload("kind = 'map-cnn'\nfilters = [2, 2, 2]\n") + "test_every = 0\n";
    for (const int ranks : {1, 2}) {
        CAPTURE(ranks);
        const auto why = [&](const test::settings_list& set, std::int64_t steps) {
            return test::why(ranks, set, workload, steps);
        };
        const std::string refused = why({concat("train.batch=", 2 * ranks)}, -1);
        CAPTURE(refused);
        CHECK(test::contains(refused, "a micro-batch of one sample"));
        CHECK(test::contains(refused, "train.drop_last = true"));
        CHECK(!test::contains(refused, "step "));
        CHECK(why({concat("train.batch=", 2 * ranks), "train.drop_last=true"}, -1).empty());
    }
    CHECK(test::why(1, {}, workload, 2).empty());  // before the last batch
}

TEST_CASE("session: a trace has the events of its own run, not of those before it in the process", "[session]") {
    const temporary_folder folder;
    const auto events = [&](const char* name) {
        const std::string from = "epochs = 2";  // the fifth step is the first that is traced
        std::string longer = volumes;
        longer.replace(longer.find(from), from.size(), "epochs = 3");
        train({.out = folder / name, .resume = {}, .max_steps = -1}, longer);
        return nlohmann::json::parse(test::text_of(folder / name / "trace.json"))["traceEvents"].size();
    };
    const std::size_t first = events("first");
    CHECK(first > 0);
    CHECK(2 * events("second") < 3 * first);  // not twice as many; threads that wait for each other add a few
}

TEST_CASE("session: two runs in one directory", "[session]") {
    const temporary_folder folder;
    const run_directory other(folder / "run");
    const std::string why = test::message_of([&] { train({.out = folder / "run", .resume = {}, .max_steps = 1}); });
    CHECK(test::contains(why, "is in use by process"));
    CHECK(!std::filesystem::exists(folder / "run" / "config.toml"));
}

TEST_CASE("session: a loss that the data do not allow is refused", "[session]") {
    const auto why = [](const std::string& workload) {
        return test::message_of([&] {
            session<> s(configuration::from_text(workload),
                        {.out = {}, .resume = {}, .max_steps = -1, .generated = true});
        });
    };
    const std::string of_classes = "[data]\nformat = 'mnist'\n[model]\nkind = 'mlp'\nhidden = [4]\n[loss]\nkind = ";
    CHECK(test::contains(why(of_classes + "'mse'\n"), "set loss.kind = cross_entropy"));
    CHECK(why(of_classes + "'cross_entropy'\n").empty());
    CHECK(test::contains(why(volumes + "[loss]\nkind = 'cross_entropy'\n"), "set loss.kind = mse"));
    CHECK(why(volumes + "[loss]\nkind = 'mse'\n").empty());
}

TEST_CASE("session: lines of metrics that no run wrote are named", "[session]") {
    const temporary_folder folder;
    train({.out = folder / "run", .resume = {}, .max_steps = 2});
    const std::string metrics = test::text_of(folder / "run" / "metrics.jsonl");
    const auto refused = [&](const char* line, const char* part) {
        std::ofstream(folder / "run" / "metrics.jsonl") << metrics << line << '\n';
        const std::string why = test::message_of([&] { resume(folder / "run"); });
        CAPTURE(why);
        CHECK(test::contains(why, "metrics.jsonl:4"));
        CHECK(test::contains(why, line));
        CHECK(test::contains(why, part));
    };
    refused("[1, 2]", "the line is of type array, expected an object");
    refused("{\"step\": \"two\"}", "field 'step' is of type string, expected a whole number");
    refused("{\"step\": 1.5}", "field 'step' is of type number, expected a whole number");
    refused("{\"loss\": 1}", "field 'step' is of type null, expected a whole number");
    for (const char* field : {"loss", "seconds", "train_accuracy", "samples_per_s", "test_loss"}) {
        const std::string line = concat("{\"loss\": 1, \"step\": 2, \"", field, "\": \"x\"}");
        refused(line.c_str(), concat("field '", field, "' is of type string, expected a number").c_str());
    }
    std::ofstream(folder / "run" / "metrics.jsonl") << metrics << "{\"step\": 2, \"los";  // killed while it wrote
    CHECK(resume(folder / "run")["finished"] == true);
}

TEST_CASE("session: a figure that was not finite is no wrong type", "[session]") {
    const auto line = parse_metrics("{\"step\": 2, \"loss\": 1, \"seconds\": null}", "file:1");
    REQUIRE(line);
    metrics_log log;
    log.add(nullptr, *line);
    CHECK(log.last("loss") == 1.0);
    CHECK(!log.last("seconds"));
    CHECK(!log.last("train_accuracy"));
}

TEST_CASE("session: a record that no run wrote is named", "[session]") {
    const temporary_folder folder;
    train({.out = folder / "run", .resume = {}, .max_steps = -1});
    const auto refused = [&](const char* record, const char* part) {
        std::ofstream(folder / "run" / "record.json") << record;
        const std::string why = test::message_of([&] { resume(folder / "run"); });
        CAPTURE(why);
        CHECK(test::contains(why, "record.json: "));
        CHECK(test::contains(why, part));
        CHECK(test::contains(why, "remove the file, and --resume writes it again"));
    };
    refused("{\"result\": ", "not JSON");
    refused("[]", "the record is of type array, expected an object");
    refused("{\"result\": 3}", "field 'result' is of type number, expected an object");
    refused("{\"result\": {\"finished\": \"yes\", \"steps\": 4}}", "field 'result.finished' is of type string");
    refused("{\"result\": {\"finished\": true, \"steps\": \"4\"}}", "field 'result.steps' is of type string");
    std::filesystem::remove(folder / "run" / "record.json");
    CHECK(resume(folder / "run")["finished"] == true);
}

TEST_CASE("session: tests come each half epoch, and a run that goes on has the same", "[session]") {
    autotune_cache::global().set_policy(autotune_policy::first);
    const auto tests = [](const std::filesystem::path& run) {
        std::ifstream lines(run / "metrics.jsonl");
        std::vector<std::pair<int, double>> found;
        for (std::string line; std::getline(lines, line);)
            if (const auto entry = nlohmann::json::parse(line); entry.contains("test_loss"))
                found.emplace_back(entry["step"], entry["test_loss"]);
        return found;
    };
    const temporary_folder folder;
    const std::string often = volumes + "test_every = 0.5\n";
    train({.out = folder / "whole", .resume = {}, .max_steps = -1}, often);
    const auto whole = tests(folder / "whole");
    REQUIRE(whole.size() == 4);  // epochs have two steps
    for (int i = 0; i < 4; ++i) CHECK(whole[static_cast<std::size_t>(i)].first == i + 1);
    for (const int stop : {1, 2, 3}) {
        const auto run = folder / concat(stop);
        train({.out = run, .resume = {}, .max_steps = stop}, often);
        train({.out = {}, .resume = run, .max_steps = -1}, often);
        CHECK(tests(run) == whole);
    }
    train({.out = folder / "each", .resume = {}, .max_steps = -1}, volumes + "test_every = 0.01\n");  // a step at least
    CHECK(tests(folder / "each") == whole);
    train({.out = folder / "once", .resume = {}, .max_steps = -1}, volumes + "test_every = 1000\n");
    CHECK(tests(folder / "once") == std::vector{whole.back()});
}

TEST_CASE("session: a skipped batch leaves nothing infinite behind", "[session]") {
    const temporary_folder folder;
    const nlohmann::json end =
        train({.out = folder / "run", .resume = {}, .max_steps = -1}, normalised("test-infinite-once"));
    CHECK(end["skipped_steps"] == 1);
    CHECK(end["test_loss"].is_number());
    CHECK(end["finished"] == true);
}

TEST_CASE("session: running statistics that are not finite are not saved", "[session]") {
    const temporary_folder folder;
    configuration settings = configuration::from_text(normalised("cosmology"));
    settings.set("train.test_every=0");
    session<> s(std::move(settings), {.out = folder / "run", .resume = {}, .max_steps = 1});
    const auto buffers = s.model().buffers();
    REQUIRE(!buffers.empty());
    buffers.front().t->data()[0] = std::numeric_limits<float>::infinity();
    const std::string why = test::message_of([&] { s.train(); });
    CAPTURE(why);
    CHECK(test::contains(why, "running_mean"));
    CHECK(test::contains(why, "element 0 is inf; this state was not saved"));
    CHECK(!test::has_state(folder / "run"));
}

TEST_CASE("session: ranks wait for the one that reads a state for longer than for a message", "[session]") {
    // A pipe in place of the file: opening it takes until the other end is there, longer than the time limit. A pipe
    // cannot be a state, and that is what ends the run: not the time.
    autotune_cache::global().set_policy(autotune_policy::first);
    const temporary_folder folder;
    std::filesystem::create_directory(folder / "run");
    const std::filesystem::path file = folder / "run" / "state.cairn";
    REQUIRE(mkfifo(file.c_str(), 0600) == 0);
    int other_end = -1;
    std::thread disk([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(2500));
        other_end = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
    });
    const std::string why = test::message_of([&] {
        run_ranks(2, {.kernel_threads = 1, .time_limit = 2}, [&](threads_communicator& c) {
            session<>(configuration::from_text(volumes), {.out = {}, .resume = folder / "run", .max_steps = -1},
                      any_communicator(c.split(0, c.rank())))
                .train();
        });
    });
    disk.join();
    ::close(other_end);
    CHECK_THAT(why, Catch::Contains("not a regular file"));
}

}  // namespace cairn
