#pragma once
// The text of an action's error: error messages are part of the interface and tested like the rest of it.
#include <cairn/core/error.hpp>

#include <string>

namespace cairn::test {

/// The message of the error that `action` throws; "" if it throws none.
template <class Action>
std::string message_of(Action&& action) {
    try {
        action();
    } catch (const error& e) {
        return e.what();
    }
    return "";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace cairn::test
