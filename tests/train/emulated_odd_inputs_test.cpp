// Optimizers with curvature on inputs that they seldom meet (odd_inputs.hpp), on the emulated GPU.

#include "train/targets.hpp"

#include "train/odd_inputs.hpp"

namespace cairn {

TEST_CASE("odd inputs: second-order optimizers of another device train on them, or stop with a reason", "[train]") {
    for (const std::string kind : {"kfac", "shampoo", "soap", "muon"})
        for (const test::odd_case& c : test::odd_cases()) {
            if (c.ranks > 1) continue;  // they need a channel of the device
            const ::temporary_folder dir;
            INFO(kind << ", " << c.name);
            test::check_end(test::train_odd<emulated_gpu>(dir / "run", c, kind, {}, 5));
        }
}

}  // namespace cairn
