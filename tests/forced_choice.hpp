#pragma once
// Choices that tests change in the global registry, and put back.

#include <cairn/device/autotune.hpp>

#include <string>

namespace cairn {

/// The choices of one family, named `of`, as force() takes it. At its end none is forced, none is known, and the policy
/// is what it was.
class forced_choice {
public:
    explicit forced_choice(const char* of) : of_(of) {}
    forced_choice(const char* of, const char* name) : of_(of) { force(name); }
    forced_choice(const forced_choice&) = delete;
    forced_choice& operator=(const forced_choice&) = delete;
    ~forced_choice() {
        autotune_cache::global().set_policy(before_);
        force("");
        autotune_cache::global().clear();
    }
    void force(const std::string& name) const { autotune_cache::global().force(of_, name); }

private:
    const char* of_;
    autotune_policy before_ = autotune_cache::global().policy();
};

}  // namespace cairn
