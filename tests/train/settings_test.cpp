// Numeric settings: those that are read somewhere, each with values that no run can have.

#include "catch.hpp"
#include "messages.hpp"
#include "optim/linear_regression.hpp"
#include "sanitized.hpp"
#include "train/compiled_session.hpp"
#include "train/descent.hpp"

#include <cairn/comm/threads.hpp>

#include <functional>
#include <set>

namespace cairn {

namespace {

/// Reads settings; what it leaves in them is what it has asked for.
using reader = std::function<configuration(configuration)>;

configuration built(configuration settings) {
    run_parts<> run(std::move(settings), {.out = {}, .resume = {}, .max_steps = 1, .generated = true},
                    self_communicator{});
    return std::move(run.task.settings);
}

configuration with_loss_scale(configuration settings) {
    read_loss_scale(settings);
    return settings;
}

struct settings_case {
    std::string text;
    reader read = built;
};

const std::string small_digits = "data.format='mnist'\nmodel.kind='mlp'\nmodel.hidden=[3]\n";
const std::string small_volumes =
    "data.format='cosmology'\ndata.cosmology.size=4\nmodel.kind='mlp'\nmodel.hidden=[3]\n";

/// Together they read every numeric setting.
std::vector<settings_case> all_workloads() {
    std::vector<settings_case> all{
        {"data.format='mnist'\nmodel.kind='lenet'\n"},
        {"data.format='mnist'\nmodel.kind='autoencoder'\nmodel.hidden=[3]\nloss.kind='reconstruction'\n"},
        {"data.format='cifar10'\nmodel.kind='resnet-cifar'\nmodel.depth=8\n"},
        {"data.format='cifar100'\nmodel.kind='resnet'\n"},
        {"data.format='folder'\ndata.folder.size=8\ndata.folder.classes=2\nmodel.kind='mlp'\nmodel.hidden=[3]\n"},
        {"data.format='packed'\ndata.packed.samples=64\ndata.packed.sample=[2, 2, 1]\ndata.packed.classes=2\n"
         "model.kind='mlp'\nmodel.hidden=[3]\n"},
        {"data.format='quijote'\ndata.quijote.crop=8\nmodel.kind='map-cnn'\nmodel.filters=[3]\n"},
        {"data.format='cosmology'\ndata.cosmology.size=4\nmodel.kind='cosmoflow'\nmodel.filters=2\nmodel.blocks=1\n"},
        {"data.format='text'\ndata.text.length=4\nmodel.kind='transformer'\nmodel.embedding_dim=4\nmodel.heads=2\n"
         "model.blocks=1\n"},
        {"data.format='text'\ndata.stream=true\ndata.text.length=4\nmodel.kind='transformer-xl'\n"
         "model.embedding_dim=4\nmodel.heads=2\nmodel.blocks=1\n"},
        {"data.format='segmentation'\ndata.segmentation.size=[8, 8, "
         "8]\nmodel.kind='unet'\nmodel.filters=2\nmodel.levels=2\n"
         "loss.kind='dice'\n"},
        {"data.format='fields'\nmodel.kind='unet'\nmodel.filters=2\nmodel.levels=2\n"},
        {"data.format='table'\ndata.table.history=2\nmodel.kind='residual-mlp'\nmodel.width=3\n"},
        {"data.format='graph'\nmodel.kind='gcn'\nmodel.hidden=[3]\ntrain.batch=1\n"},
        {small_digits + "train.activation_memory='compress'\nactivations.rule='fixed'\nactivations.codec='group'\n"},
        {"data.format='mnist'\nmodel.kind='cnn'\nmodel.filters=[2]\n"},
        {"data.format='table'\ndata.table.columns=['s']\ndata.table.text=['s']\ndata.table.text_length=6\n"
         "model.kind='cnn'\nmodel.filters=[2]\nmodel.kernel=3\nmodel.stride=1\nmodel.global_pool=true\n"},
        {small_digits + "[[phases]]\nepochs=[0, 1]\n"},
        {"train.loss_scale=8\n", with_loss_scale},
        {"", with_loss_scale}};
    for (const char* kind : {"sgd", "adam", "adamw", "lars", "lamb", "descent", "shampoo", "soap", "muon"})
        all.push_back({small_digits + "optimizer.kind='" + kind + "'\n"});
    all.push_back({small_digits + "optimizer.kind='kfac'\nkfac.step_size='quadratic_model'\n"});
    all.push_back({small_digits + "optimizer.kind='kfac'\nkfac.fisher='mc'\nkfac.step_size='clip'\n"});
    for (const char* kind : {"one_cycle", "cosine", "step", "polynomial", "constant"})
        all.push_back({small_volumes + "lr_schedule.kind='" + kind + "'\n"});
    for (const char* kind : {"bf16", "fp16", "topk", "sampled_topk", "dgc", "randomk", "qsgd", "natural", "sign",
                             "onebit", "powersgd", "powersgd_alternating", "error_bounded", "auto"})
        all.push_back({small_volumes + "compress.kind='" + kind + "'\n"});
    return all;
}

/// The error of a workload with one setting changed, to an array where the setting is one; "" if there is none.
std::string refusal(const settings_case& w, const std::string& path, const std::string& value) {
    const auto why = [&](const std::string& assignment) {
        return test::message_of([&] {
            configuration settings = configuration::from_text(w.text);
            settings.set(assignment);
            w.read(std::move(settings));
        });
    };
    const std::string scalar = why(path + '=' + value);
    return test::contains(scalar, "must be an array") ? why(path + "=[" + value + ']') : scalar;
}

// No mistakes: seeds, rates and penalties without an upper end, "never" and "no limit".
const std::set<std::string> sensible{
    "activations.added_variance=1000000000",
    "activations.audit_interval=1000000000",
    "activations.bound=1000000000",
    "activations.f=1000000000",
    "compress.dense_steps=1000000000",
    "data.cosmology.seed=1000000000",
    "data.fields.known_seed=1000000000",
    "data.fields.split_seed=1000000000",
    "data.folder.cache_mib=1000000000",
    "data.folder.split_seed=1000000000",
    "data.graph.scale=1000000000",
    "data.graph.split_seed=1000000000",
    "data.packed.samples=1000000000",
    "data.packed.stored_bytes=1000000000",
    "data.quijote.split_seed=1000000000",
    "data.segmentation.split_seed=1000000000",
    "data.table.split_seed=1000000000",
    "kfac.damping=1000000000",
    "kfac.damping_interval=1000000000",
    "kfac.example_stride=1000000000",
    "kfac.factor_update_interval=1000000000",
    "kfac.inverse_update_interval=1000000000",
    "kfac.kl_clip=1000000000",
    "kfac.max_size=1000000000",
    "kfac.min_damping=1000000000",
    "kfac.model_example_stride=1000000000",
    "kfac.norm_limit=1000000000",
    "kfac.position_stride=1000000000",
    "loss.dice_smooth=1000000000",
    "lr_schedule.power=1000000000",
    "muon.adam_lr_ratio=1000000000",
    "optimizer.clip_norm=1000000000",
    "optimizer.lr=1000000000",
    "optimizer.slowness=1000000000",
    "optimizer.trust_coefficient=1000000000",
    "optimizer.weight_decay=1000000000",
    "phases.1.lr=1000000000",
    "shampoo.block=1000000000",
    "shampoo.epsilon=1000000000",
    "shampoo.refresh_every=1000000000",
    "soap.epsilon=1000000000",
    "soap.max_size=1000000000",
    "soap.refresh_every=1000000000",
    "state.staging_mb=1000000000",
    "train.epochs=1000000000",
    "train.log_every=1000000000",
    "train.loss_scale_every=1000000000",
    "train.memory_limit_mb=1000000000",
    "train.save_every=1000000000",
    "train.seed=-1000000000",
    "train.seed=1000000000",
    "train.test_every=1000000000",
};

}  // namespace

TEST_CASE("settings: the workloads of this test read what every entry of the registries reads", "[settings]") {
    std::string texts;
    for (const settings_case& w : all_workloads()) texts += w.text;
    const auto check_named = [&](const std::vector<std::string>& names) {
        for (const std::string& name : names) {
            if (name.starts_with("test-")) continue;  // of other tests in the same program
            CAPTURE(name);
            CHECK(test::contains(texts, "kind='" + name + "'") + test::contains(texts, "format='" + name + "'") == 1);
        }
    };
    check_named(data_formats::global().names());
    check_named(models<cpu, float>::global().names());
    check_named(optimizers<cpu>::global().names());
    check_named(preconditioner_names<cpu>());
    check_named(compressors<cpu>::global().names());
    check_named(lr_schedules::global().names());
}

TEST_CASE("settings: no number is read that is not finite, or out of its range", "[settings]") {
    std::set<std::string> tried, accepted;
    for (const settings_case& w : all_workloads()) {
        const configuration defaults = w.read(configuration::from_text(w.text));
        for (const auto& [path, allowed] : defaults.numbers()) {
            if (!tried.insert(path + text_of(allowed)).second) continue;
            if (test::sanitized && tried.size() % 4) continue;  // all of them without
            for (const char* value : {"nan", "inf", "-inf", "-1000000000", "1000000000"}) {
                const std::string why = refusal(w, path, value);
                CAPTURE(w.text, path, value, why);
                if (why.empty())
                    accepted.insert(path + '=' + value);
                else
                    CHECK(test::contains(why, "--set " + path + ": " + path + " = " + value +
                                                  " is out of range; it must be " + text_of(allowed)));
            }
        }
    }
    CHECK(tried.size() > 70);
    for (const std::string& one : accepted) {
        CAPTURE(one);
        CHECK(sensible.contains(one));
    }
    for (const std::string& one : sensible) {
        CAPTURE(one);
        CHECK((test::sanitized || accepted.contains(one)));
    }
}

TEST_CASE("settings: ends of ranges", "[settings]") {
    const std::string characters =
        "data.format='text'\ndata.text.length=4\nmodel.kind='transformer'\nmodel.embedding_dim=4\n"
        "model.heads=2\nmodel.blocks=1\n";
    const auto says = [](const std::string& text, const char* path, const char* value, const char* allowed) {
        const std::string why = refusal({text}, path, value);
        CAPTURE(path, value, why);
        CHECK(test::contains(why, concat(path, " = ", value, " is out of range; it must be ", allowed)));
    };
    says(characters, "model.dropout", "-0.1", "at least 0 and below 1");
    says(characters, "model.dropout", "1", "at least 0 and below 1");
    says(characters, "model.blocks", "0", "at least 1 and at most 1000");
    says(characters, "data.text.test_fraction", "1.5", "at least 0 and below 1");
    says("data.format='folder'\n", "data.folder.test_fraction", "1.5", "at least 0 and below 1");
    says("data.format='folder'\n", "data.folder.resize", "7", "at least 224 and at most 32768");
    says("data.format='quijote'\n", "data.quijote.fold", "5", "at least 0 and at most 4");
    says("data.format='quijote'\ndata.quijote.folds=3\n", "data.quijote.fold", "3", "at least 0 and at most 2");
    says("data.format='mnist'\n", "data.mnist.shift", "-5", "at least 0 and at most 28");
    says(small_digits + "train.batch=16\n", "train.micro_batches", "17", "at least 1 and at most 16");
    says(small_digits + "optimizer.kind='kfac'\n", "kfac.inverse_staleness", "100", "at least 0 and at most 99");
    says(small_volumes + "compress.kind='topk'\n", "compress.ratio", "0", "above 0 and at most 1");
    CHECK(refusal({characters}, "model.dropout", "0.999").empty());
    CHECK(refusal({small_digits}, "train.batch", "1").empty());
}

TEST_CASE("settings: what nothing asks for is left out of a file, not of the command line", "[settings]") {
    configuration settings = configuration::from_text("a.used=1\na.spare=2\n");
    settings.set("a.typed=3");
    settings.get("a.used", 0, any_number);
    CHECK(settings.leave_out_unused() == std::vector<std::string>{"a.spare"});
    CHECK(!settings.has("a.spare"));
    CHECK(settings.has("a.used"));
    CHECK_THROWS_WITH(settings.check_all_used(), Catch::Contains("--set a.typed: setting 'a.typed' is not known"));
}

TEST_CASE("settings: a type that does not fit is named with what is expected", "[settings]") {
    CHECK(test::contains(refusal({small_digits}, "train.batch", "1.5"), "'train.batch' must be a whole number"));
    CHECK(test::contains(refusal({small_digits}, "train.batch", "1e3"), "1e3 and 1000.0 are real ones"));
    CHECK(test::contains(refusal({small_digits}, "train.batch", "many"), "must be a whole number"));
    CHECK(test::contains(refusal({small_digits}, "optimizer.lr", "fast"), "'optimizer.lr' must be a number"));
    CHECK(test::contains(refusal({small_digits}, "model.hidden", "[3, nan]"), "model.hidden = nan is out of range"));
    CHECK(test::contains(refusal({"data.format='text'\n"}, "data.text.shift", "-5"), "must be true or false"));
    const std::string where =
        test::message_of([] { built(configuration::from_text("data.format='mnist'\ndata.mnist.shift=-5\n")); });
    CHECK(where == "(text):2: data.mnist.shift = -5 is out of range; it must be at least 0 and at most 28");
}

TEST_CASE("settings: a table without a name is refused with its line", "[settings]") {
    CHECK_THROWS_WITH(configuration::from_text("name = 'x'\n[ = 'x'\n"),
                      Catch::Contains("line 2") && Catch::Contains("key"));
}

TEST_CASE("kfac.memory_limit_mb is in MiB, as every limit of memory") {
    configuration settings = configuration::from_text("kfac.memory_limit_mb = 3\nkfac.grad_worker_fraction = 0\n");
    CHECK(detail::read_kfac_ranks(settings).how.memory_limit == index_t{3} << 20);
}

// On a linear network under a squared loss the quadratic model is right: after every step the damping falls.
TEST_CASE("kfac.factor_decay and kfac.damping_decay do what their names say", "[settings]") {
    configuration settings = configuration::from_text(
        "optimizer.kind = 'kfac'\nkfac.step_size = 'quadratic_model'\nkfac.factor_update_interval = 1\n"
        "kfac.factor_decay = 0.5\nkfac.damping = 1e-4\nkfac.damping_interval = 1\nkfac.damping_decay = 0.8\n");
    linear_regression problem({.in = 3, .out = 2, .bias = false}, 16);
    any_communicator alone{self_communicator{}};
    const auto owner = make_preconditioner(settings, problem.weights, alone);
    auto& curvature = dynamic_cast<kfac<float>&>(*owner);
    const auto size = make_quadratic_step(settings, problem.weights, owner.get());
    double first = 0, average = 0;
    for (const double decayed : {1e-4 * 0.8, 1e-4 * 0.8 * 0.8}) {
        problem.take(*size, problem.backward(&curvature));
        CHECK(size->lambda() == Approx(decayed));
        average = static_cast<double>(curvature.blocks()[0].a[0].statistics.average()[0]);
        if (first == 0) first = average;
        for (float& v : problem.x.span()) v *= 2;
    }
    CHECK(average == Approx((0.5 * first + 4 * first) / 1.5));
}

TEST_CASE("kfac.compress_bound is the error of sums of factors", "[settings]") {
    const auto error_of = [](const char* bound) {
        configuration settings =
            configuration::from_text(concat("kfac.compress = 'error_bounded'\nkfac.compress_bound = ", bound, "\n"));
        const reduction_method<cpu> how = detail::hook_of_factors(detail::read_kfac_ranks(settings));
        double most = 0;
        run_ranks(2, [&](threads_communicator& threads) {
            any_communicator c(threads);
            std::vector<float> sum(1000);
            for (std::size_t i = 0; i < sum.size(); ++i)
                sum[i] = static_cast<float>(random_stream{1, 1, 0}.normal(i)) / 8;
            sum[0] = 1;  // the largest
            std::vector<float> exact = sum;
            how.hook_of({bucket_layout{}, 1000, 2, c.rank()})->reduce(c, sum, {.rank = c.rank()});
            for (std::size_t i = 0; i < sum.size() && c.rank() == 0; ++i)
                most = std::max(most, std::abs(static_cast<double>(sum[i] - 2 * exact[i])));
        });
        return most;
    };
    for (const auto& [text, bound] : {std::pair{"0.1", 0.1}, std::pair{"1e-4", 1e-4}}) {
        const double error = error_of(text);
        CHECK(error <= 2.001 * bound);
        CHECK(error > 0.2 * bound);
    }
}

}  // namespace cairn
