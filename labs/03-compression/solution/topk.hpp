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
        //! solution
        return std::min(n, static_cast<std::size_t>(std::ceil(ratio * static_cast<double>(n))));
        //! starter
        // (void)n;
        // throw std::logic_error("task 1: topk::count is not written yet");
        //! end
    }

    /// δ of the contract ‖x − C(x)‖² ≤ (1 − δ) ‖x‖², which holds for every x of n values; 1 for n = 0.
    double contraction(std::size_t n) const {
        //! solution
        return n == 0 ? 1 : static_cast<double>(count(n)) / static_cast<double>(n);
        //! starter
        // (void)n;
        // throw std::logic_error("task 1: topk::contraction is not written yet");
        //! end
    }

    /// The message of `values`. Of equal magnitudes, those with the lower positions are chosen. All values are finite.
    std::vector<std::byte> encode(std::span<const float> values) const {
        //! solution
        const std::size_t n = values.size(), k = count(n);
        std::vector<std::uint32_t> positions(n);
        std::iota(positions.begin(), positions.end(), 0u);
        const auto larger = [&](std::uint32_t a, std::uint32_t b) {
            const float x = std::abs(values[a]), y = std::abs(values[b]);
            return x > y || (x == y && a < b);
        };
        const auto end = positions.begin() + static_cast<std::ptrdiff_t>(k);
        std::nth_element(positions.begin(), end, positions.end(), larger);
        std::sort(positions.begin(), end);

        std::vector<std::byte> message(4 + 8 * k);
        const auto stored = static_cast<std::uint32_t>(k);
        std::memcpy(message.data(), &stored, 4);
        for (std::size_t i = 0; i < k; ++i) {
            std::memcpy(message.data() + 4 + 4 * i, &positions[i], 4);
            std::memcpy(message.data() + 4 + 4 * k + 4 * i, &values[positions[i]], 4);
        }
        return message;
        //! starter
        // (void)values;
        // throw std::logic_error("task 1: topk::encode is not written yet");
        //! end
    }

    /// All of `into`: what the message has, zeros elsewhere. `into` has as many values as were encoded.
    void decode(std::span<const std::byte> message, std::span<float> into) const {
        //! solution
        std::uint32_t k = 0;
        std::memcpy(&k, message.data(), 4);
        std::fill(into.begin(), into.end(), 0.0f);
        for (std::size_t i = 0; i < k; ++i) {
            std::uint32_t position = 0;
            std::memcpy(&position, message.data() + 4 + 4 * i, 4);
            std::memcpy(&into[position], message.data() + 4 + 4 * k + 4 * i, 4);
        }
        //! starter
        // (void)message, (void)into;
        // throw std::logic_error("task 1: topk::decode is not written yet");
        //! end
    }
};

}  // namespace student
