// The tests that students have.

#include "tables.hpp"

using lab::table;

TEST_CASE("schedules: GPipe is all forwards, then all backwards") {
    const auto small = lab::call<table>("gpipe", 2, 3);
    CHECK(lab::text(small) == "rank 0: 0F0 0F1 0F2 0B0 0B1 0B2\nrank 1: 1F0 1F1 1F2 1B0 1B1 1B2\n");
    CHECK(lab::fault_of(small, 2, 3, 1, {3, 3}) == "");
}

TEST_CASE("schedules: 1F1B runs, and its bubble is GPipe's") {
    for (const auto& [p, m] : {std::pair{1, 3}, {2, 3}, {3, 4}, {4, 8}, {4, 2}}) {
        INFO(lab::text(p, "rank") << ", " << m << " micro-batches");
        const auto t = lab::call<table>("one_f_one_b", p, m);
        REQUIRE(lab::fault_of(t, p, m, 1, std::vector<int>(static_cast<std::size_t>(p), m)) == "");
        CHECK(lab::bubble_fault(t, {1, 1, 1}, 3 * (p - 1)) == "");
    }
}

TEST_CASE("schedules: 1F1B saves no more than p - s micro-batches") {
    for (const auto& [p, m] : {std::pair{2, 5}, {4, 8}}) {
        INFO(lab::text(p, "rank") << ", " << m << " micro-batches");
        const auto t = lab::call<table>("one_f_one_b", p, m);
        CHECK(lab::fault_of(t, p, m, 1, lab::saved_by_1f1b(p, m)) == "");
    }
}

TEST_CASE("check: says what is wrong, and where") {
    const auto two = [](const std::string& first, const std::string& second) {
        const table t = lab::table_of(2, 2, 2, {first, second});
        UNSCOPED_INFO("of:\n" << lab::text(t));
        return lab::checked(t);
    };
    const std::string first = "0F0 0F1 0B0 0B1", second = "1F0 1B0 1F1 1B1";
    CHECK(two(first, second) == "none, rank -1, position -1");
    CHECK(two("0F0 0F1 0I0 0I1 0W1 0W0", second) == "none, rank -1, position -1");
    CHECK(two(first, "1F0 1B0 0F1 1B1") == "wrong_place, rank 1, position 2");
    CHECK(two("0F0 0F1 0B0 2B1", second) == "wrong_place, rank 0, position 3");
    CHECK(two("0F0 0F2 0B0 0B1", second) == "wrong_place, rank 0, position 1");
    CHECK(two("0F0 0F1 0F0 0B0 0B1", second) == "repeated, rank 0, position 2");
    CHECK(two("0F0 0F1 0B0 0B1 0W0", second) == "repeated, rank 0, position 4");
    CHECK(two("0F0 0F1 0I0 0W0 0I1 0B1", second) == "repeated, rank 0, position 5");
    CHECK(two("0F0 0F1 0B0 2B1", "1F0 1B0 0F1 1B1") == "wrong_place, rank 0, position 3");
    CHECK(two("0F0 0F1 0F0 0B0 0B1", "1F0 1B0 1F1 1B1 1W0") == "repeated, rank 0, position 2");
    CHECK(two("0F0 0F1 0I0 0B1", "1F0 1B0 1F1") == "missing, rank 0, position -1");
    CHECK(two(first, "1F0 1B0 1F1") == "missing, rank 1, position -1");
    CHECK(two("0F0 0F1 0I0 0B1", second) == "missing, rank 0, position -1");
    // Two stages a rank: stage 2 is on rank 0.
    CHECK(lab::checked(lab::table_of(2, 4, 1, {"0F0 2F0 2B0 0B0", "1F0 3F0 3B0 1B0"})) == "none, rank -1, position -1");
    // Rank 0 waits for 1B0, rank 1 for 0F1.
    CHECK(two("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1") == "deadlock, rank 0, position 1");
    CHECK(two(first, "1B0 1F0 1F1 1B1") == "deadlock, rank 0, position 2");
    CHECK(two(first, "1F0 1B0 1F1 1W1 1I1") == "deadlock, rank 0, position 3");
}

TEST_CASE("timeline: starts and ends of a schedule by hand") {
    // 1F1B on two ranks with F = 1, I = 1, W = 2 on stage 0; 2, 1, 1 on stage 1. Messages take 0.5.
    const table t = lab::table_of(2, 2, 2, {"0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"});
    CHECK(lab::timeline_fault(t, {{1, 1, 2}, {2, 1, 1}}, 0.5) == "");
    const lab::intervals expected{{{0, 1}, {1, 2}, {6, 9}, {10, 13}}, {{1.5, 3.5}, {3.5, 5.5}, {5.5, 7.5}, {7.5, 9.5}}};
    CHECK(lab::call<double>("makespan", expected) == 13);
    // I, and W when nothing else is to do: only the I is waited for.
    const table halves = lab::table_of(2, 2, 1, {"0F0 0I0 0W0", "1F0 1I0 1W0"});
    CHECK(lab::timeline_fault(halves, {{1, 1, 1}, {1, 1, 5}}, 0) == "");
    // Four stages on two ranks, and two on one: between these nothing travels.
    const std::vector<cairn::stage_costs> times{{1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {4, 1, 1}};
    CHECK(lab::timeline_fault(lab::table_of(2, 4, 1, {"0F0 2F0 2B0 0B0", "1F0 3F0 3B0 1B0"}), times, 0.5) == "");
    CHECK(lab::timeline_fault(lab::table_of(1, 2, 1, {"0F0 1F0 1B0 0B0"}), {{1, 1, 1}, {2, 1, 1}}, 0.5) == "");
}

TEST_CASE("timeline: idle time and saved micro-batches") {
    const lab::intervals runs{{{0, 1}, {1, 2}, {6, 9}, {10, 13}}, {{1.5, 3.5}, {3.5, 5.5}, {5.5, 7.5}, {7.5, 9.5}}};
    const auto idle = [](const lab::intervals& of) {
        const auto got = lab::call<std::vector<double>>("idle", of);
        REQUIRE(got.size() == of.size());
        return got;
    };
    for (const double of_rank : idle(runs)) CHECK(of_rank == Approx(13 - 8));
    const auto got = idle({{{0, 1}, {5, 7}}, {{2, 4}}});
    CHECK(got[0] == Approx(4));
    CHECK(got[1] == Approx(5));
    const auto saved = [](const std::vector<std::string>& lists) {
        return lab::call<std::vector<int>>("most_saved", lab::table_of(2, 2, 3, lists));
    };
    CHECK(saved({"0F0 0F1 0B0 0F2 0B1 0B2", "1F0 1B0 1F1 1B1 1F2 1B2"}) == std::vector<int>{2, 1});
    CHECK(saved({"0F0 0F1 0F2 0B0 0B1 0B2", "1F0 1I0 1F1 1I1 1W0 1F2 1W1 1I2 1W2"}) == std::vector<int>{3, 2});
}

TEST_CASE("interleaved: the bubble is divided by v") {
    for (const auto& [p, m, v] : {std::tuple{2, 2, 2}, {2, 4, 2}, {3, 3, 2}, {3, 6, 2}, {2, 4, 3}}) {
        INFO(p << " ranks, " << m << " micro-batches, " << v << " chunks");
        const auto t = lab::call<table>("interleaved", p, m, v);
        REQUIRE(lab::fault_of(t, p, m, v, lab::saved_by_interleaved(p, m, v)) == "");
        CHECK(lab::bubble_fault(t, {1, 1, 1}, 3.0 * (p - 1) / v) == "");
    }
    CHECK(lab::thrown("interleaved", 2, 3, 2) == "invalid_argument");
}

TEST_CASE("zero bubble: W fills the bubble") {
    for (const auto& [p, m] : {std::pair{1, 3}, {2, 4}, {3, 4}, {4, 8}, {4, 2}}) {
        INFO(lab::text(p, "rank") << ", " << m << " micro-batches");
        const auto t = lab::call<table>("zb_h1", p, m);
        REQUIRE(lab::fault_of(t, p, m, 1, std::vector<int>(static_cast<std::size_t>(p), std::min(p, m))) == "");
        if (m >= p) CHECK(lab::bubble_fault(t, {1, 1, 1}, p - 1) == "");
    }
}
