#pragma once
// Lab 3, task 5: when does it pay?  A step's communication takes
//   compute + messages · α + bytes / bandwidth          seconds
// compute: of encoding and decoding; messages and bytes: what one rank sends.

#include <cstddef>
#include <limits>
#include <span>
#include <stdexcept>

namespace student {

/// What one rank sends in a step.
struct traffic {
    double messages = 0, bytes = 0;
};

struct link {
    double alpha = 0;      // seconds a message
    double bandwidth = 1;  // bytes a second
};

/// One way to send gradients.
struct method {
    traffic sends;
    double compute = 0;  // seconds
};

/// A ring all-reduce of `bytes` bytes over p ranks: 2 (p − 1) messages of 1/p each.
inline traffic ring_traffic(int p, double bytes) {
    (void)p, (void)bytes;
    throw std::logic_error("task 5: ring_traffic is not written yet");
}

/// An all-gather of one message of `bytes` bytes from each of p ranks, on a ring.
inline traffic gather_traffic(int p, double bytes) {
    (void)p, (void)bytes;
    throw std::logic_error("task 5: gather_traffic is not written yet");
}

/// PowerSGD of a matrix of floats: a ring all-reduce of P and one of Q. rank is at most min(rows, cols).
inline traffic powersgd_traffic(int p, double rows, double cols, double rank) {
    (void)p, (void)rows, (void)cols, (void)rank;
    throw std::logic_error("task 5: powersgd_traffic is not written yet");
}

inline double seconds(const method& m, const link& l) {
    (void)m, (void)l;
    throw std::logic_error("task 5: seconds is not written yet");
}

/// The bandwidth, in bytes a second, below which `compressed` takes less time than `dense`. Infinity if it takes less
/// at every bandwidth (also with as many bytes); else 0 if it sends no fewer bytes: then slower links are no reason to
/// compress.
inline double break_even(const method& dense, const method& compressed, double alpha) {
    (void)dense, (void)compressed, (void)alpha;
    throw std::logic_error("task 5: break_even is not written yet");
}

/// Index of the method that takes least time, the first of equals. There is at least one.
inline std::size_t best(std::span<const method> methods, const link& l) {
    (void)methods, (void)l;
    throw std::logic_error("task 5: best is not written yet");
}

}  // namespace student
