// The measured ceilings: plausible, kept, and above what a kernel reaches.
#include "catch.hpp"
#include "messages.hpp"

#include <cairn/perf/machine.hpp>

namespace perf = cairn::perf;

using cairn::test::contains;

TEST_CASE("machine: the fingerprint names processor, build and libraries on one line", "[machine]") {
    const std::string text = perf::fingerprint();
    CHECK(text.find_first_of("\t\n") == std::string::npos);
    CHECK(contains(text, cairn::onednn::version()));
    CHECK(contains(text, perf::this_machine().cpu));
    CHECK(perf::fingerprint() == text);
    CHECK(perf::this_machine().cores >= 1);
}

TEST_CASE("machine: ceilings are measured once per number of threads", "[machine]") {
    const perf::matrix_peak& peak = perf::measured_matrix_peak();
    CHECK(peak.gflops == std::max(peak.registers, peak.gemm));
    CHECK(peak.gemm > 0.1);
    CHECK(&perf::measured_matrix_peak() == &peak);
    CHECK(perf::measured_bandwidth() > 0.1);
    CHECK(perf::measured_bandwidth() == perf::measured_bandwidth());
    CHECK_FALSE(peak.reached_by.empty());
}
