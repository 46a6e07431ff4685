#include "catch.hpp"
#include "data/synthetic.hpp"

#include <cairn/data/fftw.hpp>

#include <numbers>

namespace cairn::test {

TEST_CASE("fftw: a plane wave has one mode, and there and back is a factor", "[fftw]") {
    for (index_t n : {4, 9, 16}) {
        const cube_transform fft(n);
        tensor<float> wave({n, n, n}), back({n, n, n});
        tensor<std::complex<float>> spectrum(fft.spectrum_shape());
        for (index_t i = 0; i < wave.size(); ++i) {
            const double phase =
                2 * std::numbers::pi / static_cast<double>(n) * static_cast<double>(i / (n * n) + i % n);
            wave[i] = static_cast<float>(std::cos(phase));
        }
        const tensor<float> before = wave.clone();
        fft.forward(wave, spectrum);
        index_t at = 0;
        for (index_t a = 0; a < n; ++a)
            for (index_t b = 0; b < n; ++b)
                for (index_t c = 0; c <= n / 2; ++c, ++at) {
                    const bool there = a == 1 && b == 0 && c == 1;
                    REQUIRE(
                        std::abs(spectrum[at]) ==
                        Approx(there ? static_cast<double>(n * n * n) / 2 : 0.0).margin(1e-3 * static_cast<double>(n)));
                }
        fft.inverse(spectrum, back);
        for (index_t i = 0; i < back.size(); ++i)
            REQUIRE(back[i] / static_cast<float>(n * n * n) == Approx(before[i]).margin(1e-5));
    }
}

TEST_CASE("fftw: impossible sizes and shapes", "[fftw]") {
    REQUIRE_THAT(message_of([] { cube_transform{0}; }), Catch::Matchers::Contains("edge 0"));
    const cube_transform fft(4);
    tensor<float> wrong({4, 4, 5});
    tensor<std::complex<float>> spectrum(fft.spectrum_shape());
    REQUIRE_THAT(message_of([&] { fft.forward(wrong, spectrum); }), Catch::Matchers::Contains("(4, 4, 5)"));
}

}  // namespace cairn::test
