#pragma once
// Lab 3, task 1: of n values, the k of largest magnitude and where they are.
//
// The message, all numbers as they lie in memory (little-endian):
//   | k, 4 bytes | k positions, 4 bytes each, rising | k values, 4 bytes each, values[i] belongs to positions[i] |

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

namespace student {

struct topk {
    double ratio = 0.01;  // share of the values that is sent, in (0, 1]

    /// k for n values: ⌈ratio · n⌉, which is at least 1 unless n is 0, and never more than n.
    std::size_t count(std::size_t n) const {
        (void)n;
        throw std::logic_error("task 1: topk::count is not written yet");
    }

    /// δ of the contract ‖x − C(x)‖² ≤ (1 − δ) ‖x‖², which holds for every x of n values; 1 for n = 0.
    double contraction(std::size_t n) const {
        (void)n;
        throw std::logic_error("task 1: topk::contraction is not written yet");
    }

    /// The message of `values`. Of equal magnitudes, those with the lower positions are chosen. All values are finite.
    std::vector<std::byte> encode(std::span<const float> values) const {
        (void)values;
        throw std::logic_error("task 1: topk::encode is not written yet");
    }

    /// All of `into`: what the message has, zeros elsewhere. `into` has as many values as were encoded.
    void decode(std::span<const std::byte> message, std::span<float> into) const {
        (void)message, (void)into;
        throw std::logic_error("task 1: topk::decode is not written yet");
    }
};

}  // namespace student
