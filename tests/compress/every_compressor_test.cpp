#include "compress/every_compressor.hpp"

#include "compress/compressor_laws.hpp"

#include <cairn/compress/feedback.hpp>

namespace laws {

// Casts pass NaN and Inf on, the others name them.
TEST_CASE("every compressor of the list keeps the laws on the host, alone and with error feedback", "[compress]") {
    for_every_compressor([](auto maker) {
        const auto make = [&] { return maker(cpu{}); };
        const auto with_feedback = [&] { return error_feedback(maker(cpu{})); };
        const std::string name = make().name();
        CAPTURE(name);
        check_values(make);
        check_damage(make);
        check_damage(with_feedback);
        check_non_finite(with_feedback);
        if (name.find("16") == std::string::npos) check_non_finite(make);
    });
}

}  // namespace laws
