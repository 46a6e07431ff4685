// Shampoo, SOAP and Muon against plain loops in double.

#include "optim/matrix_preconditioner_laws.hpp"

#include <limits>

namespace cairn {

TEST_CASE("matrix preconditioners: plain loops, zero gradients, saved states", "[shampoo][soap][muon]") {
    check_each(matrix_preconditioner_laws::all<cpu>());
}

TEST_CASE("matrix preconditioners: a gradient that is not finite is named and changes nothing",
          "[shampoo][soap][muon]") {
    using namespace matrix_preconditioner_laws;
    const auto check = [](auto make) {
        matrices<cpu> m, clean;
        const auto p = make(*m.memory), other = make(*clean.memory);
        const auto step = [](matrices<cpu>& on, auto& of, std::uint32_t number) {
            on.draw(number);
            of->precondition(1, 0.1);
        };
        for (std::uint32_t t = 1; t <= 4; ++t) {
            step(m, p, t);
            step(clean, other, t);
        }
        m.draw(5);
        m.kernel.grad[7] = std::numeric_limits<double>::quiet_NaN();
        CHECK_THROWS_WITH(p->precondition(1, 0.1),
                          Catch::Contains("gradient of kernel (6, 2, 1, 2): element 7 is nan"));
        step(m, p, 6);
        step(clean, other, 6);
        CHECK(numbers(m.kernel.grad) == numbers(clean.kernel.grad));
        CHECK(numbers(m.wide.grad) == numbers(clean.wide.grad));
    };
    check([](arena<double>& weights) { return std::make_unique<muon<double>>(weights, muon_config{}); });
    check([](arena<double>& weights) { return std::make_unique<soap<double>>(weights, soap_config{}); });
    check([](arena<double>& weights) { return std::make_unique<shampoo<double>>(weights, shampoo_config{}); });
}

}  // namespace cairn
