// The tests that students have.

#include "whole.hpp"

using lab::grid;
using lab::window;

namespace {

/// Empty, or which number of halo_of differs, by its name.
std::string fault_of_rows(int n, int p, int rank, const window& w, const std::vector<int>& expected) {
    const char* const names[]{"need_begin", "need_end",   "outside_lower", "outside_upper",
                              "take_lower", "take_upper", "give_lower",    "give_upper"};
    const auto got = lab::call<std::vector<int>>("halo_of", n, p, rank, w);
    for (std::size_t i = 0; i < expected.size(); ++i)
        if (got.at(i) != expected[i])
            return std::string(names[i]) + " is " + std::to_string(got[i]) + ", expected " +
                   std::to_string(expected[i]);
    return {};
}

}  // namespace

TEST_CASE("pair: each rank's part of the weights") {
    const lab::whole_pair w(1, 3, 5, 2, 10);
    for (int r = 0; r < 2; ++r)
        CHECK(lab::fault(lab::call<lab::pair_of_layers>("cut", w.weights, r, 2), lab::cut(w.weights, r, 2),
                         "rank " + std::to_string(r) + " of 2:") == "");
}

TEST_CASE("pair: forward equals one rank's") {
    for (const int p : {1, 2, 3}) CHECK(lab::fault_of_pair(p, lab::whole_pair(4, 3, 6, 2, 20), false, false) == "");
}

TEST_CASE("pair: backward equals one rank's") {
    for (const int p : {1, 2, 3}) CHECK(lab::fault_of_pair(p, lab::whole_pair(4, 3, 6, 2, 30), true, false) == "");
}

TEST_CASE("pair: one all-reduce each way") {
    for (const int p : {2, 4}) CHECK(lab::fault_of_pair(p, lab::whole_pair(4, 3, 8, 2, 40), true, true) == "");
}

TEST_CASE("rows: halos by hand") {
    // need [begin, end); outside below, above; taken from below, above; given to below, above
    using v = std::vector<int>;
    CHECK(fault_of_rows(16, 1, 0, window{3, 1, 1}, v{-1, 17, 1, 1, 0, 0, 0, 0}) == "");
    CHECK(fault_of_rows(16, 2, 0, window{3, 1, 1}, v{-1, 9, 1, 0, 0, 1, 0, 1}) == "");
    CHECK(fault_of_rows(16, 2, 1, window{3, 1, 1}, v{7, 17, 0, 1, 1, 0, 1, 0}) == "");
    CHECK(fault_of_rows(16, 2, 0, window{3, 2, 1}, v{-1, 8, 1, 0, 0, 0, 0, 1}) == "");
    CHECK(fault_of_rows(16, 2, 1, window{3, 2, 1}, v{7, 16, 0, 0, 1, 0, 0, 0}) == "");
    CHECK(fault_of_rows(16, 2, 1, window{2, 2, 0}, v{8, 16, 0, 0, 0, 0, 0, 0}) == "");
    CHECK(lab::thrown("halo_of", 6, 3, 0, window{7, 1, 3}) == "invalid_argument");
    CHECK(lab::thrown("halo_of", 6, 3, 1, window{7, 1, 3}) ==
          "invalid_argument");  // its neighbours would need rows of 0 and 2
    CHECK(lab::call<std::size_t>("halo_bytes", std::size_t{2}, std::size_t{4}, std::size_t{5}, std::size_t{3},
                                 std::size_t{1}, std::vector<int>{1, 0, 1, 1}) == 8 * 2 * 3 * (5 + 2 * 6));
}

TEST_CASE("halo: the neighbours' rows, corners included") {
    const auto v = lab::random_volume(2, 6, 5, 3, 50);
    for (const grid& g : {grid{1, 1}, {2, 1}, {1, 2}, {2, 2}}) CHECK(lab::fault_of_halo(v, g, 1) == "");
}

TEST_CASE("halo: gradients go back to their owner") {
    const auto v = lab::random_volume(2, 6, 5, 3, 60);
    for (const grid& g : {grid{1, 1}, {2, 1}, {1, 2}, {2, 2}}) CHECK(lab::fault_of_adjoint(v, g, 1, 70) == "");
}

TEST_CASE("convolution: equals the whole volume's") {
    for (const grid& g : {grid{1, 1}, {2, 2}})
        CHECK(lab::fault_of_conv(lab::random_volume(2, 4, 5, 3, 80), 2, 3, g, 90) == "");
}
