#include "catch.hpp"
#include "messages.hpp"
#include "state/temporary_folder.hpp"

#include <cairn/parallel/progress_thread.hpp>
#include <cairn/state/burst_buffer.hpp>

namespace cairn::test {

TEST_CASE("burst buffer: a state arrives whole, each later one in its place") {
    const temporary_folder local, shared;
    const std::filesystem::path file = shared.path / "state.cairn";
    tensor<float> x({3'000'000});  // more than a piece of the copy
    state_view state;
    state.add("x", x);
    burst_buffer burst(local.path / "run", start_helper());
    for (const float value : {1.0f, 2.0f}) {
        std::fill(x.span().begin(), x.span().end(), value);
        burst.save(file, state);
        std::fill(x.span().begin(), x.span().end(), -1.0f);  // training goes on
        burst.finish();
        load_state(file, state);
        CHECK(std::ranges::all_of(x.span(), [&](float v) { return v == value; }));
        CHECK(std::filesystem::is_empty(local.path / "run"));
    }
}

TEST_CASE("burst buffer: a drain that fails is told by the next call, and the file is as it was") {
    const temporary_folder local, shared;
    tensor<float> x({4});
    state_view state;
    state.add("x", x);
    burst_buffer burst(local.path, start_helper());
    burst.save(shared.path / "missing" / "state.cairn", state);
    CHECK(contains(message_of([&] { burst.finish(); }), "missing/state.cairn"));
    burst.save(shared.path / "state.cairn", state);
    burst.finish();
    CHECK(std::filesystem::exists(shared.path / "state.cairn"));
}

}  // namespace cairn::test
