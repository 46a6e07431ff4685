// Broken programs are refused with a reason; random mutations are refused exactly where plain loops find a fault;
// schedules as files; what deadlocks under rendezvous.

#include "catch.hpp"
#include "messages.hpp"
#include "oracle/pipeline.hpp"

#include <cairn/parallel/pipeline/csv.hpp>
#include <cairn/parallel/pipeline/rendezvous.hpp>
#include <cairn/parallel/pipeline/schedule.hpp>
#include <cairn/parallel/pipeline/validate.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace cairn::validate_tests {

using Catch::Matchers::Contains;

/// Two ranks, two micro-batches, or what is given instead.
pipeline_program program_of(const std::vector<std::string>& lists = {"0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"}) {
    pipeline_program program{"by hand", static_cast<int>(lists.size()), 2, 1, {0, 1}, false, {}};
    for (const std::string& list : lists) program.actions.push_back(parse_actions(list));
    return program;
}

/// The reason of the refusal.
std::string refusal(const pipeline_program& program, const program_bound& bound = {}) {
    try {
        validate(program, bound);
    } catch (const error& e) {
        return e.what();
    }
    return "taken";
}

TEST_CASE("a refusal names rank, action and reason", "[pipeline]") {
    CHECK(refusal(program_of()) == "taken");
    CHECK(refusal(program_of({"0F0 0F1 0B0", "1F0 1B0 1F1 1B1"})) ==
          "schedule by hand: rank 0: no B or I of stage 0, micro-batch 1 in its list");
    CHECK(refusal(program_of({"0F0 0F1 0B0 0I1", "1F0 1B0 1F1 1B1"})) ==
          "schedule by hand: rank 0: no B or W of stage 0, micro-batch 1 in its list");
    CHECK(refusal(program_of({"0F0 0B0 0B1", "1F0 1B0 1F1 1B1"})) ==
          "schedule by hand: rank 0: no F of stage 0, micro-batch 1 in its list");
    CHECK(refusal(program_of({"0F0 0F1 0B0 0F0 0B1", "1F0 1B0 1F1 1B1"})) ==
          "schedule by hand: rank 0, action 3, 0F0: this forward is done already, by rank 0, action 0, 0F0");
    CHECK(refusal(program_of({"0F0 0F1 0B0 0W0 0B1", "1F0 1B0 1F1 1B1"})) ==
          "schedule by hand: rank 0, action 3, 0W0: this backward is done already, by rank 0, action 2, 0B0");
    CHECK(refusal(program_of({"0F0 0F1 0B0 0B1 1F0", "1B0 1F1 1B1"})) ==
          "schedule by hand: rank 0, action 4, 1F0: rank 1 holds stage 1");
    CHECK(refusal(program_of({"0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B2"})) ==
          "schedule by hand: rank 1, action 3, 1B2: there are micro-batches 0 to 1");
    CHECK(refusal(program_of({"0F0 0F1 0B0 0B1 2F0", "1F0 1B0 1F1 1B1"})) ==
          "schedule by hand: rank 0, action 4, 2F0: there are stages 0 to 1");
    CHECK(refusal(program_of({"0F0 0F1 0B0 0B1", "1B0 1F0 1F1 1B1"})) ==
          "schedule by hand: rank 1, action 0, 1B0: runs before action 1, 1F0, which it needs");
    CHECK(refusal(program_of({"0F0 0F1 0W0 0I0 0B1", "1F0 1B0 1F1 1B1"})) ==
          "schedule by hand: rank 0, action 2, 0W0: runs before action 3, 0I0, which it needs");
    CHECK(refusal(program_of({"0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"})) ==
          "schedule by hand: deadlock: rank 0, action 1, 0B0, waits for rank 1, action 2, 1B0; rank 1, action 1, 1F1, "
          "waits for rank 0, action 2, 0F1");

    pipeline_program misplaced = program_of();
    misplaced.rank_of_stage = {0, 2};
    CHECK(refusal(misplaced) == "schedule by hand: schedule by hand: stage 1 is placed on rank 2 of 2");
    misplaced.rank_of_stage = {0, 1};
    misplaced.actions.pop_back();
    CHECK_THAT(refusal(misplaced), Contains("1 lists of actions for 2 ranks"));
}

TEST_CASE("bounds of memory and the order of sums", "[pipeline]") {
    CHECK(refusal(program_of(), {.saved_micro_batches = 2}) == "taken");
    CHECK(refusal(program_of(), {.saved_micro_batches = 1}) ==
          "schedule by hand: rank 0, action 1, 0F1: 2 micro-batches are saved, the bound is 1");
    const pipeline_program split = program_of({"0F0 0F1 0I0 0I1 0W0 0W1", "1F0 1B0 1F1 1B1"});
    CHECK(refusal(split, {.bytes_of_stage = {{100, 40}, {30, 30}}, .bytes_of_rank = {200, 30}}) == "taken");
    CHECK(refusal(split, {.bytes_of_stage = {{100, 120}, {30, 30}}, .bytes_of_rank = {220, 30}}) ==
          "schedule by hand: rank 0, action 3, 0I1: 240 bytes are saved, the bound is 220; take a schedule that saves "
          "less, more and smaller micro-batches, or recomputation");
    CHECK_THAT(refusal(split, {.bytes_of_stage = {{100, 120}}, .bytes_of_rank = {220}}), Contains("not 2 and 2"));
    const pipeline_program turned = program_of({"0F0 0F1 0B1 0B0", "1F0 1F1 1B1 1B0"});
    CHECK(refusal(turned) == "taken");
    CHECK(refusal(turned, {.serial_order = true}) ==
          "schedule by hand: rank 0, action 3, 0B0: comes after micro-batch 1; in this order sums differ from those of "
          "a run without pipeline");
}

TEST_CASE("shapes that do not fit a schedule", "[pipeline]") {
    CHECK_THROWS_WITH(make_schedule("1f2b", {2, 2}), Contains("no schedule \"1f2b\"; there are gpipe, 1f1b"));
    CHECK_THROWS_WITH(make_schedule("1f1b", {0, 2}), Contains("0 ranks, 2 micro-batches"));
    CHECK_THROWS_WITH(make_schedule("1f1b", {2, 0}), Contains("at least 1"));
    CHECK_THROWS_WITH(make_schedule("1f1b", {2, 2, 2}), Contains("take interleaved"));
    CHECK_THROWS_WITH(make_schedule("1f1b", {2000, 2000000000}), Contains("more than"));
    CHECK_THROWS_WITH(make_schedule("interleaved", {4, 9, 2}), Contains("take a multiple of 4"));
    CHECK_THROWS_WITH(make_schedule("interleaved", {4, 8, 1}), Contains("at least 2"));
    CHECK_THROWS_WITH(make_schedule("zb_v", {4, 8, 3}), Contains("this schedule has 2"));
    CHECK_THROWS_WITH(make_schedule("dualpipe", {3, 8}), Contains("must be even"));
    CHECK_THROWS_WITH(make_schedule("dualpipe", {4, 6}), Contains("at least two micro-batches a rank"));
    CHECK_THROWS_WITH(make_schedule("dualpipe_v", {4, 6}), Contains("at least 8"));
    CHECK_THROWS_WITH(make_schedule("auto", {4, 6}, {.max_saved = 0.5}), Contains("allow more"));
    CHECK_THROWS_WITH(make_schedule("auto", {4, 6}, {.stages = {{1, 1, 1}}}),
                      Contains("costs of 1 stages, there are 4"));
}

TEST_CASE("auto keeps its cap and is no worse than what it chooses from", "[pipeline]") {
    for (const int p : {2, 4, 6})
        for (const int m : {p, 2 * p + 1}) {
            std::vector<stage_costs> uneven;
            for (int s = 0; s < p; ++s) uneven.push_back({1 + 0.2 * (s % 2), 1.2, 0.8 - 0.1 * (s % 3)});
            for (const auto& costs : {uneven, std::vector<stage_costs>(static_cast<std::size_t>(p))}) {
                double before = std::numeric_limits<double>::infinity();
                for (int cap = 1; cap <= 2 * p - 1; ++cap) {
                    INFO("p " << p << " m " << m << " cap " << cap);
                    const pipeline_program best = make_schedule("auto", {p, m}, {costs, static_cast<double>(cap)});
                    CHECK_NOTHROW(
                        validate(best, {.saved_micro_batches = static_cast<double>(cap), .serial_order = true}));
                    const double bubble = simulate(best, costs).makespan_bubble;
                    if (cap >= p)
                        CHECK(bubble <= simulate(make_schedule("zb_h1", {p, m}), costs).makespan_bubble + 1e-9);
                    if (cap == 2 * p - 1)
                        CHECK(bubble <= simulate(make_schedule("zb_h2", {p, m}), costs).makespan_bubble + 1e-9);
                    before = bubble;
                }
                CHECK(before >= 0);
            }
        }
    // Schedules of the table at p = 4, m = 12: the bubble that a cap of memory costs.
    const std::vector<double> bubbles{72, 25, 8, 3};
    for (std::size_t cap = 1; cap <= bubbles.size(); ++cap) {
        const pipeline_program best = make_schedule("auto", {4, 12}, {.max_saved = static_cast<double>(cap)});
        CHECK(simulate(best, uniform_costs(best, {})).makespan_bubble == Approx(bubbles[cap - 1]));
    }
    for (const int v : {2, 3}) {
        const pipeline_program best = make_schedule("auto", {4, 8, v}, {.max_saved = 6});
        CHECK_NOTHROW(validate(best, {.saved_micro_batches = 6, .serial_order = true}));
    }
}

/// One change to a program: swapped, dropped, doubled and misplaced actions, other stages, kinds, micro-batches, peers.
void mutate(pipeline_program& program, std::mt19937& random) {
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    action_list& list = program.actions[below(program.actions.size())];
    const std::size_t i = below(list.size()), j = below(list.size());
    action& a = list[i];
    switch (below(9)) {
        case 0:
            std::swap(a, list[j]);
            break;
        case 1:  // neighbours, which are often harmless
            if (i + 1 < list.size()) std::swap(a, list[i + 1]);
            break;
        case 2:
            list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
            break;
        case 3:
            list.insert(list.begin() + static_cast<std::ptrdiff_t>(j), action(a));
            break;
        case 4: {
            action_list& other = program.actions[below(program.actions.size())];
            const action moved = a;
            list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
            other.insert(other.begin() + static_cast<std::ptrdiff_t>(below(other.size() + 1)), moved);
            break;
        }
        case 5:
            a.stage = static_cast<int>(below(static_cast<std::size_t>(program.stages()) + 1));
            break;
        case 6:
            a.micro_batch = static_cast<int>(below(static_cast<std::size_t>(program.micro_batches) + 1));
            break;
        case 7:
            a.kind = std::array{action_kind::forward, action_kind::backward, action_kind::backward_input,
                                action_kind::backward_weight}[below(4)];
            break;
        default:  // neighbours that look for each other on the wrong rank
            program.rank_of_stage[below(program.rank_of_stage.size())] =
                static_cast<int>(below(static_cast<std::size_t>(program.ranks)));
    }
}

void check_mutations(int count, unsigned seed) {
    std::mt19937 random(seed);
    int refused = 0, harmless = 0;
    while (refused + harmless < count) {
        const auto& entry = schedules()[random() % schedules().size()];
        const int p = 2 + static_cast<int>(random() % 3);
        if (entry.name == "dualpipe") continue;  // plain loops know of no mirrored stages
        const pipeline_program right = make_schedule(entry.name, {p, 2 * p});
        pipeline_program program = right;
        mutate(program, random);
        if (program.actions == right.actions && program.rank_of_stage == right.rank_of_stage) continue;
        std::vector<std::string> lists;
        for (const action_list& list : program.actions) lists.push_back(to_string(list));
        const std::vector<std::array<double, 3>> times(static_cast<std::size_t>(program.stages()), {1, 1, 1});
        const oracle::pipeline_run plain =
            oracle::pipeline(lists, program.stages(), program.micro_batches, program.rank_of_stage, times);
        const std::string verdict = refusal(program);
        INFO(entry.name << " p " << p << '\n' << schedule_csv(program) << verdict);
        if (verdict == "taken") {
            ++harmless;
            REQUIRE(plain.complete);
            REQUIRE(plain.finishes);
        } else {
            ++refused;
            REQUIRE_FALSE((plain.complete && plain.finishes));
            REQUIRE_THAT(verdict, Contains("rank "));
        }
    }
    CHECK(refused > count / 4);
    CHECK(harmless > count / 50);
}

TEST_CASE("200 random mutations are refused or harmless", "[pipeline]") { check_mutations(200, 1); }
TEST_CASE("10000 random mutations are refused or harmless", "[pipeline][.exhaustive]") { check_mutations(10000, 2); }

TEST_CASE("schedules as files, in PyTorch's format", "[pipeline]") {
    for (const schedule_entry& entry : schedules()) {
        if (entry.name == "dualpipe") continue;
        INFO(entry.name);
        const pipeline_program written = make_schedule(entry.name, {4, 8});
        const pipeline_program read = parse_schedule_csv(schedule_csv(written), "FILE.csv");
        CHECK(read.actions == written.actions);
        CHECK(read.rank_of_stage == written.rank_of_stage);
        CHECK(read.virtual_stages == written.virtual_stages);
        CHECK(read.micro_batches == written.micro_batches);
    }
    const auto reason = [](const std::string& text) {
        try {
            parse_schedule_csv(text, "F.csv");
        } catch (const error& e) {
            return std::string(e.what());
        }
        return std::string("taken");
    };
    CHECK(reason("0F0,,0B0\r\n,1F0,1B0\r\n\r\n") == "taken");
    CHECK(reason("0F0, (0F1;0B0)OVERLAP_F_B ,0I1,0W1\n") == "taken");
    CHECK(reason("0F0,0F1,0B0,0B1\r1F0,1F1,1B0,1B1\r") == "taken");
    CHECK(reason("\xef\xbb\xbf\"0F0\", \"(0F1;0B0)OVERLAP_F_B\" ,0I1,\"0W1\"\n") == "taken");
    CHECK_THAT(reason("0F0,\"0B0\n"), Contains("line 1: a cell begins with a quote that nothing ends"));
    CHECK(reason("") == "schedule F.csv: no actions; a line a rank, such as 0F0,0F1,0B0,0B1");
    CHECK(reason("0F0,0B0\n,,\n1F0,1B0\n") == "schedule F.csv: rank 1 has no action");
    CHECK_THAT(reason("0F0,SEND_F\n"), Contains("line 1: column 2: action number 0, \"SEND_F\": expected stage"));
    CHECK(reason("0F0,0B0,1F0,1B1\n1F1,1B0,0F1,0B1") ==
          "schedule F.csv: rank 1, action 0, 1F1: stage 1 is on rank 0 already; a stage runs on one rank");
    CHECK_THAT(reason("0F0,0B0\n2000000000F0,2000000000B0\n"), Contains("stages 0 to 2000000000 and micro-batches"));
    CHECK_THAT(reason("0F0,0B0\n2147483647F0,2147483647B0\n"), Contains("stages 0 to 2147483647"));
    CHECK_THAT(reason("1F0,1B0\n2F0,2B0\n3F0,3B0\n4F0,4B0"),
               Contains("stages 0 to 4 and micro-batches 0 to 0 need 10 at least"));
    CHECK_THAT(reason("0B0,0F0\n"), Contains("rank 0, action 0, 0B0: runs before action 1, 0F0, which it needs"));

    const auto path =
        std::filesystem::temp_directory_path() / concat("cairn_schedule_", std::random_device{}(), ".csv");
    std::ofstream(path, std::ios::binary) << schedule_csv(make_schedule("zb_h1", {2, 4}));
    CHECK(schedule_from(path.string(), {2, 4}).actions == make_schedule("zb_h1", {2, 4}).actions);
    CHECK(schedule_from("zb_h1", {2, 4}).actions == make_schedule("zb_h1", {2, 4}).actions);
    CHECK_THROWS_WITH(schedule_from(path.string(), {2, 8}),
                      Contains("is for 2 ranks and 4 micro-batches, the run has 2 and 8"));
    CHECK_THROWS_WITH(schedule_from(path.string(), {2, 4, 2}), Contains("has 1 stages a rank"));
    std::filesystem::remove(path);
    CHECK_THROWS_WITH(read_schedule_csv(path), Contains("cannot be read"));
    CHECK_THROWS_WITH(read_schedule_csv(std::filesystem::temp_directory_path()), Contains("cannot be read"));
}

/// Whether each pair of ranks receives in the order in which it sends, so that messages need no tags: on one channel a
/// direction, or on one for activations and one for gradients.
bool receives_in_order(const pipeline_program& program, bool channel_of_gradients) {
    std::vector<pipeline_message> messages = pipeline_messages(program);
    std::ranges::sort(messages, {}, [](const pipeline_message& m) { return m.sent_after.position; });
    std::map<std::tuple<int, int, bool>, int> last;
    for (const pipeline_message& m : messages) {
        int& before =
            last.try_emplace({m.sent_after.rank, m.received_before.rank, channel_of_gradients && m.gradient}, -1)
                .first->second;
        if (m.received_before.position < before) return false;
        before = m.received_before.position;
    }
    return true;
}

TEST_CASE("messages, and what deadlocks under rendezvous", "[pipeline]") {
    struct counts {
        std::string name;
        int cases, blocking, batched, unordered;
        bool operator==(const counts&) const = default;
    };
    std::vector<counts> all;
    for (const schedule_entry& entry : schedules()) {
        if (entry.name == "auto") continue;
        counts c{std::string(entry.name), 0, 0, 0, 0};
        for (int p = 2; p <= 8; ++p)
            for (const int m : {p, 2 * p, 2 * p + 1, 3 * p, 4 * p}) {
                if (entry.name.starts_with("interleaved") && m % p != 0) continue;
                if (entry.name.starts_with("dualpipe") && m < 2 * p) continue;
                if (entry.name == "dualpipe" && (p % 2 != 0 || m % 2 != 0)) continue;
                const pipeline_program program = make_schedule(entry.name, {p, m});
                ++c.cases;
                c.blocking += !finishes_with(program, rendezvous::blocking);
                c.batched += !finishes_with(program, rendezvous::batched);
                c.unordered += !receives_in_order(program, false);
                CHECK(receives_in_order(program, true));
                const std::size_t links = static_cast<std::size_t>(
                    program.mirrored ? p - 1
                                     : program.stages() - 1 -
                                           (entry.name.starts_with("interleaved") ? 0 : program.virtual_stages - 1));
                CHECK(pipeline_messages(program).size() == 2 * static_cast<std::size_t>(m) * links);
            }
        all.push_back(c);
    }
    const std::vector<counts> expected{{"gpipe", 35, 0, 0, 0},         {"1f1b", 35, 35, 0, 0},
                                       {"interleaved", 28, 28, 21, 0}, {"interleaved_zb", 28, 28, 21, 3},
                                       {"zb_h1", 35, 35, 0, 0},        {"zb_h2", 35, 35, 0, 0},
                                       {"zb_v", 35, 35, 28, 28},       {"v_half", 35, 35, 0, 0},
                                       {"v_min", 35, 35, 0, 0},        {"dualpipe", 12, 12, 12, 6},
                                       {"dualpipe_v", 28, 28, 28, 24}};
    for (std::size_t i = 0; i < expected.size(); ++i) {
        INFO(all[i].name << ' ' << all[i].cases << ' ' << all[i].blocking << ' ' << all[i].batched << ' '
                         << all[i].unordered);
        CHECK(all[i] == expected[i]);
    }
}

}  // namespace cairn::validate_tests
