// main of every test program of a lab, compiled before submissions are. The grader gives a token and a seed through descriptor 3 and gets the
// verdict, behind the token, through descriptor 4, once the test has come to its end: what a submission prints, or that it calls exit(0),
// counts for nothing. Without a grader it is an ordinary Catch2 program.

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using listener_base = Catch::EventListenerBase;
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
using listener_base = Catch::TestEventListenerBase;
#endif

#include <unistd.h>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>

namespace {

std::string token;  // empty: nobody grades
std::uint64_t given_seed = 1;

std::string escaped(const std::string& text) {
    std::ostringstream out;
    for (const char c : text) {
        if (c == '"' || c == '\\')
            out << '\\' << c;
        else if (c == '\n')
            out << "\\n";
        else if (static_cast<unsigned char>(c) < 0x20)
            out << ' ';
        else
            out << c;
    }
    return out.str();
}

/// Counts assertions and keeps the first failure.
class verdict_listener : public listener_base {
public:
    using listener_base::listener_base;

    void tell(const Catch::AssertionStats& stats) {
        ++checks;
        if (stats.assertionResult.isOk()) return;
        if (failures++ > 0) return;
        const auto& result = stats.assertionResult;
        std::ostringstream text;
        std::string file = result.getSourceInfo().file;
        file = file.substr(file.find_last_of('/') + 1);
        text << file << ':' << result.getSourceInfo().line;
        if (result.hasExpression()) text << ": " << result.getExpressionInMacro();
        if (result.hasExpandedExpression()) text << "\nwith values: " << result.getExpandedExpression();
        if (result.hasMessage()) text << "\n" << std::string(result.getMessage());
        for (const auto& info : stats.infoMessages)
            if (!result.hasMessage() || info.message != std::string(result.getMessage())) text << "\n" << info.message;
        message = text.str();
    }
    void tell(const Catch::TestRunStats& stats) {
        std::ostringstream out;
        out << token << " {\"passed\": "
            << (stats.totals.testCases.failed == 0 && failures == 0 && checks > 0 ? "true" : "false")
            << ", \"checks\": " << checks << ", \"failures\": " << failures << ", \"message\": \"" << escaped(message)
            << "\"}\n";
        const std::string line = out.str();
        if (!token.empty())
            for (std::size_t at = 0; at < line.size();) {
                const ssize_t n = write(4, line.data() + at, line.size() - at);
                if (n <= 0) break;
                at += static_cast<std::size_t>(n);
            }
    }

#if __has_include(<catch2/catch_all.hpp>)
    void assertionEnded(const Catch::AssertionStats& stats) override { tell(stats); }
#else
    bool assertionEnded(const Catch::AssertionStats& stats) override {
        tell(stats);
        return true;
    }
#endif
    void testRunEnded(const Catch::TestRunStats& stats) override { tell(stats); }

private:
    int checks = 0, failures = 0;
    std::string message;
};

}  // namespace

CATCH_REGISTER_LISTENER(verdict_listener)

namespace lab {
std::uint64_t seed();
std::uint64_t seed() { return given_seed; }
}  // namespace lab

int main(int argc, char** argv) {
    if (const char* text = std::getenv("CAIRN_LAB_SEED")) given_seed = std::strtoull(text, nullptr, 10);
    if (std::getenv("CAIRN_GRADED")) {
        std::string line;
        char c = 0;
        while (read(3, &c, 1) == 1 && c != '\n') line += c;
        std::istringstream(line) >> token >> given_seed;
        close(3);
    }
    return Catch::Session().run(argc, argv);
}
