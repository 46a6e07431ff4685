#pragma once
// Reading a message whose bytes may be damaged: every error names the byte.

#include <cairn/core/error.hpp>
#include <cairn/core/shape.hpp>

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

namespace cairn {

/// Reads a message from front to back; every error names the byte.
class message_reader {
public:
    message_reader(std::string_view who, std::span<const std::byte> bytes) : who_(who), bytes_(bytes) {}

    index_t position() const { return position_; }
    index_t left() const { return static_cast<index_t>(bytes_.size()) - position_; }

    /// The next `count` bytes. `what` names them in the error if the message ends before.
    const std::byte* take(index_t count, std::string_view what) {
        if (count < 0 || count > left()) [[unlikely]]
            damaged(count, " bytes of ", what, " expected, ", left(), " left");
        const std::byte* here = bytes_.data() + position_;
        position_ += count;
        return here;
    }
    template <class T>
    T number(std::string_view what) {
        T value;
        std::memcpy(&value, take(sizeof value, what), sizeof value);
        return value;
    }
    /// Throws if bytes are left.
    void finish() const {
        if (left() != 0) [[unlikely]]
            damaged(left(), " bytes too many");
    }
    /// Throws error "who: message of n bytes: byte position: …".
    template <class... Parts>
    [[noreturn]] void damaged(const Parts&... parts) const {
        fail(who_, ": message of ", bytes_.size(), " bytes: byte ", position_, ": ", parts...);
    }

private:
    std::string_view who_;
    std::span<const std::byte> bytes_;
    index_t position_ = 0;
};

}  // namespace cairn
