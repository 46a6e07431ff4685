#include "gpu_session.hpp"

template nlohmann::json run_in<cairn::float16>(cairn::configuration, cairn::session_options, cairn::any_communicator,
                                               std::optional<cairn::any_communicator>, bool);
