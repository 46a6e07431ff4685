// Runs in phases ([[phases]]): what they refuse, their steps and rates, images of several sizes, resume inside a phase
// and at its border, and the running mean of weights.

#include "catch.hpp"
#include "data/writers.hpp"
#include "train/saved_states.hpp"
#include "train/thread_runs.hpp"

namespace cairn {

namespace {

// Two classes of images, 12 for training and 4 for tests.
struct two_classes {
    temporary_folder folder;

    two_classes() {
        for (int i = 0; i < 16; ++i) {
            const auto path =
                folder / "images" / (i < 12 ? "train" : "test") / (i % 2 ? "odd" : "even") / concat(i, ".png");
            std::filesystem::create_directories(path.parent_path());
            const auto bytes = test::png_file(test::picture(17, 17, static_cast<unsigned>(i)));
            std::ofstream(path, std::ios::binary)
                .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        }
    }
    // Five epochs of 3 + 3 + 4 + 4 + 3 steps.
    std::string workload(const std::string& more = "") const {
        return "[data]\nformat = 'folder'\nfolder.size = 12\npath = '" + (folder / "images").string() +
               "'\n[model]\nkind = 'resnet-cifar'\ndepth = 8\n[optimizer]\nlr = 0.01\n[train]\nlog_every = 1\n"
               "batch = 4\n" +
               more +
               "[[phases]]\nepochs = [0, 2]\nsize = 8\nlr = [1, 2]\n"
               "[[phases]]\nepochs = [2, 4]\nsize = 12\nbatch = 3\nlr = [2, 0.5]\narea_min = 0.5\n"
               "[[phases]]\nepochs = [4, 5]\nsize = 17\nlr = [0.5]\n";
    }
};

constexpr std::int64_t steps_of_all = 17;

std::map<std::string, std::uint64_t> digests_of(const std::filesystem::path& run) {
    std::map<std::string, std::uint64_t> all;
    for (const auto& t : read_manifest(test::newest_version(run)).tensors)
        if (!t.name.starts_with("machine/")) all[t.name] = t.digest;
    return all;
}

const std::string digits = "data.format='mnist'\nmodel.kind='mlp'\nmodel.hidden=[3]\n";

phase_list read(const std::string& text) {
    configuration settings = configuration::from_text(text);
    return read_phases(settings, 32);
}

std::string refusal_of(const std::string& text) {
    return test::message_of([&] {
        run_parts<> run(configuration::from_text(text), {.out = {}, .resume = {}, .max_steps = 1, .generated = true},
                        self_communicator{});
    });
}

}  // namespace

TEST_CASE("phases: those that overlap, leave epochs out or fit neither data nor model are refused", "[phases]") {
    using test::contains;
    const auto two = [](const std::string& first, const std::string& second) {
        return digits + "[[phases]]\n" + first + "\n[[phases]]\n" + second + "\n";
    };
    CHECK(
        contains(refusal_of(two("epochs=[0, 3]", "epochs=[2, 4]")), "phases.2 begins with epoch 2, which an earlier"));
    CHECK(contains(refusal_of(two("epochs=[0, 3]", "epochs=[4, 5]")), "epochs 3 to 3 are in no phase"));
    CHECK(contains(refusal_of(two("epochs=[1, 3]", "epochs=[3, 5]")), "epochs 0 to 0 are in no phase"));
    CHECK(contains(refusal_of(two("epochs=[0, 3]", "epochs=[3, 3]")), "phases.2.epochs: a phase goes from"));
    CHECK(contains(refusal_of(two("epochs=[0, 3]", "batch=8")), "phases.2.epochs: a phase goes from"));
    CHECK(contains(refusal_of(two("epochs=[0, 3]\nlr=[1, 2]", "epochs=[3, 4]")), "all phases have a rate"));
    CHECK(contains(refusal_of(two("epochs=[0, 3]\nlr=[1, 2, 3]", "epochs=[3, 4]\nlr=[1]")), "3 rates"));
    CHECK(contains(refusal_of("train.epochs=3\n" + two("epochs=[0, 3]", "epochs=[3, 4]")), "phases end with epoch 4"));
    CHECK(contains(refusal_of("lr_schedule.kind='cosine'\n" + two("epochs=[0, 3]\nlr=[1]", "epochs=[3, 4]\nlr=[1]")),
                   "phases have rates of their own"));
    CHECK(contains(refusal_of(two("epochs=[0, 3]", "epochs=[3, 4]\nsize=8")), "data.format = mnist have one size"));
    CHECK(contains(refusal_of(two("epochs=[0, 3]", "epochs=[3, 4]\nbatch=100000")), "phases.2"));
    CHECK(contains(refusal_of(two("epochs=[0, 3]", "epochs=[3, 4]\nsise=8")), "did you mean 'phases.2.size'"));
    const std::string folder = "data.format='folder'\ndata.folder.size=8\ndata.folder.classes=2\nmodel.hidden=[3]\n",
                      larger = "[[phases]]\nepochs=[0, 1]\n[[phases]]\nepochs=[1, 2]\nsize=16\n";
    CHECK(contains(refusal_of(folder + "model.kind='mlp'\n" + larger), "phases.2.size = 16"));
    CHECK(contains(test::why(2, {"parallel.pipeline=2"},
                             "data.format='cosmology'\ndata.cosmology.size=4\nmodel.kind='mlp'\nmodel.hidden=[3]\n"
                             "[[phases]]\nepochs=[0, 3]\n[[phases]]\nepochs=[3, 4]\nbatch=8\n"),
                   "leave parallel.pipeline"));
}

// fast.ai's schedule of 2018 for one machine, in multiples of the rate; 1,281,167 images.
TEST_CASE("phases: rates and epochs of the published ImageNet schedule", "[phases]") {
    struct part {
        int begin, end, size, batch;
        double from, to;
    };
    const std::vector<part> published{{0, 7, 128, 512, 1, 2},
                                      {7, 13, 128, 512, 2, 0.25},
                                      {13, 22, 224, 224, 0.4375, 0.04375},
                                      {22, 25, 224, 224, 0.04375, 0.004375},
                                      {25, 28, 288, 128, 0.0025, 0.00025}};
    constexpr index_t images = 1281167;
    std::string text;
    for (const part& p : published)
        text += concat("[[phases]]\nepochs = [", p.begin, ", ", p.end, "]\nsize = ", p.size, "\nbatch = ", p.batch,
                       "\nlr = [", p.from, ", ", p.to, "]\n");
    phase_list phases = read(text);
    for (training_phase& p : phases.all) p.batches = images / p.batch;
    const lr_schedule rate = phases.rates(0.3);
    std::int64_t step = 0;
    for (const part& p : published)
        for (int epoch = p.begin; epoch < p.end; ++epoch) {
            const index_t batches = images / p.batch;
            REQUIRE(phases.before(epoch) == step);
            REQUIRE(phases.epochs_of(step) == Approx(epoch));
            REQUIRE(phases.all[phases.of_epoch(epoch)].images.edge == p.size);
            for (index_t batch = 0; batch < batches; ++batch, ++step) {
                const double done = epoch - p.begin + static_cast<double>(batch) / static_cast<double>(batches),
                             wanted = 0.3 * (p.from + (p.to - p.from) * done / (p.end - p.begin));
                if (std::abs(rate(step) - wanted) > 1e-12)
                    FAIL("step " << step << ": " << rate(step) << ", " << wanted);
            }
        }
    CHECK(phases.steps() == step);
    CHECK(phases.epochs_of(step) == 28);
    CHECK(phases.steps_of(7.5) == Approx(7.5 * (images / 512)));
    CHECK(read("train.epochs = 4\n").all.front().end == 4);
}

TEST_CASE("phases: batches have the sizes of their phase, and settings come back as they were", "[phases]") {
    const two_classes data;
    autotune_cache::global().set_policy(autotune_policy::first);
    run_parts<> run(configuration::from_text(data.workload()), {.out = {}, .resume = {}, .max_steps = -1},
                    self_communicator{});
    CHECK(run.batches.last_step == steps_of_all);
    CHECK(run.batches.epochs == 5);
    std::vector<index_t> edges, ends;
    for (std::int64_t step = 0; step < run.batches.last_step;) {
        auto b = run.batches.train->next();
        if (!b) {
            ends.push_back(step);
            continue;
        }
        edges.push_back(b->there.x.extent(1));
        CHECK(b->host.count == (edges.back() == 12 ? 3 : 4));
        CHECK(run.batches.is_test_due() == (++step == 3 || step == 6 || step == 10 || step == 14 || step == 17));
    }
    CHECK(ends == std::vector<index_t>{3, 6, 10, 14});
    CHECK(edges == std::vector<index_t>{8, 8, 8, 8, 8, 8, 12, 12, 12, 12, 12, 12, 12, 12, 17, 17, 17});
    const std::string resolved = run.task.settings.resolved();
    CHECK(configuration::from_text(resolved).get("phases.2.size", index_t{0}, at_least(0)) == 12);
    CHECK(test::contains(resolved, "[phases.3]"));
}

TEST_CASE("phases: resumed inside a phase and at its border, bit for bit", "[phases]") {
    const two_classes data;
    const std::string text = data.workload("ema = 0.9\ntest_every = 0\n");
    const std::filesystem::path whole = data.folder / "whole";
    test::train(1, {.out = whole, .resume = {}, .max_steps = -1}, {}, text);
    for (const std::int64_t stop : {6, 9, 14}) {
        CAPTURE(stop);
        const std::filesystem::path out = data.folder / concat("stopped", stop);
        test::train(1, {.out = out, .resume = {}, .max_steps = stop}, {}, text);
        CHECK(test::losses(out).size() == static_cast<std::size_t>(stop));
        test::train(1, {.out = {}, .resume = out, .max_steps = -1}, {}, text);
        CHECK(test::losses(out) == test::losses(whole));
        CHECK(test::metrics_of(out, "lr") == test::metrics_of(whole, "lr"));
        CHECK(digests_of(out) == digests_of(whole));
        CHECK(digests_of(out).contains("ema/fc/weight"));
    }
    const std::string changed = test::message_of([&] {
        const std::filesystem::path out = data.folder / "changed";
        test::train(1, {.out = out, .resume = {}, .max_steps = 9}, {}, text);
        test::train(1, {.out = {}, .resume = out, .max_steps = -1}, {"phases.1.batch=2"}, text);
    });
    CHECK(test::contains(changed, "the run was saved with 12 training samples, train.batch = 3"));
}

TEST_CASE("phases: two ranks take the steps of one", "[phases]") {
    const two_classes data;
    const std::string text = data.workload("test_every = 1\nema = 0.9\n");
    const auto one = test::train(1, {.out = data.folder / "one", .resume = {}, .max_steps = -1}, {}, text),
               two = test::train(2, {.out = data.folder / "two", .resume = {}, .max_steps = -1},
                                 {"parallel.sync_batch_norm=true"}, text);
    const auto expected = test::losses(data.folder / "one"), got = test::losses(data.folder / "two");
    REQUIRE(expected.size() == steps_of_all);
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).epsilon(1e-3));
    CHECK(two["test_loss"].get<double>() == Approx(one["test_loss"].get<double>()).epsilon(1e-2));
    CHECK(two.contains("test_ema_accuracy"));
}

// The published schedule on generated images, 16 an epoch: a three-hundredth of its steps.
TEST_CASE("phases: the whole schedule of ResNet-50, images of 128, 224 and 288", "[phases][.exhaustive]") {
    const temporary_folder folder;
    configuration settings = configuration::from_file("benchmarks/workloads/resnet50-dawnbench.toml");
    for (const char* set :
         {"train.batch=16", "phases.3.batch=7", "phases.4.batch=7", "phases.5.batch=4", "data.train_samples=16",
          "optimizer.lr=0.004", "train.log_every=1", "state.every='28 epochs'"})
        settings.set(set);
    session<> s(std::move(settings), {.out = folder / "run", .resume = {}, .max_steps = -1, .generated = true});
    const nlohmann::json done = s.train();
    CHECK(done["finished"] == true);
    CHECK(done["epochs"] == 28);
    const std::vector<double> losses = test::losses(folder / "run"), rates = test::metrics_of(folder / "run", "lr");
    REQUIRE(losses.size() == 13 * 1 + 12 * 2 + 3 * 4);
    CHECK(std::ranges::all_of(losses, [](double loss) { return std::isfinite(loss); }));
    CHECK(rates[0] == Approx(0.004));
    CHECK(rates[7] == Approx(0.008));
    CHECK(rates[13] == Approx(0.004 * 0.4375));
    CHECK(rates[48] == Approx(0.004 * (0.0025 - 0.00225 * 11 / 12)));
}

TEST_CASE("weight average: the mean of a plain loop, and tests leave the weights alone", "[phases]") {
    const two_classes data;
    autotune_cache::global().set_policy(autotune_policy::first);
    run_parts<> run(configuration::from_text(data.workload("ema = 0.8\n")), {.out = {}, .resume = {}, .max_steps = -1},
                    self_communicator{});
    auto& weights = run.model.weights->values();
    weight_average<cpu>& average = *run.update.average;
    std::vector<double> mean(weights.data(), weights.data() + weights.size());
    const auto buffers = run.model.buffers();
    std::vector<double> statistics(buffers[0].t->data(), buffers[0].t->data() + buffers[0].t->size());
    for (int t = 0; t < 6;) {
        auto b = run.batches.train->next();
        if (!b) continue;
        run.update.trainer->step({*b, 1});
        const double d = std::min(0.8, (1.0 + t) / (10.0 + t));
        for (std::size_t i = 0; i < mean.size(); ++i)
            mean[i] = d * mean[i] + (1 - d) * static_cast<double>(weights.data()[i]);
        for (std::size_t i = 0; i < statistics.size(); ++i)
            statistics[i] = d * statistics[i] + (1 - d) * static_cast<double>(buffers[0].t->data()[i]);
        ++t;
    }
    double worst = 0;
    for (std::size_t i = 0; i < mean.size(); ++i)
        worst = std::max(worst, std::abs(mean[i] - static_cast<double>(average.mean().data()[i])));
    for (std::size_t i = 0; i < statistics.size(); ++i)
        worst =
            std::max(worst, std::abs(statistics[i] - static_cast<double>(average.statistics()[0].second.data()[i])));
    CHECK(worst < 1e-5);
    const std::vector<float> before(weights.data(), weights.data() + weights.size());
    {
        const averaged_weights<cpu> while_tested(average);
        CHECK(static_cast<double>(weights.data()[0]) == Approx(mean[0]).margin(1e-5));
        CHECK(average.mean().data()[0] == before[0]);
    }
    CHECK(std::equal(before.begin(), before.end(), weights.data()));
}

}  // namespace cairn
