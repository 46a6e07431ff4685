#pragma once
// Inputs that optimizers seldom meet: data that never change, losses of any size, batches and factors of one. A run on
// them trains, or stops and says why; it does not go on with a loss that has grown.

#include "catch.hpp"
#include "messages.hpp"
#include "state/temporary_folder.hpp"
#include "train/compiled_session.hpp"

#include <cairn/comm/threads.hpp>
#include <cairn/train/objectives.hpp>

#include <fstream>
#include <string>
#include <vector>

namespace cairn::test {

/// Samples (edge, edge, 1): drawn, or each like the other.
struct odd_samples {
    index_t edge = 4;
    float input = -1;     // of every pixel; below 0: drawn
    bool same = false;    // targets
    bool values = false;  // targets are two values
    index_t classes = 3;

    index_t size() const { return 25; }  // no multiple of a batch
    shape sample_shape() const { return {edge, edge, 1}; }
    target_info targets() const {
        target_info info = numbered_classes(values ? 2 : classes);
        if (!values) return info;
        info.kind = target_kind::values;
        info.mean = {0, 0};
        info.scale = {1, 1};
        return info;
    }
    std::string sample_name(index_t i) const { return concat("sample ", i); }
    bool read(index_t i, augment_key, sample_slot to) const {
        const random_stream random{3, 5, static_cast<std::uint32_t>(i)};
        const auto n = static_cast<std::uint64_t>(edge * edge);
        for (std::uint64_t j = 0; j < n; ++j) to.x[j] = input < 0 ? static_cast<float>(random.normal(j)) : input;
        const float mean = to.x[0] + to.x[n - 1];
        if (to.label) to.label[0] = same ? 0 : static_cast<std::int32_t>(mean > 0 ? classes - 1 : 0);
        for (int k = 0; to.values && k < 2; ++k) to.values[k] = same ? 1 : mean * static_cast<float>(1 + k);
        return true;
    }
};

struct odd_format {
    static constexpr const char* name = "test-odd";
    odd_samples of;
    template <class Table>
    void read(Table& table) {
        table("edge", of.edge, from_to(1, 8));
        table("input", of.input, any_number);
        table("same", of.same);
        table("values", of.values);
        table("classes", of.classes, from_to(1, 9));
    }
    data_parts without_files(std::uint64_t) const { return load(); }
    data_parts load() const { return make_data_parts(of, {}); }
};
static const register_data_format<odd_format> odd_is_known;

/// Squared differences, times a factor.
struct scaled_difference {
    double factor = 1;

    struct rule {
        float factor;
        CAIRN_HD float operator()(float y, float t, float scale, float& gradient) const {
            gradient = 2 * scale * factor * (y - t);
            return factor * (y - t) * (y - t);
        }
    };
    template <Device D>
    loss_result<float, D> loss(tensor<float, D> y, const samples<D>& s) const {
        return elementwise_loss("scaled", std::move(y), s.targets, {}, rule{static_cast<float>(factor)});
    }
    evaluation start() const { return {}; }
    template <Device D>
    void add(evaluation&, const tensor<float, D>&, const device_batch<D>&) const {}
    metric_list metrics(const evaluation&) const { return {}; }
};

struct scaled_entry {
    static constexpr const char* name = "scaled";
    static shape outputs(const objective_ends& ends) {
        ends.need(name, target_kind::values);
        return ends.rows();
    }
    template <Device D>
    static scaled_difference make(configuration& settings, const objective_ends&) {
        return {settings.get("loss.factor", 1.0, above(0))};
    }
};
static const register_objective<scaled_entry, CAIRN_TARGETS> scaled_is_known;

using settings_of_case = std::vector<std::string>;

struct odd_case {
    const char* name;
    settings_of_case set;
    int ranks = 1;
};

inline std::vector<odd_case> odd_cases() {
    return {{"drawn", {}},
            {"a batch of one", {"train.batch=1"}},
            {"constant inputs", {"data.test-odd.input=1"}},
            {"inputs of zero: rows of zero, dead units", {"data.test-odd.input=0"}},
            {"one class", {"data.test-odd.classes=1"}},
            {"labels that never change", {"data.test-odd.same=true"}},
            {"values that never change", {"data.test-odd.same=true", "data.test-odd.values=true"}},
            {"a small loss", {"data.test-odd.values=true", "loss.kind=scaled", "loss.factor=1e-6"}},
            {"a large loss", {"data.test-odd.values=true", "loss.kind=scaled", "loss.factor=1e6"}},
            {"factors of one element", {"data.test-odd.edge=1", "model.hidden=[1]", "data.test-odd.classes=1"}},
            {"all of it",
             {"train.batch=1", "data.test-odd.input=0", "data.test-odd.same=true", "data.test-odd.values=true"}},
            {"unequal shards, the last batch on one rank", {"train.batch=8"}, 3},
            {"a convolution of constant inputs", {"model.kind=cnn", "model.kernel=3", "data.test-odd.input=1"}},
            {"tied weights",
             {"model.kind=transformer", "model.tied_embedding=true", "model.embedding_dim=8", "model.heads=2",
              "model.blocks=1", "data.format=text", "data.text.length=6"}}};
}

/// How a run ends: its losses, or the reason that it gives.
struct odd_end {
    int steps;
    std::vector<double> losses = {};
    std::string reason = {};
};

template <Device D>
odd_end train_odd(const std::filesystem::path& run, const odd_case& c, const std::string& kind,
                  const settings_of_case& more = {}, int steps = 40) {
    const bool single = std::ranges::count(c.set, "train.batch=1") > 0;
    odd_end end{single ? 8 * steps : steps};  // as many samples as with the batch of 8
    end.reason = message_of([&] {
        run_ranks(c.ranks, {.kernel_threads = 1, .time_limit = 30}, [&](threads_communicator& ranks) {
            configuration s = configuration::from_text(
                "[data]\nformat = 'test-odd'\n[model]\nkind = 'mlp'\nhidden = [5]\n[optimizer]\nkind = '" + kind +
                "'\n[train]\nbatch = 8\nepochs = 40\nlog_every = 1\ntest_every = 0\n");
            if (c.set.size() && c.set[0].starts_with("model.kind=")) s.leave_out("model");
            for (const settings_of_case* all : {&c.set, &more})
                for (const std::string& one : *all) s.set(one);
            if (c.set.size() && c.set[0] == "model.kind=transformer") {
                const std::string text = run.string() + ".txt";
                for (std::ofstream to(text); to.tellp() < 2000;) to << "a fox jumps over " << to.tellp() << " dogs; ";
                s.set(concat("data.path='", text, "'"));
            }
            session<D>(std::move(s), {.out = run, .resume = {}, .max_steps = end.steps},
                       any_communicator(ranks.split(0, ranks.rank())))
                .train();
        });
    });
    std::ifstream in(run / "metrics.jsonl");
    for (std::string line; std::getline(in, line);)
        if (const auto entry = nlohmann::json::parse(line); entry.contains("loss") && entry["loss"].is_number())
            end.losses.push_back(entry["loss"]);
    return end;
}

/// Trains to the end without a loss that grows, or stops and names a way out. The loss at the end is the median of the
/// last quarter: that of a batch of one is one sample's.
inline void check_end(const odd_end& end) {
    CAPTURE(end.reason);
    if (!end.reason.empty()) {
        CHECK_THAT(end.reason, Catch::Contains("step ") && Catch::Contains("--set optimizer.lr="));
        return;
    }
    REQUIRE(static_cast<int>(end.losses.size()) == end.steps);
    for (const double loss : end.losses) CHECK(std::isfinite(loss));
    std::vector<double> late(end.losses.end() - end.steps / 4, end.losses.end());
    std::ranges::nth_element(late, late.begin() + std::ssize(late) / 2);
    CHECK(late[late.size() / 2] <= 5 * end.losses.front() + 1e-12);
}

}  // namespace cairn::test
