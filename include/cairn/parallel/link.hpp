#pragma once
// Cost of messages between ranks: the model α + β · bytes and its two parameters, measured.

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/core/clock.hpp>
#include <cairn/core/tensor.hpp>

#include <algorithm>
#include <span>

namespace cairn {

/// The pattern of a method's messages, which determines the cost of their bytes.
enum class exchange { all_reduce, all_gather, two_phase };

/// Start-up time of a message and seconds a byte, as all-reduces see them.
struct exchange_model {
    double alpha = 0, beta = 0;

    /// Seconds that a method takes among p ranks whose messages have `bytes` bytes each, in so many exchanges together.
    double seconds(exchange kind, double bytes, int p, int exchanges = 1) const {
        const double q = p - 1.0;
        const double times = kind == exchange::all_gather ? q : kind == exchange::two_phase ? q / p : 2 * q / p;
        return exchanges * 2 * q * alpha + times * bytes * beta;
    }
};

/// Collective. Times an all-reduce of 1 KiB and one of 1 MiB, or on a fast link of 8 MiB: the first hundreds of
/// kilobytes may go at the speed of buffers and token buckets. The slowest rank counts. Phantom ranks ask their
/// machine.
template <Communicator C>
exchange_model measure_link(C& c) {
    const int p = c.size();
    if (p == 1) return {};
    const auto timed = [&](index_t n) {
        if (on_phantom_rank()) return 2 * (p - 1.0) * phantom_here->message_seconds(4.0 * static_cast<double>(n) / p);
        tensor<float> data = tensor<float>::zeros({n}, memory_category::communication);
        double best = 1e300;
        for (int i = 0; i < 3; ++i) {
            stopwatch watch;
            ring_all_reduce(c, data.span());
            double seconds = watch.seconds();
            all_reduce(c, std::span<double>(&seconds, 1), {.op = reduction::max});
            best = std::min(best, seconds);
        }
        return best;
    };
    timed(index_t{1} << 10);  // connections are made
    const double small = timed(index_t{1} << 8), q = p - 1.0;
    index_t n = index_t{1} << 18;
    double large = timed(n);
    if (large < 0.1) large = timed(n = index_t{1} << 21);
    const double beta = std::max(1e-13, (large - small) / (2 * q / p * 4 * static_cast<double>(n)));
    return {small / (2 * q), beta};
}

/// Collective. The same from all-gathers of 1 KiB and of 1 MiB, or on a fast link of 8 MiB, between tensors of D that
/// `device` carries; `host` is of the same ranks.
template <Device D, Communicator C>
exchange_model measure_gathers(C& host, C& device) {
    const int p = host.size();
    if (p == 1) return {};
    const auto timed = [&](index_t n) {
        if (on_phantom_rank()) return (p - 1.0) * phantom_here->message_seconds(4.0 * static_cast<double>(n) / p);
        tensor<float, D> data = tensor<float, D>::zeros({n}, memory_category::communication);
        double best = 1e300;
        for (int i = 0; i < 3; ++i) {
            const stopwatch watch;
            all_gather(device, data.span());
            double seconds = watch.seconds();
            all_reduce(host, std::span<double>(&seconds, 1), {.op = reduction::max});
            best = std::min(best, seconds);
        }
        return best;
    };
    timed(index_t{1} << 10);  // connections are made
    const double little = timed(index_t{1} << 8), steps = p - 1.0;
    index_t large = index_t{1} << 18;
    double much = timed(large);
    if (much < 0.1) much = timed(large = index_t{1} << 21);
    return {little / steps, std::max(1e-13, (much - little) * p / (steps * 4 * static_cast<double>(large)))};
}

}  // namespace cairn
