#pragma once
// Lab 2, task 3: how long an all-reduce takes, before it is run.
//   α seconds a message, β seconds a byte that is sent, γ seconds a byte that is added

#include <stdexcept>

namespace student {

struct link {
    double alpha = 0, beta = 0, gamma = 0;
};

enum class algorithm { ring, halving_doubling };

/// Seconds that the ring of task 1 takes for `bytes` bytes on each of p ranks.
inline double ring_seconds(int p, double bytes, const link& l) {
    (void)p, (void)bytes, (void)l;
    throw std::logic_error("task 3: ring_seconds is not written yet");
}

/// Seconds that halving and doubling takes. Where p is no power of two, two more messages of all bytes, and their
/// addition, come on top.
inline double halving_doubling_seconds(int p, double bytes, const link& l) {
    (void)p, (void)bytes, (void)l;
    throw std::logic_error("task 3: halving_doubling_seconds is not written yet");
}

/// The one that takes less time; the ring where they are equal.
inline algorithm cheaper(int p, double bytes, const link& l) {
    (void)p, (void)bytes, (void)l;
    throw std::logic_error("task 3: cheaper is not written yet");
}

}  // namespace student
