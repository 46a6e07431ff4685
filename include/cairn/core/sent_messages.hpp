#pragma once
// Messages that a rank sends, counted: by cause in comm/traffic.hpp, of layers that ranks share in core/cost.hpp.

#include <cstdint>

namespace cairn {

/// Messages that were sent, and bytes of them.
struct sent_messages {
    std::int64_t messages = 0, bytes = 0;

    sent_messages& operator+=(const sent_messages& other) {
        messages += other.messages, bytes += other.bytes;
        return *this;
    }
    sent_messages& operator-=(const sent_messages& other) {
        messages -= other.messages, bytes -= other.bytes;
        return *this;
    }
    bool operator==(const sent_messages&) const = default;
};

}  // namespace cairn
