// A run with its network on another device (the emulated GPU) is the host's: losses, figures, saved states, resumed
// runs.

#include "data/writers.hpp"
#include "train/device_runs.hpp"

namespace cairn {

using namespace device_runs;

TEST_CASE("session: on another device a run gives the host's losses and weights", "[train]") {
    for (std::size_t w = 0; w < workloads.size(); ++w) {
        CAPTURE(workloads[w]);
        const folder dir;
        const run_figures host = run<cpu>(workloads[w], {.out = dir.path / "host", .resume = {}, .max_steps = 3}),
                          device = run<emulated_gpu>(workloads[w],
                                                     {.out = dir.path / "device", .resume = {}, .max_steps = 3});
        CHECK(host.losses.size() == 3);
        CHECK(distance(device, host) < 1e-4);  // float sums in another order, three steps
    }
}

TEST_CASE("session: frozen layers stay as they are on another device, in recorded steps too", "[train]") {
    const folder dir;
    for (const bool front : {true, false}) {
        CAPTURE(front);
        const auto go = [&]<class D>(D, const char* name, const char* graph, int steps) {
            return run<D>(workloads[2], {.out = dir.path / concat(name, front), .resume = {}, .max_steps = steps},
                          {front ? "optimizer.freeze=['conv*', 'bn*']" : "optimizer.freeze=['bn*', 'fc*']",
                           "train.micro_batches=1", graph});
        };
        const run_figures host = go(cpu{}, "host", "train.cuda_graph=off", 9),
                          begin = go(cpu{}, "begin", "train.cuda_graph=off", 1),
                          plain = go(emulated_gpu{}, "plain", "train.cuda_graph=off", 9),
                          recorded = go(emulated_gpu{}, "recorded", "train.cuda_graph=on", 9);
        CHECK(distance(plain, host) < 1e-4);
        CHECK(distance(recorded, plain) == 0);
        const tensor<float>&first = begin.weights.front(), &now = plain.weights.front();
        CHECK(std::equal(first.data(), first.data() + first.size(), now.data()) == front);
        CHECK(plain.weights.back()[0] != begin.weights.back()[0]);
    }
}

TEST_CASE("session: on another device a resumed run has the bits of one that was not stopped", "[train]") {
    const folder dir;
    const auto whole = run<emulated_gpu>(workloads[0], {.out = dir.path / "whole", .resume = {}, .max_steps = 4});
    run<emulated_gpu>(workloads[0], {.out = dir.path / "parts", .resume = {}, .max_steps = 2});
    const auto parts = run<emulated_gpu>(workloads[0], {.out = {}, .resume = dir.path / "parts", .max_steps = 4});
    CHECK(whole.losses.size() == 4);
    CHECK(distance(parts, whole) == 0);
    // The host goes on with a device's state.
    run<emulated_gpu>(workloads[0], {.out = dir.path / "moved", .resume = {}, .max_steps = 2});
    const auto moved = run<cpu>(workloads[0], {.out = {}, .resume = dir.path / "moved", .max_steps = 4});
    CHECK(distance(moved, whole) < 1e-4);
}

TEST_CASE("session: on another device the memory of a running text is the host's, and goes on from a state",
          "[train]") {
    const folder dir;
    const std::string text =
        "[data]\nformat='text'\nstream=true\ntext.length=6\n[model]\nkind='transformer-xl'\nembedding_dim=8\n"
        "heads=2\nblocks=1\nffn_dim=8\nmemory_length=8\n[optimizer]\nlr=1e-2\n";
    const auto host = run<cpu>(text, in_run(dir.path / "host", false, 4)),
               whole = run<emulated_gpu>(text, in_run(dir.path / "whole", false, 4));
    run<emulated_gpu>(text, in_run(dir.path / "parts", false, 2));
    const auto parts = run<emulated_gpu>(text, in_run(dir.path / "parts", true, 4));
    CHECK(distance(whole, host) < 1e-4);
    CHECK(distance(parts, whole) == 0);
}

TEST_CASE("session: batches that travel as pixels give the bits of those that travel as floats", "[train]") {
    const folder dir;
    const auto write = [&](const char* name, const test::bytes& bytes) {
        std::ofstream(dir.path / name, std::ios::binary)
            .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    };
    for (const auto& [stem, n] : std::vector<std::pair<std::string, std::uint32_t>>{{"train", 12}, {"t10k", 4}}) {
        test::bytes pixels = test::counting(n * 28 * 28, 37), labels;
        for (std::uint32_t i = 0; i < n; ++i) labels.push_back(static_cast<std::uint8_t>(i % 10));
        write((stem + "-images-idx3-ubyte").c_str(), test::idx_file({n, 28, 28}, pixels));
        write((stem + "-labels-idx1-ubyte").c_str(), test::idx_file({n}, labels));
    }
    const std::string path = "data.path=" + dir.path.string();
    const std::vector<std::string> kinds{
        "[data]\nformat = 'mnist'\nmnist.shift = 3\n[model]\nkind = 'mlp'\nhidden = [6]\n[optimizer]\nlr = 1e-2\n",
        "[data]\nformat = 'mnist'\nmnist.shift = 3\nmnist.normalise = false\n[model]\nkind = 'autoencoder'\nhidden = "
        "[6, 4]\n"
        "[loss]\nkind = 'reconstruction'\n[optimizer]\nlr = 1e-5\n[train]\ncuda_graph = 'on'\n"};
    for (std::size_t w = 0; w < kinds.size(); ++w) {  // pixels are the targets of reconstruction
        CAPTURE(kinds[w]);
        const auto go = [&]<class D>(D, const std::string& name, const char* setting, bool resume, int steps) {
            std::vector<const char*> more{path.c_str(), setting, "train.micro_batches=1", "train.test_every=1",
                                          "train.epochs=3"};
            if constexpr (std::same_as<D, cpu>) more.push_back("train.cuda_graph=off");
            session_options options = in_run(dir.path / concat(name, w), resume, steps);
            session<D> s(settings_of(kinds[w], more), options);
            const index_t bytes = emulated_gpu::copy_stream::bytes_begun;
            const nlohmann::json record = s.train();
            return std::tuple{run_figures{losses_of(options), weights_of(s)}, record,
                              emulated_gpu::copy_stream::bytes_begun - bytes};
        };
        const auto [pixels, tested, sent] = go(emulated_gpu{}, "pixels", "train.upload_uint8=true", false, 6);
        const auto [floats, expected, sent_floats] = go(emulated_gpu{}, "floats", "train.upload_uint8=false", false, 6);
        CHECK(pixels.losses.size() == 6);
        CHECK(distance(pixels, floats) == 0);
        for (const char* figure : {"test_loss", w == 0 ? "test_accuracy" : "test_squared_error"})
            CHECK(tested.at(figure) == expected.at(figure));
        CHECK((tested.at("recorded_steps").get<int>() > 0) == (w == 1));
        CHECK(sent * 3 < sent_floats);
        go(emulated_gpu{}, "parts", "train.upload_uint8=true", false, 3);
        CHECK(distance(std::get<0>(go(emulated_gpu{}, "parts", "train.upload_uint8=true", true, 6)), pixels) == 0);
        CHECK(distance(std::get<0>(go(cpu{}, "host", "train.upload_uint8=true", false, 6)), pixels) < 1e-3);
    }
}

TEST_CASE("session: recorded steps have the bits of steps that are launched one by one", "[train]") {
    for (std::size_t w = 0; w < workloads.size(); ++w) {
        CAPTURE(workloads[w]);
        const folder dir;
        const auto result_of = [&](const char* name, const char* graph) {
            std::vector<const char*> more{"train.micro_batches=1", graph};
            if (w == 0)
                more.insert(more.end(), {"optimizer.kind=kfac", "optimizer.lr=1e-3", "kfac.factor_update_interval=3"});
            return run<emulated_gpu>(workloads[w], {.out = dir.path / name, .resume = {}, .max_steps = 11}, more);
        };
        const run_figures plain = result_of("plain", "train.cuda_graph=off");
        const index_t before = emulated_gpu::graph::launched;
        const run_figures recorded = result_of("recorded", "train.cuda_graph=on");
        CHECK(plain.losses.size() == 11);
        CHECK(distance(recorded, plain) == 0);
        CHECK(emulated_gpu::graph::launched - before >= 3);
    }
}

TEST_CASE("session: layers in bfloat16 train weights in float", "[train]") {
    for (std::size_t w = 0; w < workloads.size(); ++w) {
        CAPTURE(workloads[w]);
        const folder dir;
        const auto host = run<cpu>(workloads[w], {.out = dir.path / "host", .resume = {}, .max_steps = 3}),
                   whole = run<emulated_gpu, bfloat16>(workloads[w],
                                                       {.out = dir.path / "whole", .resume = {}, .max_steps = 3});
        CHECK(distance(whole, host) < 0.05);
        CHECK(distance(whole, host) > 0);  // it does round
        run<emulated_gpu, bfloat16>(workloads[w], {.out = dir.path / "parts", .resume = {}, .max_steps = 1});
        const auto parts =
            run<emulated_gpu, bfloat16>(workloads[w], {.out = {}, .resume = dir.path / "parts", .max_steps = 3});
        CHECK(distance(parts, whole) == 0);
        run<emulated_gpu, bfloat16>(workloads[w], {.out = dir.path / "moved", .resume = {}, .max_steps = 1});
        const auto moved = run<cpu>(workloads[w], {.out = {}, .resume = dir.path / "moved", .max_steps = 3});
        CHECK(distance(moved, host) < 0.05);
    }
}

TEST_CASE("session: ranks with a GPU each train as ranks of the host do", "[train]") {
    for (const int count : {2, 3})
        for (std::size_t w = 0; w < workloads.size(); ++w) {
            CAPTURE(count, workloads[w]);
            const folder dir;
            emulated_gpu::event::made = emulated_gpu::event::waited = 0;
            const auto host =
                           run_on<cpu>(count, workloads[w], {.out = dir.path / "host", .resume = {}, .max_steps = 3}),
                       device = run_on<emulated_gpu>(count, workloads[w],
                                                     {.out = dir.path / "device", .resume = {}, .max_steps = 3});
            CHECK(host.losses.size() == 3);
            CHECK(distance(device, host) < 1e-4);
            // Each bucket of each step, on each rank: its reduction follows what backward launched. Each batch follows
            // the one before the last, and nothing follows the last batch.
            CHECK(emulated_gpu::event::made >= 3 * count);
            CHECK(emulated_gpu::event::made == emulated_gpu::event::waited + count);
        }
}

TEST_CASE("session: ranks with a GPU each share the optimizer's state, skip steps, and go on on fewer", "[train]") {
    const folder dir;
    const std::vector<const char*> sharded{"parallel.zero_stage=1", "train.non_finite=skip", "parallel.bucket_mib=1"};
    const auto go = [&](int count, const char* name, bool resume, std::int64_t steps,
                        const std::vector<const char*>& more) {
        return run_on<emulated_gpu>(count, workloads[0], in_run(dir.path / name, resume, steps), more);
    };
    const auto whole = go(2, "whole", false, 4, {}), parts = go(2, "sharded", false, 4, sharded);
    CHECK(distance(parts, whole) == 0);
    go(2, "stopped", false, 2, sharded);
    CHECK(distance(go(2, "stopped", true, 4, sharded), whole) == 0);
    go(2, "fewer", false, 2, sharded);
    CHECK(distance(go(1, "fewer", true, 4, {}), whole) < 1e-4);  // sums in another order
    const auto half =
        run_on<emulated_gpu, bfloat16>(2, workloads[0], {.out = dir.path / "half", .resume = {}, .max_steps = 4});
    CHECK(distance(half, whole) < 0.05);
    const std::string why = test::message_of([&] {
        run_on<emulated_gpu>(2, workloads[0], {.out = dir.path / "wild", .resume = {}, .max_steps = 4},
                             {"optimizer.lr=1e30"});
    });
    CHECK(test::contains(why, "no rank took the step"));
}

TEST_CASE("data parallel: on devices, too, the rank that spoilt a step is named", "[train]") {
    const auto said = [](const char* reason) {
        return test::message_of([&] {
            run_ranks(2, [&](threads_communicator& c) {
                linear<float, emulated_gpu> layer({.in = 2, .out = 3});
                arena<float, emulated_gpu> weights(layer.parameters(), 1);
                ranks<emulated_gpu>::config config;
                config.device = staged_communicator<emulated_gpu, threads_communicator>(c.split(0, c.rank()));
                any_communicator world(c.split(0, c.rank()));
                ranks<emulated_gpu> all(world, weights, std::move(config));
                all.gradients.begin(0);
                const bool guilty = c.rank() == 1;
                const float nan = std::numeric_limits<float>::quiet_NaN();
                if (guilty) emulated_gpu::copy_to_device(weights.parameters()[0].p->grad.data(), &nan, sizeof nan);
                synchronise(all.gradients, all.agree, {}, 7, guilty ? reason : "");
            });
        });
    };
    CHECK(test::contains(said("its loss is nan"), "step 7: rank 1 of 2: its loss is nan"));
    CHECK(test::contains(said(""), "the ranks' sum of the gradient of weight (3, 2): element 0 is nan"));
}

TEST_CASE("data parallel: a device does not send what is not finite, and its rank is named", "[train]") {
    std::vector<tensor<float>> sums;
    std::mutex one_at_a_time;
    const std::string why = test::message_of([&] {
        run_ranks(2, [&](threads_communicator& c) {
            linear<float, emulated_gpu> layer({.in = 2, .out = 3});
            arena<float, emulated_gpu> weights(layer.parameters(), 1);
            weights.zero_grad();
            ranks<emulated_gpu>::config config;
            config.device = staged_communicator<emulated_gpu, threads_communicator>(c.split(0, c.rank()));
            config.gradients.hook_on_device = [](const bucket_layout&, index_t n) {
                using natural_there = error_feedback<natural<emulated_gpu>>;
                return std::make_unique<message_hook<any_communicator, natural_there>>(natural_there{}, n, 2);
            };
            any_communicator world(c.split(0, c.rank()));
            ranks<emulated_gpu> all(world, weights, std::move(config));
            all.gradients.begin(0);
            const float value = c.rank() == 1 ? std::numeric_limits<float>::infinity() : 4;
            emulated_gpu::copy_to_device(weights.parameters()[1].p->grad.data() + 1, &value, sizeof value);
            std::string said = test::message_of([&] { synchronise(all.gradients, all.agree, {}, 7); });
            const std::scoped_lock lock(one_at_a_time);
            sums.push_back(weights.parameters()[1].p->grad.on_host());
            fail(said);
        });
    });
    CHECK(test::contains(why, "step 7: rank 1 of 2: gradient of bias (3): element 1 is inf"));
    REQUIRE(sums.size() == 2);
    for (const auto& sum : sums) CHECK(sum[1] == 4);  // the other rank's alone
}

TEST_CASE("session: gradients are compressed on devices as on the host, and what waits is saved", "[train]") {
    const folder dir;
    int number = 0;
    const auto check = [&](std::size_t w, const std::vector<const char*>& more, double tolerance) {
        const auto go = [&]<class D>(D, const std::string& name, bool resume, std::int64_t steps) {
            return run_on<D>(2, workloads[w], in_run(dir.path / name, resume, steps), more);
        };
        const std::string name = concat("run", number++);
        const auto device = go(emulated_gpu{}, name, false, 4);
        CHECK(distance(device, go(cpu{}, name + "h", false, 4)) < tolerance);
        go(emulated_gpu{}, name + "p", false, 2);
        CHECK(distance(go(emulated_gpu{}, name + "p", true, 4), device) == 0);
        go(emulated_gpu{}, name + "m", false, 2);  // moved to the host
        CHECK(distance(go(cpu{}, name + "m", true, 4), device) < tolerance);
    };
    check(0, {"compress.kind=sign"}, 2e-3);
    check(0, {"compress.kind=sign", "compress.two_phase=false", "compress.dense_steps=1"}, 2e-3);
    check(1, {"compress.kind=natural", "parallel.bucket_mib=1"}, 2e-3);
    check(0, {"compress.kind=qsgd", "train.non_finite=skip"}, 2e-3);
}

TEST_CASE("session: what adds on the host serves ranks with a GPU each too", "[train]") {
    const folder dir;
    int number = 0;
    const auto with = [&](std::size_t w, const std::vector<const char*>& more) {
        const std::string name = concat("run", number++);
        const auto host = run_on<cpu>(2, workloads[w], {.out = dir.path / (name + "h"), .resume = {}, .max_steps = 3},
                                      more),
                   device = run_on<emulated_gpu>(2, workloads[w],
                                                 {.out = dir.path / name, .resume = {}, .max_steps = 3}, more);
        CHECK(host.losses.size() == 3);
        return distance(device, host);
    };
    CHECK(with(0, {"parallel.zero_stage=2"}) < 1e-4);
    CHECK(with(2, {"parallel.sync_batch_norm=true"}) < 1e-4);
    CHECK(with(0, {"compress.kind=bf16", "train.non_finite=skip"}) < 2e-3);  // a last bit may round otherwise
    CHECK(with(1, {"compress.kind=powersgd", "compress.rank=2"}) < 1e-3);
    // Residuals are part of the state.
    const std::vector<const char*> few{"compress.kind=topk", "compress.ratio=0.05"};
    const auto go = [&](const char* name, bool resume, std::int64_t steps) {
        return run_on<emulated_gpu>(2, workloads[0], in_run(dir.path / name, resume, steps), few);
    };
    const auto whole = go("whole", false, 3);
    go("parts", false, 2);
    CHECK(distance(go("parts", true, 3), whole) == 0);
}

TEST_CASE("session: K-FAC on another device is the host's, and its state too", "[train]") {
    const std::string workload =
        "[data]\nformat = 'mnist'\n[model]\nkind = 'lenet'\n[optimizer]\nkind = 'kfac'\nlr = 0.01\n[kfac]\ndamping = "
        "0.01\n"
        "factor_update_interval = 1\ninverse_update_interval = 2\nform = 'inverse'\nposition_stride = 2\n";
    const folder dir;
    const auto host = run<cpu>(workload, {.out = dir.path / "host", .resume = {}, .max_steps = 4}),
               whole = run<emulated_gpu>(workload, {.out = dir.path / "whole", .resume = {}, .max_steps = 4});
    CHECK(distance(whole, host) < 1e-3);
    run<emulated_gpu>(workload, {.out = dir.path / "parts", .resume = {}, .max_steps = 3});
    CHECK(distance(run<emulated_gpu>(workload, {.out = {}, .resume = dir.path / "parts", .max_steps = 4}), whole) == 0);
    // With the settings that the run wrote down, whichever side did.
    run<cpu>(workload, {.out = dir.path / "written", .resume = {}, .max_steps = 3});
    session<emulated_gpu>(configuration::from_file(dir.path / "written" / "config.toml"),
                          {.out = {}, .resume = dir.path / "written", .max_steps = 4, .generated = true})
        .train();
    CHECK(losses_of({.out = dir.path / "written", .resume = {}}).size() == 4);
    run<emulated_gpu>(workload, {.out = dir.path / "moved", .resume = {}, .max_steps = 3});
    CHECK(distance(run<cpu>(workload, {.out = {}, .resume = dir.path / "moved", .max_steps = 4}), host) < 1e-3);
    // On several ranks, with eigenvectors; and resumed there.
    const std::vector<const char*> eigen{"kfac.form=eigen"};
    const auto on_three = [&](const char* name, bool resume, std::int64_t steps) {
        return run_on<emulated_gpu>(3, workload, in_run(dir.path / name, resume, steps), eigen);
    };
    const auto together = run_on<cpu>(3, workload, {.out = dir.path / "together", .resume = {}, .max_steps = 4}, eigen),
               three = on_three("three", false, 4);
    CHECK(distance(three, together) < 1e-3);
    on_three("stopped", false, 3);
    CHECK(distance(on_three("stopped", true, 4), three) == 0);
}

TEST_CASE("session: K-FAC on another device uses decompositions later, alone and on ranks that share them", "[train]") {
    const std::string workload =
        "[data]\nformat = 'mnist'\n[model]\nkind = 'lenet'\n[optimizer]\nkind = 'kfac'\nlr = 0.01\n[kfac]\ndamping = "
        "0.01\nfactor_update_interval = 1\ninverse_update_interval = 4\ninverse_staleness = 2\nposition_stride = 4\n";
    const folder dir;
    const auto whole = run<emulated_gpu>(workload, in_run(dir.path / "whole", false, 7));
    CHECK(distance(whole, run<cpu>(workload, in_run(dir.path / "host", false, 7))) < 1e-3);
    run<emulated_gpu>(workload, in_run(dir.path / "parts", false, 5));  // begun in the fifth step, used in the seventh
    CHECK(distance(run<emulated_gpu>(workload, in_run(dir.path / "parts", true, 7)), whole) == 0);
    const auto two = run_on<emulated_gpu>(2, workload, in_run(dir.path / "two", false, 7));
    run_on<emulated_gpu>(2, workload, in_run(dir.path / "stopped", false, 5));
    CHECK(distance(run_on<emulated_gpu>(2, workload, in_run(dir.path / "stopped", true, 7)), two) == 0);
}

TEST_CASE("session: K-FAC's placements on another device, and scale and shift, are the host's, and their states too",
          "[train]") {
    const std::string workload =
        "[data]\nformat = 'cosmology'\ncosmology.size = 8\n[model]\nkind = 'cosmoflow'\nfilters = 2\nblocks = "
        "1\nnormalise = "
        "true\n[optimizer]\nkind = 'kfac'\nlr = 0.01\n[kfac]\ndamping = 0.01\nfactor_update_interval = "
        "1\ninverse_update_interval = 2\n"
        "norm_layers = true\nposition_stride = 2\n";
    const folder dir;
    const auto host = run<cpu>(workload, in_run(dir.path / "host", false, 3));
    CHECK(distance(run<emulated_gpu>(workload, in_run(dir.path / "one", false, 3)), host) < 1e-3);
    const std::vector<const char*> memory{"kfac.grad_worker_fraction=0.5", "kfac.statistics=sharded"};
    const auto two = run_on<emulated_gpu>(2, workload, in_run(dir.path / "two", false, 3), memory);
    CHECK(distance(two, run_on<cpu>(2, workload, in_run(dir.path / "together", false, 3), memory)) < 1e-3);
    run_on<emulated_gpu>(2, workload, in_run(dir.path / "parts", false, 2), memory);
    std::filesystem::copy(dir.path / "parts", dir.path / "moved", std::filesystem::copy_options::recursive);
    CHECK(distance(run_on<emulated_gpu>(2, workload, in_run(dir.path / "parts", true, 3), memory), two) == 0);
    CHECK(distance(run_on<cpu>(2, workload, in_run(dir.path / "moved", true, 3)), two) < 1e-3);  // COMM-OPT
    // Rows of layers in fewer digits are made into floats.
    CHECK(distance(run<emulated_gpu, bfloat16>(workload, in_run(dir.path / "bf16", false, 2)),
                   run<cpu>(workload, in_run(dir.path / "floats", false, 2))) < 0.1);
}

TEST_CASE("session: K-FAC on another device draws labels and chooses its steps as the host does", "[train]") {
    const auto workload_with = [](const char* kfac) {
        return concat(
            "[data]\nformat = 'mnist'\n[model]\nkind = 'lenet'\n[optimizer]\nkind = 'kfac'\nlr = 0.01\n[kfac]\n"
            "factor_update_interval = 1\ninverse_update_interval = 2\nposition_stride = 4\n",
            kfac);
    };
    for (const auto& [kfac, pieces] :
         {std::pair{"damping = 0.01\nfisher = 'mc'\nexample_stride = 2\n", 2},
          std::pair{"damping = 1\nstep_size = 'quadratic_model'\ndamping_interval = 2\nmodel_example_stride = 2\n",
                    1}}) {
        CAPTURE(kfac);
        const folder dir;
        const std::string workload = workload_with(kfac), micro = concat("train.micro_batches=", pieces);
        const std::vector<const char*> more{micro.c_str()};
        const auto host = run<cpu>(workload, in_run(dir.path / "host", false, 4), more),
                   whole = run<emulated_gpu>(workload, in_run(dir.path / "whole", false, 4), more);
        CHECK(distance(whole, host) < 1e-3);
        run<emulated_gpu>(workload, in_run(dir.path / "parts", false, 3), more);
        CHECK(distance(run<emulated_gpu>(workload, in_run(dir.path / "parts", true, 4), more), whole) == 0);
        CHECK(distance(run_on<emulated_gpu>(2, workload, in_run(dir.path / "two", false, 3)),
                       run_on<cpu>(2, workload, in_run(dir.path / "together", false, 3))) < 1e-3);
    }
    // Labels of values and pixels are drawn there too.
    for (const std::size_t task : {std::size_t{1}, std::size_t{2}}) {
        const folder dir;
        const std::vector<const char*> sampled{"optimizer.kind=kfac", "kfac.fisher=mc", "kfac.factor_update_interval=1",
                                               "kfac.damping=0.1"};
        CHECK(distance(run<emulated_gpu>(workloads[task], in_run(dir.path / "device", false, 2), sampled),
                       run<cpu>(workloads[task], in_run(dir.path / "host", false, 2), sampled)) < 1e-3);
    }
    // In bfloat16 differences of outputs would be rounding.
    CHECK(
        test::contains(test::message_of([&] {
                           session<emulated_gpu, bfloat16>(
                               settings_of(workload_with("step_size = 'quadratic_model'\n"), {"train.micro_batches=1"}),
                               {.out = {}, .resume = {}, .generated = true});
                       }),
                       "train.precision must be float32"));
}

TEST_CASE("session: Shampoo, SOAP and Muon on another device are the host's, and their states too", "[train]") {
    for (const char* settings : {"kind = 'shampoo'\nlr = 0.01\n[shampoo]\nrefresh_every = 2\nblock = 64\n",
                                 "kind = 'soap'\nlr = 1e-3\n[soap]\nrefresh_every = 2\nmax_size = 64\nepsilon = 1e-2\n",
                                 "kind = 'muon'\nlr = 0.01\n[muon]\nskip = ['fc3']\n"}) {
        CAPTURE(settings);
        const folder dir;
        const std::string workload =
            concat("[data]\nformat = 'mnist'\n[model]\nkind = 'lenet'\n[optimizer]\n", settings);
        const auto host = run<cpu>(workload, in_run(dir.path / "host", false, 3)),
                   whole = run<emulated_gpu>(workload, in_run(dir.path / "whole", false, 3));
        CHECK(distance(whole, host) < 1e-3);
        run<emulated_gpu>(workload, in_run(dir.path / "parts", false, 2));
        std::filesystem::copy(dir.path / "parts", dir.path / "moved", std::filesystem::copy_options::recursive);
        CHECK(distance(run<emulated_gpu>(workload, in_run(dir.path / "parts", true, 3)), whole) == 0);
        CHECK(distance(run<cpu>(workload, in_run(dir.path / "moved", true, 3)), host) < 1e-3);
        // Ranks with the same gradients make the same directions: run_on() compares their bits.
        CHECK(distance(run_on<emulated_gpu>(2, workload, in_run(dir.path / "two", false, 3)),
                       run_on<cpu>(2, workload, in_run(dir.path / "together", false, 3))) < 1e-3);
    }
}

TEST_CASE("session: what a device cannot do yet is refused", "[train]") {
    const auto refused_of_kfac = [](const char* setting) {
        return test::message_of([&] {
            session<emulated_gpu>(settings_of(workloads[0], {"optimizer.kind=kfac", setting}),
                                  {.out = {}, .resume = {}, .generated = true});
        });
    };
    CHECK(test::contains(refused_of_kfac("kfac.grad_worker_fraction=0.5"), "must be a divisor of the ranks"));
    const auto refused_of_two = [](const char* setting) {
        return test::message_of([&] {
            const folder dir;  // placements are found wrong by the first step
            run_on<emulated_gpu>(2, workloads[0], in_run(dir.path / "refused", false, 1),
                                 {"optimizer.kind=kfac", setting});
        });
    };
    CHECK(test::contains(refused_of_two("kfac.grad_worker_fraction=0.4"), "must be a divisor of the ranks"));
    CHECK(test::contains(refused_of_two("kfac.broadcast_error_bound=1e-3"),
                         "kfac.compress must be none and kfac.broadcast_error_bound 0"));
    CHECK(test::contains(test::message_of([&] {
                             session<cpu>(settings_of(workloads[0], {"train.cuda_graph=on"}),
                                          {.out = {}, .resume = {}, .generated = true});
                         }),
                         "train.cuda_graph = on is for GPUs"));
    // Every rank is told.
    CHECK(test::contains(test::message_of([&] {
                             run_ranks(2, [&](threads_communicator& c) {
                                 session<emulated_gpu>(settings_of(workloads[0]),
                                                       {.out = {}, .resume = {}, .generated = true},
                                                       c.split(0, c.rank()));
                             });
                         }),
                         "give the channel a communicator of the device's memory"));
}

}  // namespace cairn
