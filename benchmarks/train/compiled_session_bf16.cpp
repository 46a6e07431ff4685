#define CAIRN_COMPILES_SESSIONS
#include "on_cpu.hpp"
#include "run_on_cpu.hpp"

namespace cairn {
CAIRN_SESSION_OF(bfloat16, )
}

nlohmann::json run_in_bf16(cairn::configuration settings, const cairn::session_options& options,
                           cairn::any_communicator world, bool profile, bool plan) {
    return run_on_cpu<cairn::bfloat16>(std::move(settings), options, std::move(world), profile, plan);
}
