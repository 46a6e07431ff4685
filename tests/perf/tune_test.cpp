// Tuning: fronts and volumes against brute force, and searches on spaces whose best is known.

#include "catch.hpp"

#include <cairn/perf/tune/exhaustive.hpp>
#include <cairn/perf/tune/greedy.hpp>
#include <cairn/perf/tune/local_search.hpp>
#include <cairn/perf/tune/model_search.hpp>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace cairn::search_cases {

const tuning_goals time_and_energy{&tuning_outcome::seconds, &tuning_outcome::joules};

tuning_trial point(double seconds, double joules) { return {{}, {}, {.seconds = seconds, .joules = joules}}; }

/// Three dimensions; the third does nothing where the first is plain, and 2 does not go with 2.
tuning_space small_space() {
    tuning_space space{{{"a", {"0", "1", "2", "3"}}, {"b", {"0", "1", "2"}}, {"c", {"0", "1", "2"}}}, {}};
    space.settings = [](const tuning_choice& c) -> std::optional<tuning_settings> {
        if (c[0] == 2 && c[1] == 2) return std::nullopt;
        tuning_settings s;
        if (c[0] > 0) s.push_back(concat("a=", c[0]));
        if (c[1] > 0) s.push_back(concat("b=", c[1]));
        if (c[2] > 0 && c[0] > 0) s.push_back(concat("c=", c[2]));
        return s;
    };
    return space;
}

/// Five dimensions of four alternatives, all of which go together.
tuning_space free_space() {
    tuning_space space{{}, {}};
    for (const char* name : {"a", "b", "c", "d", "e"}) space.dimensions.push_back({name, {"0", "1", "2", "3"}});
    space.settings = [](const tuning_choice& c) -> std::optional<tuning_settings> {
        tuning_settings s;
        for (std::size_t d = 0; d < c.size(); ++d)
            if (c[d] > 0) s.push_back(concat(char('a' + d), '=', c[d]));
        return s;
    };
    return space;
}

/// Effects of the alternatives multiply, but for a little that each configuration has of its own.
tuning_outcome outcome_of(const tuning_settings& settings, std::uint64_t seed, double own) {
    const auto random = [&](const std::string& of) {
        std::mt19937_64 engine(seed + std::hash<std::string>{}(of));
        return std::uniform_real_distribution<double>(-1, 1)(engine);
    };
    double seconds = 0, joules = 0;
    std::string all;
    for (const std::string& s : settings) {
        seconds += 0.4 * random(s + " seconds"), joules += 0.4 * random(s + " joules");
        all += s;
    }
    return {.seconds = std::exp(seconds + own * random(all)), .joules = std::exp(joules + own * random(all + "j"))};
}

tuning_log::runner runner_of(std::uint64_t seed, double own, int* count = nullptr) {
    return [=](const std::vector<tuning_settings>& all) {
        std::vector<tuning_outcome> outcomes;
        for (const tuning_settings& s : all) outcomes.push_back(outcome_of(s, seed, own));
        if (count) *count += static_cast<int>(all.size());
        return outcomes;
    };
}

tuning_outcome nothing_known(const tuning_choice&) { return {}; }

double volume(const tuning_log& log) {
    return hypervolume(front_of(log.trials(), time_and_energy), time_and_energy, {1.1, 1.1});
}

TEST_CASE("a front holds what no other beats, and its hypervolume is the area below the corner") {
    std::mt19937_64 engine(1);
    std::uniform_int_distribution<int> number(0, 9);
    for (int round = 0; round < 50; ++round) {
        std::vector<tuning_trial> all;
        for (int i = 0; i < 12; ++i) all.push_back(point(number(engine), number(engine)));
        const auto front = front_of(all, time_and_energy);
        int cells = 0;  // of the unit grid below (10, 10) whose lower corner some point is at least as good as
        for (int x = 0; x < 10; ++x)
            for (int y = 0; y < 10; ++y)
                cells += std::ranges::any_of(
                    all, [&](const auto& t) { return t.outcome.seconds <= x && t.outcome.joules <= y; });
        CHECK(hypervolume(front, time_and_energy, {10, 10}) == cells);
        for (const tuning_trial& t : front)
            for (const tuning_trial& other : all) {
                const bool better =
                    other.outcome.seconds <= t.outcome.seconds && other.outcome.joules <= t.outcome.joules &&
                    (other.outcome.seconds < t.outcome.seconds || other.outcome.joules < t.outcome.joules);
                CHECK_FALSE(better);
            }
        CHECK(std::ranges::is_sorted(front, {}, [](const auto& t) { return t.outcome.seconds; }));
    }
}

TEST_CASE("chosen is the configuration of fewest settings among those about as good as the best") {
    const auto trial = [](double seconds, tuning_settings settings) {
        tuning_trial t = point(seconds, 1);
        t.settings = std::move(settings);
        return t;
    };
    std::vector<tuning_trial> all{trial(1.04, {}), trial(1, {"a=1", "b=2"}), trial(1.02, {"b=2"}),
                                  trial(1.01, {"c=3"})};
    CHECK(simplest_of_best(all, &tuning_outcome::seconds, 0.03)->settings == tuning_settings{"c=3"});
    CHECK(simplest_of_best(all, &tuning_outcome::seconds, 0.05)->settings.empty());
    CHECK(simplest_of_best(all, &tuning_outcome::seconds, 0)->settings.size() == 2);
    for (tuning_trial& t : all) t.outcome.impossible = "out of memory";
    CHECK(simplest_of_best(all, &tuning_outcome::seconds, 0.03) == nullptr);
}

TEST_CASE("finalists are the plain configuration, the best of each first alternative, and what is near the best") {
    const auto trial = [](std::size_t first, double seconds, tuning_settings settings) {
        tuning_trial t = point(seconds, 1);
        t.choice = {first};
        t.settings = std::move(settings);
        return t;
    };
    const std::vector<tuning_trial> all{trial(0, 1.2, {}),      trial(0, 1.0, {"a=1", "b=1"}), trial(0, 1.0, {"a=1"}),
                                        trial(1, 1.1, {"m=1"}), trial(2, 1.5, {"m=2"}),        trial(0, 1.05, {"c=1"}),
                                        trial(0, 1.06, {"c=2"})};
    const auto settings_of = [](const std::vector<tuning_trial>& trials) {
        std::vector<tuning_settings> settings;
        for (const tuning_trial& t : trials) settings.push_back(t.settings);
        return settings;
    };
    const std::vector<tuning_settings> order{{}, {"a=1"}, {"m=1"}, {"c=1"}, {"c=2"}};  // m=2 is too slow
    CHECK(settings_of(finalists(all, &tuning_outcome::seconds, 9, 0.25)) == order);
    CHECK(settings_of(finalists(all, &tuning_outcome::seconds, 3, 0.25)) ==
          std::vector<tuning_settings>(order.begin(), order.begin() + 3));
    CHECK(settings_of(finalists(all, &tuning_outcome::seconds, 9, 0.02)) ==
          std::vector<tuning_settings>(order.begin(), order.begin() + 2));
}

TEST_CASE("an impossible outcome is on no front") {
    tuning_trial impossible = point(0, 0);
    impossible.outcome.impossible = "out of memory";
    const auto front = front_of({impossible, point(1, 1)}, time_and_energy);
    REQUIRE(front.size() == 1);
    CHECK(front[0].outcome.seconds == 1);
    CHECK(front_of({impossible}, time_and_energy).empty());
}

TEST_CASE("exhaustive search tries each configuration once") {
    const tuning_space space = small_space();
    int count = 0;
    tuning_log log(space, runner_of(1, 0, &count), nothing_known, 1000);
    exhaustive_search(log);
    // a = 0: three of b, c does nothing; a = 1 and 3: nine each; a = 2: b = 0 and 1, three of c each
    CHECK(count == 3 + 9 + 9 + 6);
    CHECK(log.trials().size() == 27);
    exhaustive_search(log);
    CHECK(count == 27);
}

TEST_CASE("a search keeps to its budget") {
    const tuning_space space = small_space();
    for (const std::size_t budget : {1u, 5u, 8u, 9u}) {
        int count = 0;
        tuning_log log(space, runner_of(2, 0.1, &count), nothing_known, budget);
        local_search(log, time_and_energy);
        CHECK(count <= static_cast<int>(budget));
        CHECK(log.left() == budget - log.trials().size());
        tuning_log by_model(space, runner_of(2, 0.1, &count), nothing_known, budget);
        count = 0;
        model_search(by_model, time_and_energy);
        CHECK(count == static_cast<int>(budget));
    }
}

TEST_CASE("greedy search finds the best where effects multiply, without the whole space") {
    const tuning_space space = small_space();
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        tuning_log all(space, runner_of(seed, 0), nothing_known, 1000),
            log(space, runner_of(seed, 0), nothing_known, 1000);
        exhaustive_search(all);
        const auto best = front_of(all.trials(), {&tuning_outcome::seconds});
        const tuning_choice found = greedy_search(log, &tuning_outcome::seconds);
        CHECK(log.value(found, &tuning_outcome::seconds) <= log.value(space.plain(), &tuning_outcome::seconds));
        // c needs a, and 2 does not go with 2: greedy may miss what only two changes together reach.
        CHECK(log.value(found, &tuning_outcome::seconds) < 1.5 * best[0].outcome.seconds);
        CHECK(log.trials().size() < 27);
    }
}

TEST_CASE("local search has nearly all of the front's volume with a part of the trials") {
    const tuning_space space = free_space();
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
        tuning_log all(space, runner_of(seed, 0.02), nothing_known, 2000),
            log(space, runner_of(seed, 0.02), nothing_known, 256);
        exhaustive_search(all);
        REQUIRE(all.trials().size() == 1024);
        local_search(log, time_and_energy);
        CHECK(volume(log) >= 0.95 * volume(all));
    }
}

TEST_CASE("where effects multiply, a model of them finds the front with a tenth of the trials") {
    const tuning_space space = free_space();
    for (std::uint64_t seed = 0; seed < 2; ++seed) {
        tuning_log all(space, runner_of(seed, 0.01), nothing_known, 2000),
            log(space, runner_of(seed, 0.01), nothing_known, 102);
        exhaustive_search(all);
        model_search(log, time_and_energy);
        CHECK(volume(log) >= 0.98 * volume(all));
    }
}

TEST_CASE("a model learns effects of alternatives and of pairs, all but what its priors keep back") {
    const tuning_space space = small_space();
    std::vector<std::pair<tuning_choice, double>> known;
    const auto truth = [](const tuning_choice& c) {
        return 1.0 + 0.5 * double(c[0]) - 0.2 * double(c[1] * c[1]) + 0.1 * double(c[0] * c[2]);
    };
    space.for_each([&](const tuning_choice& c) { known.emplace_back(c, truth(c)); });
    const tuning_model model(space, known);
    for (const auto& [choice, value] : known) CHECK(model(choice) == Approx(value).margin(0.1));
}

TEST_CASE("what a bound rules out is not tried, and the best is found all the same") {
    const tuning_space space = small_space();
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        // A true bound: nine tenths of the outcome.
        const auto bound = [&](const tuning_choice& c) {
            tuning_outcome least = outcome_of(*space.settings(c), seed, 0.1);
            least.seconds *= 0.9;
            return least;
        };
        tuning_log with(space, runner_of(seed, 0.1), bound, 1000),
            without(space, runner_of(seed, 0.1), nothing_known, 1000);
        const tuning_choice a = greedy_search(with, &tuning_outcome::seconds),
                            b = greedy_search(without, &tuning_outcome::seconds);
        CHECK(with.value(a, &tuning_outcome::seconds) == without.value(b, &tuning_outcome::seconds));
        CHECK(with.trials().size() < without.trials().size());
        CHECK(with.pruned() > 0);
    }
}

}  // namespace cairn::search_cases
