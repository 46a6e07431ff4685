#pragma once
// Lab 3, task 2: one bit a value, and one scale for all: C(x) = s · sign(x) with s = mean |x|.
//
// The message of n values, 4 + ⌈n / 8⌉ bytes:
//   | s, a float of 4 bytes | n bits: value i is bit i mod 8 of byte i / 8, bit 0 being the lowest; 1 for x < 0 |
// The bits behind the last value are 0. sign(0) is +1. For n = 0, s is 0.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <stdexcept>
#include <vector>

namespace student {

struct sign {
    /// Bytes of the message of n values.
    std::size_t bytes(std::size_t n) const {
        //! solution
        return 4 + (n + 7) / 8;
        //! starter
        // (void)n;
        // throw std::logic_error("task 2: sign::bytes is not written yet");
        //! end
    }

    /// δ(x) = ‖x‖₁² / (n ‖x‖²), with which ‖x − C(x)‖² = (1 − δ(x)) ‖x‖². 1 where x is zero or has no elements.
    double contraction(std::span<const float> values) const {
        //! solution
        double absolute = 0, squared = 0;
        for (const float v : values) {
            absolute += std::abs(static_cast<double>(v));
            squared += static_cast<double>(v) * static_cast<double>(v);
        }
        return squared == 0 ? 1 : absolute * absolute / (static_cast<double>(values.size()) * squared);
        //! starter
        // (void)values;
        // throw std::logic_error("task 2: sign::contraction is not written yet");
        //! end
    }

    /// The message of `values`, all of them finite. Magnitudes are added up in double: there may be millions.
    std::vector<std::byte> encode(std::span<const float> values) const {
        //! solution
        const std::size_t n = values.size();
        std::vector<std::byte> message(bytes(n));
        double sum = 0;
        for (std::size_t i = 0; i < n; ++i) {
            sum += std::abs(static_cast<double>(values[i]));
            if (values[i] < 0) message[4 + i / 8] |= std::byte{1} << (i % 8);
        }
        const float scale = n == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(n));
        std::memcpy(message.data(), &scale, 4);
        return message;
        //! starter
        // (void)values;
        // throw std::logic_error("task 2: sign::encode is not written yet");
        //! end
    }

    /// into[i] = ± s. `into` has as many values as were encoded.
    void decode(std::span<const std::byte> message, std::span<float> into) const {
        //! solution
        float scale = 0;
        std::memcpy(&scale, message.data(), 4);
        for (std::size_t i = 0; i < into.size(); ++i) {
            const bool negative = (message[4 + i / 8] >> (i % 8) & std::byte{1}) != std::byte{0};
            into[i] = negative ? -scale : scale;
        }
        //! starter
        // (void)message, (void)into;
        // throw std::logic_error("task 2: sign::decode is not written yet");
        //! end
    }
};

}  // namespace student
