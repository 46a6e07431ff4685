#include "compress/compressor_laws.hpp"

#include <cairn/compress/feedback.hpp>
#include <cairn/compress/sign.hpp>

namespace laws {

TEST_CASE("sign keeps the contract laws", "[sign]") {
    check_laws([] { return sign(); });
    check_laws([] { return error_feedback(sign()); });
}

TEST_CASE("sign sends the mean magnitude and one bit a value", "[sign]") {
    for (const index n : sizes)
        for (const std::string& distribution : distributions) {
            CAPTURE(n, distribution);
            const floats x = numbers(distribution, n);
            sign c;
            const auto bytes = encoded(c, x);
            REQUIRE(static_cast<index>(bytes.size()) == (n ? 4 + (n + 7) / 8 : 0));
            double sum = 0;
            for (float v : x) sum += std::abs(v);
            const floats y = decoded(c, bytes, n);
            for (std::size_t i = 0; i < x.size(); ++i) {
                REQUIRE(std::abs(y[i]) == Approx(sum / static_cast<double>(n)).epsilon(1e-6));
                if (sum > 0) REQUIRE(std::signbit(y[i]) == (x[i] < 0));
                // The bit where the format says that it is.
                REQUIRE((((static_cast<unsigned>(bytes[4 + i / 8]) >> (i % 8)) & 1u) != 0) == (x[i] < 0));
            }
            // The identity that makes it a contraction: ‖x − C(x)‖² = ‖x‖² − ‖x‖₁²/n.
            if (n)
                REQUIRE(
                    squares(difference(x, y)) ==
                    Approx(squares(x) - sum * sum / static_cast<double>(n)).epsilon(1e-4).margin(1e-4 * squares(x)));
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
