#pragma once
// One exception type for everything that goes wrong in Cairn: it says what, where and what to do.
// Context is added on the way up: the file reader names the byte, the loader the file, the program the run.

#include <concepts>
#include <exception>
#include <initializer_list>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

namespace detail {

/// A reference to anything that operator<< prints. One function for each type, however messages combine them: several
/// hundred different messages would otherwise be several hundred functions to compile.
class text_part {
public:
    text_part(const char* text)
        : of_(text), print_([](std::ostream& out, const void* of) { out << static_cast<const char*>(of); }) {}
    template <class T>
        requires(!std::convertible_to<const T&, const char*>)
    text_part(const T& value)
        : of_(&value), print_([](std::ostream& out, const void* of) { out << *static_cast<const T*>(of); }) {}

    void print(std::ostream& out) const { print_(out, of_); }

private:
    const void* of_;
    void (*print_)(std::ostream&, const void*);
};

[[gnu::cold, gnu::noinline]] inline std::string joined(std::initializer_list<text_part> parts) {
    std::ostringstream out;
    for (const text_part& part : parts) part.print(out);
    return out.str();
}

}  // namespace detail

/// Joins its arguments into one string with operator<<.
template <class... Parts>
std::string concat(const Parts&... parts) {
    return detail::joined({detail::text_part(parts)...});
}

/// Words with commas between them.
inline std::string listed(const std::vector<std::string>& words) {
    std::string all;
    for (const std::string& w : words) all += (all.empty() ? "" : ", ") + w;
    return all;
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

/// One of training whose numbers are not finite any more. The training loop adds what may help.
class divergence_error : public error {
public:
    using error::error;
};

namespace detail {

[[noreturn, gnu::cold, gnu::noinline]] inline void fail_with(std::initializer_list<text_part> parts) {
    throw error(joined(parts));
}

}  // namespace detail

/// Throws error with the joined arguments as its message.
template <class... Parts>
[[noreturn, gnu::cold]] void fail(const Parts&... parts) {
    detail::fail_with({detail::text_part(parts)...});
}

/// Throws divergence_error with the joined arguments as its message.
template <class... Parts>
[[noreturn, gnu::cold]] void fail_divergence(const Parts&... parts) {
    throw divergence_error(concat(parts...));
}

/// Throws error with the joined arguments unless `condition` holds.
template <class... Parts>
void require(bool condition, const Parts&... parts) {
    if (!condition) [[unlikely]]
        detail::fail_with({detail::text_part(parts)...});
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
