// What the tests may call. Each rank is a process of its own; `c` is its communicator. A state comes with each call and
// goes back with its result: nothing is kept here.

#include "worker.hpp"

#include "adam.hpp"
#include "costs.hpp"
#include "rank_state.hpp"
#include "zero1.hpp"
#include "zero2.hpp"
#include "zero3.hpp"

template <>
struct lab::names<student::action> {
    static constexpr std::pair<student::action, const char*> all[]{{student::action::gather, "gather"},
                                                                   {student::action::forward, "forward"},
                                                                   {student::action::backward, "backward"},
                                                                   {student::action::reduce, "reduce"},
                                                                   {student::action::release, "release"}};
};
template <>
struct lab::members<student::event> {
    static auto of(auto& e) { return std::tie(e.what, e.layer); }
};
template <>
struct lab::members<student::rank_state> {
    static auto of(auto& s) { return std::tie(s.parameters, s.gradients, s.m, s.v, s.steps); }
};
template <>
struct lab::members<student::adam_settings> {
    static auto of(auto& s) { return std::tie(s.lr, s.beta1, s.beta2, s.epsilon); }
};
template <>
struct lab::members<student::bytes_kept> {
    static auto of(auto& k) { return std::tie(k.parameters, k.gradients, k.optimizer); }
};

using floats = std::vector<float>;
using sizes = std::vector<std::size_t>;
using state = student::rank_state;
using settings = student::adam_settings;

const bool served[] = {
    lab::serve("adam",
               [](settings s, std::int64_t t, floats gradient, floats theta, floats m, floats v) {
                   student::adam(s, t, gradient, theta, m, v);
                   return std::tuple(theta, m, v);
               }),
    lab::serve("kept", [](int stage, std::vector<std::int64_t> layers, int p,
                          int rank) { return student::kept(stage, layers, p, rank); }),
    lab::serve("sent", [](int stage, std::vector<std::int64_t> layers, int p,
                          int micro_batches) { return student::sent(stage, layers, p, micro_batches); }),
    lab::serve("zero1_start", [](sizes, floats initial, int p, int r) { return student::zero1_start(initial, p, r); }),
    lab::serve("zero2_start", [](sizes, floats initial, int p, int r) { return student::zero2_start(initial, p, r); }),
    lab::serve("zero3_start",
               [](sizes layers, floats initial, int p, int r) { return student::zero3_start(layers, initial, p, r); }),
    lab::serve("zero1_accumulate",
               [](lab::communicator& c, state mine, floats gradient) {
                   student::zero1_accumulate(c, mine, gradient);
                   return mine;
               }),
    lab::serve("zero2_accumulate",
               [](lab::communicator& c, state mine, floats gradient) {
                   student::zero2_accumulate(c, mine, gradient);
                   return mine;
               }),
    lab::serve("zero1_step",
               [](lab::communicator& c, state mine, settings s, int micro_batches) {
                   student::zero1_step(c, mine, s, micro_batches);
                   return mine;
               }),
    lab::serve("zero2_step",
               [](lab::communicator& c, state mine, settings s, int micro_batches) {
                   student::zero2_step(c, mine, s, micro_batches);
                   return mine;
               }),
    lab::serve("zero3_step",
               [](lab::communicator& c, state mine, settings s, int micro_batches) {
                   student::zero3_step(c, mine, s, micro_batches);
                   return mine;
               }),
    lab::serve("place_of",
               [](sizes layers, std::size_t layer, int p, int rank) {
                   const cairn::range place = student::place_of(layers, layer, p, rank);
                   return std::pair<std::int64_t, std::int64_t>(place.begin, place.count);
               }),
    lab::serve("zero3_gather", [](lab::communicator& c, state mine, sizes layers,
                                  std::size_t layer) { return student::zero3_gather(c, mine, layers, layer); }),
    lab::serve("zero3_reduce",
               [](lab::communicator& c, state mine, sizes layers, std::size_t layer, floats gradient) {
                   student::zero3_reduce(c, mine, layers, layer, gradient);
                   return mine;
               }),
    lab::serve("zero3_plan", [](int layers) { return student::zero3_plan(layers); }),
};
