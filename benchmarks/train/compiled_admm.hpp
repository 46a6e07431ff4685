#pragma once
// ADMM over layers, which sessions on the host in float can train by: compiled once, in compiled_data.cpp.

#include <cairn/train/admm_training.hpp>

#define CAIRN_ADMM(instantiated)                                                     \
    instantiated template std::unique_ptr<training_algorithm<cpu, float>> make_admm( \
        run_task&, any_communicator&, run_mesh&, run_model<cpu, float>&);
