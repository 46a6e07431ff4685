// Sparse matrices by rows, and their products with dense ones, by plain loops.

#include "catch.hpp"
#include "messages.hpp"

#include <cairn/core/parallel.hpp>
#include <cairn/core/random.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/cpu/csr.hpp>

#include <cstring>

namespace cairn {
namespace csr_tests {

/// Few values in most rows, many in some, none in others.
csr_matrix<float> random_csr(index_t rows, index_t columns, std::uint32_t stream) {
    const random_stream random{8, stream, 0};
    std::uint64_t draw = 0;
    csr_matrix<float> m;
    m.rows = rows;
    m.columns = columns;
    for (index_t r = 0; r < rows; ++r) {
        const index_t count = columns == 0 || r % 5 == 3 ? 0 : r % 7 == 0 ? columns / 2 : r % 4;
        for (index_t i = 0; i < count; ++i) {
            m.column.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(columns), draw++)));
            m.value.push_back(static_cast<float>(random.normal(draw++)));
        }
        m.begin.push_back(m.nonzeros());
    }
    return m;
}

std::vector<double> dense(const csr_matrix<float>& m) {
    std::vector<double> d(static_cast<std::size_t>(m.rows * m.columns));
    for (index_t r = 0; r < m.rows; ++r)
        for (auto i = static_cast<std::size_t>(m.begin[static_cast<std::size_t>(r)]);
             i < static_cast<std::size_t>(m.begin[static_cast<std::size_t>(r) + 1]); ++i)
            d[static_cast<std::size_t>(r * m.columns + m.column[i])] += static_cast<double>(m.value[i]);
    return d;
}

TEST_CASE("csr: products are those of the dense matrix, with the same bits on any threads", "[csr]") {
    for (const auto& extents : {std::pair<index_t, index_t>{1, 1}, {40, 23}, {700, 900}, {0, 5}, {5, 0}})
        for (const index_t width : {1, 3, 16, 37}) {
            const index_t rows = extents.first, columns = extents.second;
            CAPTURE(rows, columns, width);
            const csr_matrix<float> a = random_csr(rows, columns, static_cast<std::uint32_t>(rows));
            a.check("a");
            const std::vector<double> d = dense(a);
            const auto check = [&](bool transposed, auto&& product) {
                const index_t from = transposed ? rows : columns, to = transposed ? columns : rows;
                tensor<double> x({from, width}), y({to, width}), again({to, width});
                for (index_t i = 0; i < x.size(); ++i)
                    x[i] = random_stream{8, 99, 0}.normal(static_cast<std::uint64_t>(i));
                {
                    const threads_for_now one(1);
                    product(x.data(), y.data());
                }
                const threads_for_now three(3);
                product(x.data(), again.data());
                if (y.size() > 0)
                    REQUIRE(std::memcmp(y.data(), again.data(), static_cast<std::size_t>(y.bytes())) == 0);
                for (index_t r = 0; r < to; ++r)
                    for (index_t k = 0; k < width; ++k) {
                        double sum = 0;
                        for (index_t c = 0; c < from; ++c)
                            sum += d[static_cast<std::size_t>(transposed ? c * columns + r : r * columns + c)] *
                                   x[c * width + k];
                        REQUIRE(y[r * width + k] == Approx(sum).margin(1e-9));
                    }
            };
            check(false, [&](const double* x, double* y) { csr_times_dense(cpu{}, a.view(), width, x, y); });
            const csr_matrix<float> t = a.transposed();
            t.check("t");
            check(true, [&](const double* x, double* y) { csr_times_dense(cpu{}, t.view(), width, x, y); });
        }
}

TEST_CASE("csr: pairs become sorted rows, each once", "[csr]") {
    const csr_matrix<float> m = csr_of_pairs<float>(3, 4, {{2, 1}, {0, 3}, {2, 1}, {0, 0}});
    CHECK(m.begin == std::vector<index_t>{0, 2, 2, 3});
    CHECK(m.column == std::vector<std::int32_t>{0, 3, 1});
    CHECK(m.value == std::vector<float>{1, 1, 1});
    CHECK(test::contains(test::message_of([] { csr_of_pairs<float>(2, 2, {{0, 2}}); }), "(0, 2) is outside of 2 × 2"));
}

TEST_CASE("csr: what does not fit is named", "[csr]") {
    const auto why = [](auto change) {
        csr_matrix<float> m = csr_of_pairs<float>(2, 3, {{0, 1}, {0, 2}, {1, 0}});
        change(m);
        return test::message_of([&] { m.check("the graph"); });
    };
    CHECK(why([](auto&) {}).empty());
    CHECK(test::contains(why([](auto& m) { m.value.pop_back(); }), "the graph: a sparse matrix"));
    CHECK(test::contains(why([](auto& m) { m.begin.pop_back(); }), "2 row bounds"));
    CHECK(test::contains(why([](auto& m) { m.begin.back() = 4; }), "row bounds go from 0 to 4"));
    CHECK(test::contains(why([](auto& m) { m.begin[1] = -1; }), "row 0 ends before it begins"));
    CHECK(test::contains(why([](auto& m) { m.column[2] = 3; }), "row 1 has a value in column 3 of 3"));
    CHECK(test::contains(why([](auto& m) { m.begin[1] = 9; }), "row 1 ends before it begins"));
}

}  // namespace csr_tests
}  // namespace cairn
