#if !CAIRN_UNITY_CUDA
#define CAIRN_TARGETS cairn::target<cairn::cuda, cairn::float16>
#endif
#include "gpu_session.hpp"

nlohmann::json run_in_fp16(cairn::configuration settings, cairn::session_options options, cairn::any_communicator world,
                           std::optional<cairn::any_communicator> transport, bool profile) {
    return run_in<cairn::float16>(std::move(settings), std::move(options), std::move(world), std::move(transport),
                                  profile);
}
