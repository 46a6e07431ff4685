// What the tests may call.

#include "worker.hpp"

#include "actions.hpp"
#include "check.hpp"
#include "interleaved.hpp"
#include "schedules.hpp"
#include "timeline.hpp"
#include "zero_bubble.hpp"

template <>
struct lab::names<student::kind> {
    static constexpr std::pair<student::kind, const char*> all[]{{student::kind::forward, "F"},
                                                                 {student::kind::backward, "B"},
                                                                 {student::kind::backward_input, "I"},
                                                                 {student::kind::backward_weight, "W"}};
};
template <>
struct lab::names<student::fault> {
    static constexpr std::pair<student::fault, const char*> all[]{{student::fault::none, "none"},
                                                                  {student::fault::wrong_place, "wrong_place"},
                                                                  {student::fault::repeated, "repeated"},
                                                                  {student::fault::missing, "missing"},
                                                                  {student::fault::deadlock, "deadlock"}};
};
template <>
struct lab::members<student::action> {
    static auto of(auto& a) { return std::tie(a.what, a.stage, a.micro_batch); }
};
template <>
struct lab::members<student::schedule> {
    static auto of(auto& s) { return std::tie(s.ranks, s.stages, s.micro_batches, s.lists); }
};
template <>
struct lab::members<student::stage_times> {
    static auto of(auto& t) { return std::tie(t.forward, t.input, t.weight); }
};
template <>
struct lab::members<student::interval> {
    static auto of(auto& i) { return std::tie(i.start, i.end); }
};
template <>
struct lab::members<student::verdict> {
    static auto of(auto& v) { return std::tie(v.what, v.rank, v.position); }
};

using intervals = std::vector<std::vector<student::interval>>;

const bool served[] = {
    lab::serve("gpipe", [](int p, int m) { return student::gpipe(p, m); }),
    lab::serve("one_f_one_b", [](int p, int m) { return student::one_f_one_b(p, m); }),
    lab::serve("interleaved", [](int p, int m, int v) { return student::interleaved(p, m, v); }),
    lab::serve("zb_h1", [](int p, int m) { return student::zb_h1(p, m); }),
    lab::serve("check", [](student::schedule all) { return student::check(all); }),
    lab::serve("timeline", [](student::schedule all, std::vector<student::stage_times> times,
                              double hop) { return student::timeline(all, times, hop); }),
    lab::serve("makespan", [](intervals runs) { return student::makespan(runs); }),
    lab::serve("idle", [](intervals runs) { return student::idle(runs); }),
    lab::serve("most_saved", [](student::schedule all) { return student::most_saved(all); }),
};
