#pragma once
// A way to compress that needs none of your tasks, so that task 4 is tested by itself.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lab {

/// Every value as a multiple of ¼, cut off towards zero, in one byte. Remembers the sum of all that it encoded.
struct quarters {
    std::shared_ptr<std::vector<double>> sent = std::make_shared<std::vector<double>>();

    static float rounded(float v) { return std::trunc(4 * v) / 4; }

    std::vector<std::byte> encode(std::span<const float> values) const {
        std::vector<std::byte> message;
        sent->resize(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
            message.push_back(static_cast<std::byte>(static_cast<std::int8_t>(std::trunc(4 * values[i]))));
            (*sent)[i] += static_cast<double>(rounded(values[i]));
        }
        return message;
    }
    void decode(std::span<const std::byte> message, std::span<float> into) const {
        for (std::size_t i = 0; i < into.size(); ++i)
            into[i] = static_cast<float>(static_cast<std::int8_t>(message[i])) / 4;
    }
};

}  // namespace lab
