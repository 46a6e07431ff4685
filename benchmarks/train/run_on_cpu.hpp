#pragma once
// What on_cpu.hpp declares, of layers that compute in T.

#include "compiled_session.hpp"

#include <iostream>

template <class T>
nlohmann::json run_on_cpu(cairn::configuration settings, const cairn::session_options& options,
                          cairn::any_communicator world, bool profile, bool plan) {
    cairn::session<cairn::cpu, T> session(std::move(settings), options, std::move(world));
    if (!options.evaluate.empty()) return session.evaluate();
    if (!plan)
        return options.generated && options.machine.empty() ? session.throughput(options.max_steps, profile)
                                                            : session.train();
    const std::string text = session.plan();
    if (session.world().rank() == 0) std::cout << text << std::flush;
    if (!cairn::on_phantom_rank()) return {};
    return session.needs(options.max_steps < 0 ? 3 : options.max_steps);
}
