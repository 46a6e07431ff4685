#pragma once
// One exception type for everything that goes wrong in Cairn: it says what, where and what to do.
// Context is added on the way up: the file reader names the byte, the loader the file, the program the run.

#include <exception>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace cairn {

/// Joins its arguments into one string with operator<<.
template <class... Parts>
[[gnu::cold, gnu::noinline]] std::string concat(const Parts&... parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
}

/// Every failure that Cairn reports. what() reads "context: context: message".
class error : public std::exception {
public:
    explicit error(std::string message) : message_(std::move(message)) {}

    const char* what() const noexcept override { return message_.c_str(); }

    /// Puts `where` (a file, a layer, a rank) in front of the message.
    void add_context(const std::string& where) { message_ = where + ": " + message_; }

private:
    std::string message_;
};

/// Throws error with the joined arguments as its message.
template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const Parts&... parts) {
    throw error(concat(parts...));
}

/// Throws error with the joined arguments unless `condition` holds.
template <class... Parts>
void require(bool condition, const Parts&... parts) {
    if (!condition) [[unlikely]]
        fail(parts...);
}

/// Runs `action`; an error leaving it gets `where` as context.
template <class Action>
decltype(auto) with_context(const std::string& where, Action&& action) {
    try {
        return std::forward<Action>(action)();
    } catch (error& e) {
        e.add_context(where);
        throw;
    }
}

}  // namespace cairn
