#include "compress/compressor_laws.hpp"

#include <cairn/compress/feedback.hpp>
#include <cairn/compress/sign.hpp>

namespace laws {

TEST_CASE("sign keeps the contract laws", "[sign]") {
    check_laws([] { return sign(); });
    check_laws([] { return error_feedback(sign()); });
}

TEST_CASE("sign sends the mean magnitude of each block and one bit a value", "[sign]") {
    for (const index_t n : sizes)
        for (const std::string& distribution : distributions) {
            CAPTURE(n, distribution);
            const floats x = numbers(distribution, n);
            sign c;
            const auto bytes = encoded(c, x);
            const index_t scales = (n + 1023) / 1024;
            REQUIRE(static_cast<index_t>(bytes.size()) == 4 * scales + (n + 7) / 8);
            const floats y = decoded(c, bytes, n);
            double left_over = 0;  // Σ over blocks of ‖x‖² − ‖x‖₁²/n: the identity that makes it a contraction
            for (index_t b = 0; b < scales; ++b) {
                const auto first = static_cast<std::size_t>(b * 1024), last = std::min(first + 1024, x.size());
                double sum = 0, square = 0;
                for (std::size_t i = first; i < last; ++i) {
                    sum += std::abs(x[i]);
                    square += double(x[i]) * double(x[i]);
                }
                left_over += square - sum * sum / static_cast<double>(last - first);
                for (std::size_t i = first; i < last; ++i) {
                    REQUIRE(std::abs(y[i]) == Approx(sum / static_cast<double>(last - first)).epsilon(1e-6));
                    if (sum > 0) REQUIRE(std::signbit(y[i]) == (x[i] < 0));
                    // The bit where the format says that it is.
                    const auto byte = static_cast<unsigned>(bytes[static_cast<std::size_t>(4 * scales) + i / 8]);
                    REQUIRE(((byte >> (i % 8) & 1u) != 0) == (x[i] < 0));
                }
            }
            REQUIRE(squares(difference(x, y)) == Approx(left_over).epsilon(1e-4).margin(1e-4 * squares(x)));
        }
}

TEST_CASE("sign refuses a scale that no encoder writes", "[sign]") {
    sign c;
    auto bytes = encoded(c, numbers("normal", 10));
    for (const float bad : {-1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
        std::memcpy(bytes.data(), &bad, 4);
        REQUIRE_THROWS_WITH(decoded(c, bytes, 10), Catch::Contains("byte 4: the scale before it is"));
    }
}

}  // namespace laws
