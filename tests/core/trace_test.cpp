#include "catch.hpp"

#include <cairn/core/trace.hpp>

#include <nlohmann/json.hpp>

#include <sstream>
#include <string>
#include <thread>

using cairn::trace;
using cairn::trace_scope;

namespace {

nlohmann::json written() {
    std::ostringstream out;
    trace::global().write(out);
    return nlohmann::json::parse(out.str());
}

/// Records until the end of the block.
struct recording {
    recording() {
        trace::global().clear();
        trace::global().enable(true);
    }
    ~recording() {
        trace::global().enable(false);
        trace::global().clear();
    }
    recording(const recording&) = delete;
    recording& operator=(const recording&) = delete;
};

}  // namespace

TEST_CASE("trace: what is written is JSON of complete events", "[trace]") {
    const recording on;
    {
        const trace_scope step("step", "", "compute");
        { const trace_scope layer("conv1", "forward", "compute"); }
        { const trace_scope layer("conv1", "backward", "compute"); }
    }
    const auto json = written();
    const auto& events = json.at("traceEvents");
    REQUIRE(events.size() == 3);
    CHECK(events[0].at("name") == "step/conv1 forward");
    CHECK(events[1].at("name") == "step/conv1 backward");
    CHECK(events[2].at("name") == "step");
    for (const auto& e : events) {
        CHECK(e.at("ph") == "X");
        CHECK(e.at("cat") == "compute");
        CHECK(e.at("ts").get<double>() >= 0);
        CHECK(e.at("dur").get<double>() >= 0);
        // Within the outer scope, to the nanosecond that is written.
        CHECK(e.at("ts").get<double>() >= events[2].at("ts").get<double>() - 1e-3);
        CHECK(e.at("ts").get<double>() + e.at("dur").get<double>() <=
              events[2].at("ts").get<double>() + events[2].at("dur").get<double>() + 2e-3);
    }
    CHECK(events[0].at("ts").get<double>() <= events[1].at("ts").get<double>());
}

TEST_CASE("trace: a rank's part of a joint trace has its number, and times of another clock", "[trace]") {
    const recording on;
    { const trace_scope scope("step", "", "compute"); }
    const auto own = written().at("traceEvents").at(0);
    const auto later = nlohmann::json::parse(trace::global().events_json(3, 2.5));
    CHECK(own.at("pid") == 0);
    CHECK(later.at("pid") == 3);
    CHECK(later.at("ts").get<double>() - own.at("ts").get<double>() == Approx(2.5e6));
    CHECK(later.at("dur") == own.at("dur"));
}

TEST_CASE("trace: names with quotes, backslashes, control characters and UTF-8 stay valid JSON", "[trace]") {
    const recording on;
    const std::string name = "a \"quoted\" \\ path\n\t\x01 \u03c3";
    { const trace_scope scope(name, "", "data"); }
    const auto events = written().at("traceEvents");
    REQUIRE(events.size() == 1);
    CHECK(events[0].at("name") == name);
}

TEST_CASE("trace: nothing recorded is valid too, and nothing is recorded while it is off", "[trace]") {
    trace::global().clear();
    { const trace_scope scope("unseen", "", "data"); }
    CHECK(trace::global().events().empty());
    CHECK(written().at("traceEvents").empty());
}

TEST_CASE("trace: each thread has its own path and its own small number", "[trace]") {
    const recording on;
    {
        const trace_scope outer("main", "", "compute");
        std::thread([] { const trace_scope scope("loader", "", "data"); }).join();
        const trace_scope inner("inner", "", "compute");
    }
    const auto events = written().at("traceEvents");
    REQUIRE(events.size() == 3);
    CHECK(events[0].at("name") == "loader");
    CHECK(events[1].at("name") == "main/inner");
    CHECK(events[0].at("tid") == 0);
    CHECK(events[1].at("tid") == 1);
    CHECK(events[2].at("tid") == 1);
}

TEST_CASE("trace: turned on or off within a scope, paths stay whole", "[trace]") {
    const recording on;
    {
        const trace_scope outer("outer", "", "compute");
        trace::global().enable(false);
        { const trace_scope unseen("unseen", "", "compute"); }
        trace::global().enable(true);
        const trace_scope inner("inner", "", "compute");
    }
    const auto events = trace::global().events();
    REQUIRE(events.size() == 2);
    CHECK(events[0].path == "outer/inner");
    CHECK(events[1].path == "outer");
}
