// Numbers of the environment: read whole or refused with name, value and what is allowed.

#include "catch.hpp"
#include "messages.hpp"

#include <cairn/comm/communicator.hpp>
#include <cairn/core/memory.hpp>

#include <cstdlib>
#include <optional>

namespace cairn {

namespace {

/// An environment variable for one test.
class variable {
public:
    variable(const char* name, const char* value) : name_(name) {
        if (const char* before = std::getenv(name)) before_ = before;
        setenv(name, value, 1);
    }
    ~variable() {
        if (before_)
            setenv(name_, before_->c_str(), 1);
        else
            unsetenv(name_);
    }
    variable(const variable&) = delete;
    variable& operator=(const variable&) = delete;

private:
    const char* name_;
    std::optional<std::string> before_;
};

/// Checks that `read` refuses the value, naming the variable, the value and what is allowed.
template <class Read>
void check_refused(const char* name, const char* value, const char* allowed, Read read) {
    const variable set(name, value);
    const std::string why = test::message_of(read);
    CAPTURE(why);
    CHECK(test::contains(why, concat(name, "='", value, "': expected ", allowed)));
}

}  // namespace

TEST_CASE("environment: a time limit is a finite number of seconds, or an error", "[environment]") {
    for (const char* value :
         {"abc", "-1", "nan", "-nan", "inf", "1e999", "1e10", "", " 5", "5 ", "5s", "0x10", "+5", "1,5"})
        check_refused("CAIRN_COMM_TIMEOUT", value, "seconds, a number from 0 (no limit) to 1e9",
                      [] { default_time_limit(); });
    for (const auto& [value, seconds] : {std::pair{"0", 0.0}, {"2.5", 2.5}, {"1e3", 1000.0}}) {
        const variable set("CAIRN_COMM_TIMEOUT", value);
        CHECK(default_time_limit() == seconds);
    }
}

TEST_CASE("environment: a limit of memory is a whole number of bytes, or an error", "[environment]") {
    for (const char* name : {"CAIRN_MEMORY_LIMIT", "CAIRN_GPU_MEMORY_LIMIT"}) {
        const auto limit = [&] { return memory_limit_of_environment(name, 7); };
        for (const char* value : {"abc", "-5", "0", "1e9", "4G", "4 G", "1.5", "nan", "", "9223372036854775808"})
            check_refused(name, value, "bytes, a whole number of at least 1", limit);
        const variable set(name, "4000000000");
        CHECK(limit() == 4000000000);
    }
    CHECK(memory_limit_of_environment("CAIRN_TEST_THAT_NOBODY_SETS", 7) == 7);
}

}  // namespace cairn
