#include "catch.hpp"

#include <cairn/compress/compression_autotuner.hpp>
#include <cairn/core/random.hpp>

#include <map>
#include <string>
#include <vector>

namespace cairn {
namespace {

using options = std::vector<std::vector<reduction_option>>;

/// A step as it really is: what the compression autotuner measures, and cannot see otherwise.
struct world {
    options truth;  // seconds of each option, of each bucket
    std::vector<double> ready;
    double compute_end = 1;
    double noise = 0;  // each time is off by up to this share
    std::uint64_t draws = 0;

    double shaken(double seconds) {
        return seconds * (1 + noise * (2 * static_cast<double>(random_stream{1, 2, 3}.uniform(draws++)) - 1));
    }
    step_measurement step(const compression_autotuner::plan_type& plan, double link = 1) {
        step_measurement m;
        std::vector<bucket_times> clean;
        double encoded = 0;
        for (std::size_t b = 0; b < plan.size(); ++b) {
            const reduction_option& o = truth[b][plan[b]];
            clean.push_back({ready[b], shaken(o.encode), shaken(link * o.communication), shaken(o.decode)});
            encoded += clean.back().encode;
            m.buckets.push_back(clean.back());
            m.buckets.back().ready += encoded;
        }
        m.seconds = predict_step(clean, compute_end).seconds;
        m.compute_end = compute_end + encoded;
        return m;
    }
};

/// Four buckets; dense 0.5 s each by ring, topk a tenth of it by all-gather with 0.02 s of work.
options usual() {
    return options(4,
                   {{"", "ring", 0.5, 0, 0}, {"", "halving", 0.6, 0, 0}, {"topk", "all_gather", 0.05, 0.015, 0.005}});
}
world usual_world() { return {usual(), {0.4, 0.6, 0.8, 1.0}, 1.0}; }

struct outcome {
    double seconds = 0, dense = 0;
    int changes = 0, compressed = 0;
};

/// Runs `steps` steps with the compression autotuner; the same world without it takes `dense` seconds.
template <class Link>
outcome run(compression_autotuner& g, world w, int steps, Link link) {
    outcome sum;
    world quiet = w;
    quiet.noise = 0;
    bool before = false;
    const compression_autotuner::plan_type dense(w.truth.size(), 0);
    for (int t = 0; t < steps; ++t) {
        const step_measurement m = w.step(g.plan(), link(t));
        sum.seconds += m.seconds;
        sum.dense += quiet.step(dense, link(t)).seconds;
        g.observe(m);
        sum.changes += g.compresses() != before;
        sum.compressed += before = g.compresses();
    }
    return sum;
}
const auto steady = [](int) { return 1.0; };

/// Each second of communication beside compute costs compute half a second: no bucket's times show it.
step_measurement dragged(step_measurement m, double drag = 0.5) {
    double beside = 0;
    for (const bucket_times& b : m.buckets) beside += b.communication;
    m.compute_end += drag * beside;
    m.seconds = std::max(m.seconds + drag * beside, m.compute_end);
    return m;
}

}  // namespace

TEST_CASE("timeline: a step of buckets, as literal tables", "[compression_autotuner]") {
    struct row {
        std::vector<bucket_times> buckets;
        double compute_end, seconds, exposed;
    };
    const std::vector<row> table{
        {{}, 3, 3, 0},
        {{{1, 0, 2, 0}}, 4, 4, 0},                                         // hidden
        {{{1, 0, 2, 0}}, 2, 3, 1},                                         // one second sticks out
        {{{1, 0, 2, 0}, {2, 0, 2, 0}}, 2, 5, 3},                           // the second waits for the link
        {{{1, 0, 0.5, 0}, {2, 0, 1, 0}}, 2, 3, 1},                         // the link waits for the second
        {{{1, 0.25, 0.5, 0.125}, {2, 0.25, 1, 0.125}}, 2, 3.75, 1.375},    // the first's work delays compute
        {{{1, 0.25, 0.5, 0.125}, {1, 0.25, 0.5, 0.125}}, 4, 4.75, 0},      // and both, where all is hidden
        {{{1, 0.25, 0.5, 0.125}, {1, 0.25, 0.5, 0.125}}, 1, 2.75, 1.75}};  // exposed: one after the other
    for (const row& r : table) {
        const step_prediction p = predict_step(r.buckets, r.compute_end);
        CHECK(p.seconds == Approx(r.seconds));
        CHECK(p.exposed == Approx(r.exposed));
    }
}

TEST_CASE("compression autotuner: the break-even rule t_encode + t_decode < (1 - 1/R) t_exposed",
          "[compression_autotuner]") {
    for (const double ratio : {2.0, 4.0, 32.0})
        for (const double share : {0.9, 0.99, 1.01, 1.5}) {
            const double work = share * (1 - 1 / ratio);  // of 1 s exposed
            const options all{{{"", "ring", 1, 0, 0}, {"c", "ring", 1 / ratio, 0.6 * work, 0.4 * work}}};
            world w{all, {2}, 2};
            compression_autotuner g({.margin = 0, .noise = 1e-3}, all);
            run(g, w, 20, steady);
            CAPTURE(ratio, share);
            CHECK(g.compresses() == (share < 1));
        }
}

TEST_CASE("compression autotuner: communication that is hidden is not compressed, not even for nothing",
          "[compression_autotuner]") {
    const options all(2, {{"", "ring", 0.4, 0, 0}, {"c", "ring", 0.04, 0, 0}});
    world w{all, {0.2, 0.6}, 1.0};
    compression_autotuner g({}, all);
    CHECK(run(g, w, 50, steady).compressed == 0);
    CHECK(g.times().predict_dense().exposed == Approx(0).margin(1e-12));
}

TEST_CASE("compression autotuner: only the buckets that stick out, each by what suits it", "[compression_autotuner]") {
    // The first is hidden behind compute; the last is not. For it "fine" saves more time than "coarse".
    const options all{{{"", "ring", 0.3, 0, 0}, {"coarse", "ring", 0.03, 0.01, 0.01}},
                      {{"", "ring", 0.8, 0, 0},
                       {"", "halving", 0.7, 0, 0},
                       {"coarse", "ring", 0.2, 0.05, 0.05},
                       {"fine", "all_gather", 0.15, 0.02, 0.02}}};
    world w{all, {0.5, 1.0}, 1.0};
    compression_autotuner g({}, all);
    CHECK(g.plan() == compression_autotuner::plan_type{0, 1});
    run(g, w, 20, steady);
    CHECK(g.plan() == compression_autotuner::plan_type{0, 3});
    CHECK(g.chosen(1).compressor == "fine");
    CHECK(g.times().predict(g.plan()).seconds == Approx(1.0 + 0.15 + 0.04));
    CHECK(g.times().predict_dense().seconds == Approx(1.7));
}

TEST_CASE("compression autotuner: dense first, then a trial, then compressed", "[compression_autotuner]") {
    compression_autotuner g({.baseline = 5, .trial_steps = 2}, usual());
    world w = usual_world();
    for (int t = 0; t < 8; ++t) {
        CAPTURE(t);
        CHECK_FALSE(g.compresses());
        g.observe(w.step(g.plan()));
    }
    CHECK(g.compresses());
}

TEST_CASE("compression autotuner: where dense is many times slower, two dense steps are enough",
          "[compression_autotuner]") {
    compression_autotuner g({.baseline = 5, .patience = 3}, usual());
    world w = usual_world();
    for (int t = 0; t < 2; ++t) {
        CHECK_FALSE(g.compresses());
        g.observe(w.step(g.plan(), 20));
    }
    CHECK(g.compresses());
}

TEST_CASE("compression autotuner: with it on, steps are not slower than dense beyond noise",
          "[compression_autotuner]") {
    const int steps = 3000;
    struct scenario {
        const char* name;
        double link;     // how much slower than modelled
        double work;     // how much slower encode and decode are than calibrated
        double at_most;  // of the dense time
    };
    for (const scenario& s :
         {scenario{"as modelled", 1, 1, 0.75}, scenario{"slow link", 10, 1, 0.15},
          scenario{"fast link", 0.05, 1, 1.002}, scenario{"compressors much slower than thought", 1, 40, 1.02},
          scenario{"compressors slower than dense by a little", 1, 17, 1.02}}) {
        CAPTURE(s.name);
        world w = usual_world();
        w.noise = 0.05;
        for (auto& bucket : w.truth)
            for (auto& o : bucket) {
                o.encode *= s.work;
                o.decode *= s.work;
            }
        compression_autotuner g({}, usual());
        const outcome o = run(g, w, steps, [&](int) { return s.link; });
        CAPTURE(o.seconds, o.dense, o.changes, o.compressed);
        CHECK(o.seconds <= s.at_most * o.dense);
    }
}

TEST_CASE("compression autotuner: what communication takes from backward is found out by a trial",
          "[compression_autotuner]") {
    const options all(2, {{"", "ring", 0.5, 0, 0},
                          {"half", "ring", 0.25, 0.005, 0.005},
                          {"tenth", "all_gather", 0.05, 0.01, 0.01},
                          {"costly", "all_gather", 0.05, 0.3, 0.3},
                          {"large", "ring", 0.9, 0, 0}});
    for (const double noise : {0.0, 0.05}) {
        world w{all, {0.2, 0.6}, 1.0};
        w.noise = noise;
        compression_autotuner g({}, all);
        std::map<std::size_t, int> tried;  // by option
        double seconds = 0;
        for (int t = 0; t < 500; ++t) {
            const step_measurement m = dragged(w.step(g.plan()));
            ++tried[g.plan()[0]];
            seconds += m.seconds;
            g.observe(m);
        }
        CAPTURE(noise, tried[0], tried[1], tried[2], tried[3], tried[4]);
        CHECK(g.chosen(0).compressor == "tenth");
        CHECK(g.chosen(1).compressor == "tenth");
        CHECK(g.times().predict_dense().exposed == Approx(0).margin(0.05));
        CHECK(tried[1] <= 3);
        CHECK(tried[3] <= 3);
        CHECK(tried[4] == 0);  // its communication alone takes too long
        CHECK(seconds < 500 * 1.15);
    }
}

TEST_CASE("compression autotuner: a round tries the most promising compressor first, and no longer than needed",
          "[compression_autotuner]") {
    const options all(2, {{"", "ring", 0.5, 0, 0},
                          {"second", "ring", 0.2, 0.005, 0.005},
                          {"first", "ring", 0.3, 0.01, 0.01},
                          {"first", "all_gather", 0.05, 0.01, 0.01},
                          {"slow work", "all_gather", 0.05, 0.2, 0.2},
                          {"much to send", "ring", 0.6, 0, 0},
                          {"hopeless", "ring", 0.9, 0, 0}});
    world w{all, {0.2, 0.6}, 1.0};
    compression_autotuner g({}, all);
    std::vector<std::size_t> used;
    for (int t = 0; t < 20; ++t) {
        CHECK(g.plan()[0] == g.plan()[1]);
        used.push_back(g.plan()[0]);
        g.observe(dragged(w.step(g.plan())));
    }
    // Five dense steps. A first step of each and two that count, but one where the work alone is clearly slower. That
    // of which as much is sent as takes longer than the step of the first is not tried any more, nor what takes longer
    // than a dense step.
    CHECK(used == std::vector<std::size_t>{0, 0, 0, 0, 0, 3, 3, 3, 1, 1, 1, 4, 4, 3, 3, 3, 3, 3, 3, 3});
}

TEST_CASE("compression autotuner: what a trial is too early for, the next round finds", "[compression_autotuner]") {
    const options all(2, {{"", "ring", 0.5, 0, 0}, {"tenth", "all_gather", 0.05, 0.01, 0.01}});
    world w{all, {0.2, 0.6}, 1.2};
    compression_autotuner g({}, all);
    std::vector<int> tried;
    for (int t = 0; t < 2010; ++t) {
        if (g.plan()[0] != 0) tried.push_back(t);
        g.observe(dragged(w.step(g.plan()), t < 1000 ? 0 : 0.5));
    }
    REQUIRE(tried.size() > 3);
    CHECK(tried[2] < 10);
    CHECK(tried[3] >= 2000);
    CHECK(g.compresses());
}

TEST_CASE("compression autotuner: a round of trials where nothing pays costs a few steps", "[compression_autotuner]") {
    options all(2, {{"", "ring", 0.5, 0, 0}});
    for (auto& bucket : all)
        for (const char* name : {"a", "b", "c"}) bucket.push_back({name, "ring", 0.01, 0.1, 0.1});
    world w{all, {0.2, 0.6}, 1.3};
    w.noise = 0.05;
    compression_autotuner g({}, all);
    const outcome o = run(g, w, 4000, steady);
    CHECK(o.compressed <= 2 * 3 * 3);  // two rounds, three compressors, three steps
    CHECK(o.seconds <= 1.005 * o.dense);
}

TEST_CASE("compression autotuner: where communication is short beside compute, nothing is tried",
          "[compression_autotuner]") {
    const options all(2, {{"", "ring", 0.02, 0, 0}, {"tenth", "ring", 0.002, 0, 0}});
    compression_autotuner g({}, all);
    int tried = 0;
    world w{all, {0.2, 0.6}, 1.0};
    for (int t = 0; t < 100; ++t) {
        g.observe(w.step(g.plan()));
        tried += g.plan()[0] != 0;
    }
    CHECK(tried == 0);
}

TEST_CASE("compression autotuner: decides anew when the link drifts", "[compression_autotuner]") {
    compression_autotuner g({}, usual());
    world w = usual_world();
    w.noise = 0.05;
    // Fast, then 20 times slower, then fast again.
    const auto link = [](int t) { return t < 400 || t >= 1400 ? 0.05 : 1.0; };
    outcome parts[3];
    parts[0] = run(g, w, 400, [&](int t) { return link(t); });
    CHECK_FALSE(g.compresses());
    parts[1] = run(g, w, 1000, [&](int t) { return link(t + 400); });
    CHECK(g.compresses());
    CHECK(parts[1].compressed > 980);
    parts[2] = run(g, w, 1000, [&](int t) { return link(t + 1400); });
    CHECK_FALSE(g.compresses());
    CHECK(parts[2].compressed < 50);
    CHECK(parts[1].seconds < 0.8 * parts[1].dense);
    CHECK(parts[2].seconds < 1.01 * parts[2].dense);
}

TEST_CASE("compression autotuner: a plan that is slower for reasons that no part of the measurement shows is dropped",
          "[compression_autotuner]") {
    compression_autotuner g({}, usual());
    world w = usual_world();
    double seconds = 0;
    int compressed = 0;
    const double dense = w.step({0, 0, 0, 0}).seconds;
    for (int t = 0; t < 3000; ++t) {
        step_measurement m = w.step(g.plan());
        const bool slow = g.plan() != compression_autotuner::plan_type{0, 0, 0, 0};
        if (slow) m.seconds += 2.5;
        compressed += slow;
        seconds += m.seconds;
        g.observe(m);
    }
    CHECK(compressed >= 5);
    CHECK(compressed < 50);
    CHECK(seconds < 1.01 * 3000 * dense);
}

TEST_CASE("compression autotuner: an algorithm that was never in use is as far off as those that were",
          "[compression_autotuner]") {
    compression_autotuner g({}, usual());
    world w = usual_world();
    CHECK(g.times().expected(0, 2).communication == Approx(0.05));
    for (int t = 0; t < 2; ++t) g.observe(w.step(g.plan(), 3.0));  // the first step of all does not count
    CHECK(g.times().expected(0, 0).communication == Approx(1.5));
    CHECK(g.times().expected(0, 2).communication == Approx(0.15));
}

TEST_CASE("compression autotuner: the first step of a plan, and a bad moment, are not held against it",
          "[compression_autotuner]") {
    compression_autotuner g({}, usual());
    world w = usual_world();
    bool used = false;
    int compressed = 0;
    for (int t = 0; t < 4000; ++t) {
        step_measurement m = w.step(g.plan());
        const bool now = g.plan() != compression_autotuner::plan_type{0, 0, 0, 0};
        if (now && (!used || (t > 100 && t < 120))) {  // memory is touched; then another program is running
            for (bucket_times& b : m.buckets) {
                b.encode *= used ? 50 : 3000;
                m.seconds += b.encode;
            }
        }
        used |= now;
        g.observe(m);
        if (t == 100) CHECK(compressed > 85);
        compressed += now;
    }
    CHECK(g.compresses());
    CHECK(compressed > 2000);
}

TEST_CASE("compression autotuner: what is not in use drifts along with what is", "[compression_autotuner]") {
    compression_autotuner g({.probe_interval = 1 << 30}, usual());
    world w = usual_world();
    run(g, w, 20, steady);
    REQUIRE(g.compresses());
    REQUIRE(g.times().expected(0, 0).communication == Approx(0.5));
    run(g, w, 60, [](int) { return 4.0; });
    REQUIRE(g.compresses());
    CHECK(g.times().expected(0, 2).communication == Approx(0.2).epsilon(0.01));
    CHECK(g.times().expected(0, 0).communication == Approx(2).epsilon(0.01));
}

TEST_CASE("compression autotuner: noise near break-even does not make it change its mind all the time",
          "[compression_autotuner]") {
    options all = usual();
    for (auto& bucket : all) bucket[2].encode = 0.3;  // the gain is about the margin
    world w{all, {0.4, 0.6, 0.8, 1.0}, 1.0, 0.1};
    compression_autotuner g({}, all);
    const outcome o = run(g, w, 2000, steady);
    CHECK(o.changes <= 8);
    CHECK(o.seconds <= 1.02 * o.dense);
}

TEST_CASE("compression autotuner: probes stay within their budget", "[compression_autotuner]") {
    compression_autotuner g({.probe_budget = 0.01}, usual());
    world w = usual_world();
    double probes = 0, total = 0;
    int count = 0;
    const double usual_step = 1.0 + 4 * 0.02 + 0.05;
    for (int t = 0; t < 5000; ++t) {
        const bool probe = g.probing();
        const double seconds = w.step(g.plan()).seconds;
        if (probe) {
            probes += seconds - usual_step;
            ++count;
        }
        total += seconds;
        g.observe(w.step(g.plan()));
    }
    CHECK(count > 10);
    CHECK(probes <= 0.011 * total);
}

TEST_CASE("compression autotuner: equal numbers give equal decisions, over the wire too", "[compression_autotuner]") {
    compression_autotuner a({}, usual()), b({}, usual());
    world w = usual_world();
    w.noise = 0.3;
    for (int t = 0; t < 300; ++t) {
        const step_measurement m = w.step(a.plan(), t < 150 ? 0.2 : 3);
        a.observe(m);
        b.observe(step_measurement::from_flat(m.flat()));
        REQUIRE(a.plan() == b.plan());
    }
    REQUIRE_THROWS_AS(step_measurement::from_flat({1, 2, 3}), error);
    REQUIRE_THROWS_WITH(a.observe({}), Catch::Contains("measurements of 0 buckets, expected 4"));
    REQUIRE_THROWS_WITH(compression_autotuner({}, {{{"topk", "ring", 1, 1, 1}}}),
                        Catch::Contains("bucket 0 has no dense option"));
    REQUIRE_THROWS_AS(compression_autotuner({.smoothing = 0}, usual()), error);
    REQUIRE_NOTHROW(compression_autotuner({}, {}).observe({}));
}

}  // namespace cairn
