// The program train_float32, which benchmarks/quickstart builds: train without bfloat16, which is a third of its code.

#include "on_cpu.hpp"

nlohmann::json run_in_bf16(cairn::configuration, const cairn::session_options&, cairn::any_communicator, bool, bool) {
    cairn::fail(
        "train.precision = bf16: this program was built for float32 alone; cmake --build --preset release --target "
        "train makes build/release/benchmarks/train, or take train.precision = float32");
}
