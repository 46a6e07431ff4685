// Shampoo, SOAP and Muon against plain loops in double.

#include "optim/matrix_preconditioner_laws.hpp"

namespace cairn {

TEST_CASE("matrix preconditioners: plain loops, zero gradients, saved states", "[shampoo][soap][muon]") {
    check_each(matrix_preconditioner_laws::all<cpu>());
}

}  // namespace cairn
