// Preconditioners on pipelines: each stage has its layers, sums over all layers are those of the whole model.

#include "catch.hpp"
#include "train/thread_runs.hpp"

namespace pipeline_kfac {

using namespace cairn;
using test::losses;
using test::settings_list;
using test::train;
using test::why;

namespace {

const std::string network =
    "[data]\nformat = 'cosmology'\ncosmology.size = 8\ncosmology.volumes = 24\ncosmology.test_volumes = "
    "8\n[model]\nkind = 'cosmoflow'\nfilters = 2\n"
    "blocks = 2\nnormalise = true\n[train]\nbatch = 8\nepochs = 2\nlog_every = 1\nmicro_batches = 4\n";
const std::string with_kfac =
    network +
    "[optimizer]\nkind = 'kfac'\nlr = 1e-2\n[kfac]\nform = 'eigen'\ndamping = 1e-2\nfactor_update_interval = 1\n"
    "inverse_update_interval = 2\n";

std::vector<double> losses_of(int ranks, const settings_list& set, const std::string& text = with_kfac) {
    const temporary_folder folder;
    train(ranks, {.out = folder / "run", .resume = {}, .max_steps = -1}, set, text);
    return losses(folder / "run");
}

settings_list joined(settings_list set, const settings_list& more) {
    set.insert(set.end(), more.begin(), more.end());
    return set;
}

const std::vector<settings_list> pipelines{{"parallel.pipeline=2"},
                                           {"parallel.pipeline=2", "parallel.schedule=zb_v"},
                                           {"parallel.pipeline=4", "parallel.schedule=zb_h1"}};

void require_bits_of_one_rank(const settings_list& how, const std::string& text = with_kfac) {
    const std::vector<double> expected = losses_of(1, how, text);
    REQUIRE(expected.size() == 6);
    for (const settings_list& set : pipelines) {
        CAPTURE(how, set);
        CHECK(losses_of(set.front().back() - '0', joined(set, how), text) == expected);
    }
}

void check_shared_work(const std::vector<settings_list>& ways) {
    for (const settings_list& how : ways) {
        const settings_list set = joined({"model.normalise=false"}, how);
        const std::vector<double> expected = losses_of(2, set);
        for (const char* schedule : {"1f1b", "zb_v"}) {  // zb_v: two stages a rank
            CAPTURE(how, schedule);
            const settings_list grid{"parallel.pipeline=2", "parallel.data=2", concat("parallel.schedule=", schedule)};
            const std::vector<double> got = losses_of(4, joined(grid, set));
            REQUIRE(got.size() == expected.size());
            for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).epsilon(1e-6));
        }
    }
}

}  // namespace

TEST_CASE("pipeline K-FAC: the bits of one rank", "[session]") {
    require_bits_of_one_rank({"kfac.step_size=clip", "kfac.kl_clip=1e-6", "kfac.fisher=mc"});
    require_bits_of_one_rank({"optimizer.kind=soap", "optimizer.lr=1e-3"}, network);
}

TEST_CASE("pipeline K-FAC: the bits of one rank in every form, of every preconditioner", "[.exhaustive]") {
    for (const settings_list& how :
         {settings_list{},                               // the KL clip is a sum over all layers
          {"kfac.step_size=clip", "kfac.kl_clip=1e-6"},  // and takes hold
          {"kfac.step_size=clip", "kfac.kl_clip=0", "kfac.norm_limit=1e-3",
           "kfac.form=inverse"},  // so is the norm of the step
          {"optimizer.base=adam", "optimizer.lr=1e-3"},
          {"kfac.fisher=mc", "kfac.example_stride=2"},
          {"kfac.inverse_staleness=1", "kfac.inverse_update_interval=3", "optimizer.clip_norm=0.1"},
          {"kfac.skip=['conv1']", "kfac.norm_layers=true"}})
        require_bits_of_one_rank(how);
    for (const char* kind : {"shampoo", "soap", "muon"})
        require_bits_of_one_rank({concat("optimizer.kind=", kind), "optimizer.lr=1e-3"}, network);
}

TEST_CASE("pipeline K-FAC: work shared along the data axis is that of data parallelism alone", "[session]") {
    check_shared_work({{"kfac.statistics=sharded", "kfac.step_size=clip", "kfac.kl_clip=1e-6"}});
}

TEST_CASE("pipeline K-FAC: work shared along the data axis, in every way", "[.exhaustive]") {
    check_shared_work({{}, {"kfac.grad_worker_fraction=0.5"}, {"kfac.compress=bf16"}, {"kfac.fisher=mc"}});
}

TEST_CASE("pipeline K-FAC: statistics of a rank's own rows are of the rows of other ranks than without a pipeline",
          "[session]") {
    // Which rank's rows a layer's statistics are made of depends on the layers that share the work.
    const settings_list local{"model.normalise=false", "kfac.statistics=local"};
    const std::vector<double> flat = losses_of(2, local),
                              got = losses_of(4, joined({"parallel.pipeline=2", "parallel.data=2"}, local));
    REQUIRE(got.size() == flat.size());
    CHECK(got.front() == flat.front());
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(flat[i]).epsilon(0.1));
}

TEST_CASE("pipeline K-FAC: the step of the quadratic model has the bits of one rank", "[session]") {
    const settings_list how{"kfac.step_size=quadratic_model", "train.micro_batches=1", "kfac.damping_interval=2"};
    const std::vector<double> expected = losses_of(1, how);
    for (const int ranks : {2, 4}) {
        CAPTURE(ranks);
        const settings_list set{concat("parallel.pipeline=", ranks), "parallel.schedule=gpipe"};
        CHECK(losses_of(ranks, joined(set, how)) == expected);
    }
    const settings_list two = joined({"model.normalise=false", "kfac.model_example_stride=2"}, how);
    const std::vector<double> flat = losses_of(2, two),
                              got = losses_of(4, joined({"parallel.pipeline=2", "parallel.data=2"}, two));
    REQUIRE(got.size() == flat.size());
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(flat[i]).epsilon(1e-6));
}

TEST_CASE("pipeline K-FAC: a state goes on at any cut", "[session]") {
    for (const settings_list& how : {settings_list{}, {"kfac.inverse_staleness=1", "kfac.inverse_update_interval=3"}}) {
        CAPTURE(how);
        const temporary_folder folder;
        train(1, {.out = folder / "whole", .resume = {}, .max_steps = -1}, how, with_kfac);
        train(2, {.out = folder / "cut", .resume = {}, .max_steps = 2}, joined({"parallel.pipeline=2"}, how),
              with_kfac);
        train(1, {.out = {}, .resume = folder / "cut", .max_steps = 3}, {"parallel.pipeline=1"}, with_kfac);
        train(4, {.out = {}, .resume = folder / "cut", .max_steps = -1},
              {"parallel.pipeline=4", "parallel.schedule=gpipe"}, with_kfac);
        CHECK(losses(folder / "cut") == losses(folder / "whole"));
    }
}

}  // namespace pipeline_kfac
