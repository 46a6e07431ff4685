#include "catch.hpp"

#include <cairn/device/cpu/embedding.hpp>

#include "device/cpu/kernel_numbers.hpp"

namespace cairn {

using namespace kernel_tests;

namespace {

std::vector<std::int32_t> draw_ids(index_t rows, index_t entries) {
    const random_stream random{4, 5, 6};
    std::vector<std::int32_t> ids(static_cast<std::size_t>(rows));
    for (std::size_t r = 0; r < ids.size(); ++r)
        ids[r] = static_cast<std::int32_t>(random.below(std::uint64_t(entries), r));
    return ids;
}

}  // namespace

TEMPLATE_TEST_CASE("embedding: rows of the table, and their gradients summed", "[embedding]", float, double) {
    using T = TestType;
    for (const index_t entries : {1, 7, 1000})
        for (const index_t width : {1, 5, 64})
            for (const index_t rows : {0, 1, 33, 4000}) {
                CAPTURE(entries, width, rows);
                const auto ids = draw_ids(rows, entries);
                const auto table = draw<T>(entries * width, 1), dy = draw<T>(rows * width, 2);
                std::vector<T> y(dy.size()), expected(dy.size()), dtable(table.size(), T(0.5));
                std::vector<long double> sums(table.size(), 0.5L);
                for (std::size_t i = 0; i < dy.size(); ++i) {
                    const std::size_t r = i / std::size_t(width), c = i % std::size_t(width);
                    const std::size_t at = std::size_t(ids[r]) * std::size_t(width) + c;
                    expected[i] = table[at];
                    sums[at] += dy[i];
                }
                embedding_forward(cpu{}, rows, entries, width, ids.data(), table.data(), y.data());
                embedding_backward(cpu{}, rows, entries, width, ids.data(), dy.data(), dtable.data());
                CHECK(same_bits(y, expected));
                CHECK(distance(dtable, sums) <= eps<T>(100) * std::sqrt(1.0 + double(rows)));
            }
}

TEST_CASE("embedding: one entry for all rows, the same bits on any number of threads", "[embedding]") {
    const index_t rows = 50000, width = 24;
    for (const index_t entries : {1, 11}) {
        const auto ids = draw_ids(rows, entries);
        const auto dy = draw<float>(rows * width, 2);
        std::vector<float> first;
        on_several_threads([&](int) {
            std::vector<float> d(std::size_t(entries * width));
            embedding_backward(cpu{}, rows, entries, width, ids.data(), dy.data(), d.data());
            if (first.empty()) first = d;
            CHECK(same_bits(d, first));
        });
    }
}

TEST_CASE("embedding: an id out of range is named", "[embedding]") {
    using Catch::Matchers::Contains;
    const std::vector<std::int32_t> ids{0, 3, 5, -2};
    const std::vector<float> table(10), dy(8);
    std::vector<float> y(8), d(10);
    CHECK_THROWS_WITH(embedding_forward(cpu{}, 4, 5, 2, ids.data(), table.data(), y.data()),
                      Contains("id 5 of row 2") && Contains("[0, 5)"));
    CHECK_THROWS_WITH(embedding_backward(cpu{}, 4, 6, 2, ids.data(), dy.data(), d.data()), Contains("id -2 of row 3"));
}

}  // namespace cairn
