// The tests that grade beside the public ones.

#include "../tests/whole.hpp"

using lab::grid;

TEST_CASE("pair: any sizes and ranks") {
    const auto size = [](std::uint32_t stream) { return static_cast<std::size_t>(lab::number(1, 9, stream)); };
    std::uint32_t stream = 100;
    for (const int p : {1, 2, 4, 6})
        for (const std::size_t hidden : {std::size_t{1}, std::size_t{7}, 10 + size(1)}) {
            const lab::whole_pair w(size(stream + 10), size(stream + 11), hidden, size(stream + 12), stream);
            stream += 20;
            INFO(lab::text(p, "rank") << ", " << hidden << " hidden numbers");
            CHECK(lab::fault_of_pair(p, w, true, false) == "");
            CHECK(lab::fault(lab::call<lab::pair_of_layers>("cut", w.weights, p - 1, p), lab::cut(w.weights, p - 1, p),
                             "part") == "");
        }
    CHECK(lab::fault_of_pair(3, lab::whole_pair(0, 2, 4, 3, 900), true, false) == "");
}

TEST_CASE("rows: any window and number of ranks") {
    for (int trial = 0; trial < 12; ++trial) {
        const auto stream = static_cast<std::uint32_t>(1000 + 10 * trial);
        const int p = lab::number(1, 4, stream), n = p * lab::number(8, 12, stream + 1) + lab::number(0, 3, stream + 2);
        const int kernel = lab::number(1, 5, stream + 3), stride = lab::number(1, 2, stream + 4), padding = kernel / 2;
        const int outputs = (n + 2 * padding - kernel) / stride + 1;
        // Row by row: who owns what the outputs read?
        const auto owner = [&](int all, int row) {
            for (int r = 0; r < p; ++r)
                if (const auto mine = lab::part(static_cast<std::size_t>(all), r, p);
                    row >= mine.begin && row < mine.end())
                    return r;
            return row < 0 ? -1 : p;
        };
        std::vector<std::vector<int>> expected(static_cast<std::size_t>(p),
                                               std::vector<int>{1 << 20, -(1 << 20), 0, 0, 0, 0, 0, 0});
        for (int o = 0; o < outputs; ++o)
            for (int k = 0; k < kernel; ++k) {
                const auto r = static_cast<std::size_t>(owner(outputs, o));
                const int row = o * stride - padding + k;
                expected[r][0] = std::min(expected[r][0], row), expected[r][1] = std::max(expected[r][1], row + 1);
            }
        for (int r = 0; r < p; ++r)
            for (int row = expected[static_cast<std::size_t>(r)][0]; row < expected[static_cast<std::size_t>(r)][1];
                 ++row) {
                auto& mine = expected[static_cast<std::size_t>(r)];
                const int from = owner(n, row);
                if (row < 0) ++mine[2];
                if (row >= n) ++mine[3];
                if (row < 0 || row >= n || from == r) continue;
                ++mine[from < r ? 4 : 5];
                ++expected[static_cast<std::size_t>(from)][from < r ? 7 : 6];
            }
        for (int r = 0; r < p; ++r) {
            INFO("rank " << r << " of " << p << ", " << n << " rows, kernel " << kernel << ", stride " << stride
                         << ", padding " << padding);
            CHECK(lab::call<std::vector<int>>("halo_of", n, p, r, lab::window{kernel, stride, padding}) ==
                  expected[static_cast<std::size_t>(r)]);
        }
    }
}

TEST_CASE("halo: any grid and radius, messages and bytes") {
    for (const grid& g : {grid{1, 1}, {3, 1}, {1, 3}, {2, 3}, {3, 2}})
        for (const std::size_t radius : {std::size_t{1}, std::size_t{2}}) {
            const auto more = static_cast<std::size_t>(lab::number(0, 2, 2000));
            CHECK(lab::fault_of_halo(lab::random_volume(1 + more, 7, 6 + more, 2, 2001), g, radius) == "");
        }
}

TEST_CASE("halo: the adjoint on any grid") {
    for (const grid& g : {grid{1, 1}, {3, 1}, {1, 3}, {2, 3}, {3, 2}})
        for (const std::size_t radius : {std::size_t{1}, std::size_t{2}}) {
            const auto more = static_cast<std::size_t>(lab::number(0, 2, 3000));
            CHECK(lab::fault_of_adjoint(lab::random_volume(1 + more, 7, 6 + more, 2, 3001), g, radius, 3010) == "");
        }
}

TEST_CASE("convolution: any grid, kernel and channels") {
    std::uint32_t stream = 4000;
    for (const auto& [g, k] : {std::pair{grid{1, 1}, 5}, {grid{3, 2}, 3}, {grid{2, 3}, 1}, {grid{2, 2}, 5}})
        CHECK(lab::fault_of_conv(
                  lab::random_volume(static_cast<std::size_t>(lab::number(1, 3, stream)), 7, 6, 4, stream + 1),
                  static_cast<std::size_t>(lab::number(1, 3, stream + 2)), static_cast<std::size_t>(k), g,
                  stream += 10) == "");
}
