#pragma once
// Optimizers and preconditioners of sessions on D in any precision, compiled once: for the host in
// compiled_optimizers.cpp, for GPUs in on_cuda_optimizers.cu.

#include <cairn/train/preconditioners.hpp>

#define CAIRN_PRECONDITIONERS(instantiated, D)                                                                     \
    instantiated template class kfac_ranks<any_communicator, float, D>;                                            \
    instantiated template class shampoo<float, D>;                                                                 \
    instantiated template class soap<float, D>;                                                                    \
    instantiated template class muon<float, D>;                                                                    \
    instantiated template class quadratic_step<D>;                                                                 \
    instantiated template std::unique_ptr<preconditioner<float, D>> make_preconditioner(                           \
        configuration&, arena<float, D>&, any_communicator&, channel<any_communicator>*);                          \
    instantiated template std::unique_ptr<quadratic_step<D>> make_quadratic_step(configuration&, arena<float, D>&, \
                                                                                 preconditioner<float, D>*);       \
    instantiated template any_optimizer<float, D> make_optimizer(configuration&, arena<float, D>&,                 \
                                                                 const detail::shard_plan*, bool);
