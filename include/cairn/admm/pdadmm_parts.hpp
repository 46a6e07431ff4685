#pragma once
// Settings of pdADMM (admm/pdadmm.hpp), and what lies between two of its layers: the input p of the one behind, the
// copy q of what the one in front gives, their dual u, and how p and q travel where the two are on different ranks.

#include <cairn/admm/block_updates.hpp>
#include <cairn/admm/neighbours.hpp>
#include <cairn/admm/objective_terms.hpp>
#include <cairn/core/for_each.hpp>

#include <cstdint>

namespace cairn::admm {

struct pdadmm_config {
    double rho = 4e-2, nu = 1e-2;  // for a loss that is a sum over samples; ρ/ν from 0.5 to 10 trains alike
    double mu = 1e-7;
    block_solver solver = block_solver::exact;
    double relaxation = 1;  // α
    bool proximal = false;  // z stays near where it was
    rho_schedule schedule = {};
    exchange_codec codec = {};
    std::uint64_t seed = 0;  // of codecs that draw numbers
};

/// Between layer b − 1 and layer b of this rank; one of the two may be another rank's.
template <class T, Communicator C>
struct pdadmm_boundary {
    tensor<T> p, q, u;
    boundary_link<T, C> link_forward, link_back;  // of q, of p

    index_t bytes_sent() const { return link_forward.bytes() + link_back.bytes(); }

    void finish() {
        link_forward.finish();
        link_back.finish();
    }

    /// u += ρ (α p + (1 − α) q of before − q)
    void update_dual(const tensor<T>& old, T rho, T alpha) {
        for_each([=](T& dual, const T& in, const T& copy,
                     const T& before) { dual += rho * (alpha * in + (1 - alpha) * before - copy); },
                 u, p, q, old);
    }
};

}  // namespace cairn::admm
