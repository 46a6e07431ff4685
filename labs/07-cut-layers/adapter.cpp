// What the tests may call. Each rank is a process of its own; `c` is its communicator.

#include "worker.hpp"

#include "arrays.hpp"
#include "conv.hpp"
#include "halo.hpp"
#include "halo_rows.hpp"
#include "linear_pair.hpp"

template <>
struct lab::members<student::matrix> {
    static auto of(auto& m) { return std::tie(m.rows, m.cols, m.values); }
};
template <>
struct lab::members<student::volume> {
    static auto of(auto& v) { return std::tie(v.channels, v.depth, v.height, v.width, v.values); }
};
template <>
struct lab::members<student::windows> {
    static auto of(auto& w) { return std::tie(w.out, w.in, w.kernel, w.values); }
};
template <>
struct lab::members<student::linear_pair> {
    static auto of(auto& p) { return std::tie(p.w1, p.b1, p.w2, p.b2); }
};
template <>
struct lab::members<student::saved_for_backward> {
    static auto of(auto& s) { return std::tie(s.x, s.h); }
};
template <>
struct lab::members<student::grid> {
    static auto of(auto& g) { return std::tie(g.rows, g.columns); }
};
template <>
struct lab::members<student::window> {
    static auto of(auto& w) { return std::tie(w.kernel, w.stride, w.padding); }
};

using namespace student;

const bool served[] = {
    lab::serve("cut", [](linear_pair whole, int rank, int p) { return cut(whole, rank, p); }),
    lab::serve("forward",
               [](lab::communicator& c, linear_pair mine, matrix x) {
                   saved_for_backward saved;
                   matrix y = forward(c, mine, x, saved);
                   return std::pair(y, saved);
               }),
    lab::serve("backward",
               [](lab::communicator& c, linear_pair mine, saved_for_backward saved, matrix dy) {
                   linear_pair gradient;
                   matrix dx = backward(c, mine, saved, dy, gradient);
                   return std::pair(dx, gradient);
               }),
    lab::serve("halo_of",
               [](int n, int p, int rank, window w) {
                   const halo h = halo_of(n, p, rank, w);
                   return std::vector<int>{h.need_begin, h.need_end,   h.outside_lower, h.outside_upper,
                                           h.take_lower, h.take_upper, h.give_lower,    h.give_upper};
               }),
    lab::serve("halo_bytes",
               [](std::size_t c, std::size_t d, std::size_t h, std::size_t w, std::size_t r, std::vector<int> n) {
                   return halo_bytes(c, d, h, w, r, {n.at(0) != 0, n.at(1) != 0, n.at(2) != 0, n.at(3) != 0});
               }),
    lab::serve("with_halo", [](lab::communicator& c, grid g, volume own,
                               std::size_t radius) { return with_halo(c, g, own, radius); }),
    lab::serve("add_halo", [](lab::communicator& c, grid g, volume extended,
                              std::size_t radius) { return add_halo(c, g, extended, radius); }),
    lab::serve("conv_forward",
               [](lab::communicator& c, grid g, volume x, windows w) { return conv_forward(c, g, x, w); }),
    lab::serve("conv_input_gradient",
               [](lab::communicator& c, grid g, volume dy, windows w) { return conv_input_gradient(c, g, dy, w); }),
    lab::serve("conv_weight_gradient", [](lab::communicator& c, grid g, volume x, volume dy,
                                          windows w) { return conv_weight_gradient(c, g, x, dy, w); }),
};
