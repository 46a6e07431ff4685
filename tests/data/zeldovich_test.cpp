#include "catch.hpp"
#include "oracle/data_cloud_in_cell.hpp"

#include <cairn/data/zeldovich.hpp>

namespace cairn::test {
namespace {

using complex = std::complex<float>;

// Calls f(position in the spectrum, the three signed wave numbers, how many modes this one stands for).
template <class F>
void for_modes(index_t n, F f) {
    index_t at = 0;
    for (index_t a = 0; a < n; ++a)
        for (index_t b = 0; b < n; ++b)
            for (index_t c = 0; c <= n / 2; ++c, ++at)
                f(at, std::array<index_t, 3>{signed_frequency(a, n), signed_frequency(b, n), c},
                  c == 0 || 2 * c == n ? 1 : 2);
}

bool at_nyquist(const std::array<index_t, 3>& m, index_t n) { return 2 * m[0] == n || 2 * m[1] == n || 2 * m[2] == n; }

tensor<float> zeros(index_t n) { return tensor<float>::zeros({n, n, n}); }

}  // namespace

TEST_CASE("gaussian field: measured spectrum is the input within sampling error", "[cosmology]") {
    const index_t n = 32;
    const double box = 200, volume = box * box * box, cells = static_cast<double>(n * n * n),
                 fundamental = 2 * std::numbers::pi / box;
    const cube_transform fft(n);
    const power_spectrum p(cosmology{});
    constexpr std::uint32_t boxes = 20;
    // |δ_k|² V/N⁶ / P(k) is exponentially distributed with mean 1: per bin of M independent modes the mean is 1 ± 1/√M.
    std::vector<double> sum(static_cast<std::size_t>(n), 0.0), modes(static_cast<std::size_t>(n), 0.0);
    double sigma8 = 0, expected8 = 0;
    for (std::uint32_t i = 0; i < boxes; ++i) {
        const auto delta = gaussian_spectrum(fft, p, box, {42, 7, i});
        REQUIRE(std::abs(delta[0]) == 0);
        for_modes(n, [&](index_t at, const std::array<index_t, 3>& m, int weight) {
            const double length = std::sqrt(static_cast<double>(m[0] * m[0] + m[1] * m[1] + m[2] * m[2]));
            if (length == 0) return;
            const double k = fundamental * length,
                         measured = static_cast<double>(std::norm(delta[at])) * volume / (cells * cells);
            const double w = top_hat(8 * k);
            sigma8 += weight * static_cast<double>(std::norm(delta[at])) / (cells * cells) * w * w;
            expected8 += weight * p(k) / volume * w * w;
            // Planes that hold a mode and its conjugate both are left out: their modes are not independent, or real.
            if (m[2] == 0 || 2 * m[2] == n) return;
            const auto bin = static_cast<std::size_t>(length);
            sum[bin] += measured / p(k);
            modes[bin] += 1;
        });
    }
    int bins = 0;
    double chi2 = 0;
    for (std::size_t bin = 1; bin < sum.size(); ++bin) {
        if (modes[bin] < 100) continue;
        const double z = (sum[bin] / modes[bin] - 1) * std::sqrt(modes[bin]);
        REQUIRE(std::abs(z) < 4);
        chi2 += z * z;
        ++bins;
    }
    REQUIRE(bins > 20);
    REQUIRE(chi2 < bins + 4 * std::sqrt(2.0 * bins));
    // σ_8 of the field: what the modes of this grid hold, and nearly all of the continuum's.
    REQUIRE(sigma8 == Approx(expected8).epsilon(0.04));
    REQUIRE(std::sqrt(expected8 / boxes) == Approx(0.8).epsilon(0.03));
}

TEST_CASE("gaussian field: real, of mean 0, normally distributed", "[cosmology]") {
    const index_t n = 32;
    const cube_transform fft(n);
    const power_spectrum p(cosmology{});
    auto delta = gaussian_spectrum(fft, p, 500, {3, 7, 0});
    double expected = 0;
    for_modes(n, [&](index_t at, const std::array<index_t, 3>&, int weight) {
        expected += weight * static_cast<double>(std::norm(delta[at]));
    });
    const auto field = field_of(fft, delta);
    double mean = 0, square = 0, third = 0, fourth = 0;
    const double cells = static_cast<double>(n * n * n);
    for (float v : field.span()) mean += static_cast<double>(v) / cells;
    for (float v : field.span()) square += std::pow(static_cast<double>(v) - mean, 2) / cells;
    for (float v : field.span()) {
        third += std::pow((static_cast<double>(v) - mean) / std::sqrt(square), 3) / cells;
        fourth += std::pow((static_cast<double>(v) - mean) / std::sqrt(square), 4) / cells;
    }
    REQUIRE(mean == Approx(0).margin(1e-6));
    REQUIRE(square == Approx(expected / (cells * cells)).epsilon(1e-4));  // Parseval
    REQUIRE(third == Approx(0).margin(0.15));
    REQUIRE(fourth == Approx(3).margin(0.25));
}

TEST_CASE("displacement: a plane wave against the analytical solution", "[cosmology]") {
    const index_t n = 24;
    const cube_transform fft(n);
    for (const std::array<index_t, 3>& m :
         {std::array<index_t, 3>{1, 0, 0}, {0, 2, 0}, {0, 0, 3}, {1, -2, 3}, {4, 4, 1}}) {
        const double amplitude = 0.3;
        tensor<float> wave({n, n, n});
        const auto phase = [&](index_t i) {
            const double x = static_cast<double>(i / (n * n)), y = static_cast<double>(i / n % n),
                         z = static_cast<double>(i % n);
            return 2 * std::numbers::pi / static_cast<double>(n) *
                   (static_cast<double>(m[0]) * x + static_cast<double>(m[1]) * y + static_cast<double>(m[2]) * z);
        };
        for (index_t i = 0; i < wave.size(); ++i) wave[i] = static_cast<float>(amplitude * std::cos(phase(i)));
        tensor<complex> delta(fft.spectrum_shape());
        fft.forward(wave, delta);
        // δ = A cos(k·q) = −∇·Ψ has Ψ = −A k/k² sin(k·q), lengths in cells: k = 2π m/n.
        const double m2 = static_cast<double>(m[0] * m[0] + m[1] * m[1] + m[2] * m[2]);
        for (int axis = 0; axis < 3; ++axis) {
            const auto psi = displacement(fft, delta, axis);
            const double factor = -amplitude * static_cast<double>(m[static_cast<std::size_t>(axis)]) / m2 *
                                  static_cast<double>(n) / (2 * std::numbers::pi);
            for (index_t i = 0; i < psi.size(); ++i)
                REQUIRE(psi[i] == Approx(factor * std::sin(phase(i))).margin(2e-6));
        }
    }
}

TEST_CASE("displacement: without curl, and its divergence is minus the overdensity", "[cosmology]") {
    const index_t n = 16;
    const cube_transform fft(n);
    const auto delta = gaussian_spectrum(fft, power_spectrum(cosmology{}), 200, {3, 7, 1});
    std::array<tensor<complex>, 3> psi;
    for (int axis = 0; axis < 3; ++axis) {
        auto component = displacement(fft, delta, axis);
        psi[static_cast<std::size_t>(axis)] = tensor<complex>(fft.spectrum_shape());
        fft.forward(component, psi[static_cast<std::size_t>(axis)]);
    }
    const float unit = static_cast<float>(2 * std::numbers::pi / static_cast<double>(n));
    for_modes(n, [&](index_t at, const std::array<index_t, 3>& m, int) {
        if (at_nyquist(m, n)) return;
        const float scale = std::abs(delta[at]) + 1e-3f;
        for (std::size_t a = 0; a < 3; ++a) {
            const std::size_t b = (a + 1) % 3;
            REQUIRE(std::abs(psi[a][at] * static_cast<float>(m[b]) - psi[b][at] * static_cast<float>(m[a])) * unit <
                    1e-3f * scale);
        }
        const complex divergence =
            complex(0, unit) * (psi[0][at] * static_cast<float>(m[0]) + psi[1][at] * static_cast<float>(m[1]) +
                                psi[2][at] * static_cast<float>(m[2]));
        REQUIRE(std::abs(divergence + delta[at]) < 1e-3f * scale);
    });
}

TEST_CASE("cloud in cell: against the definition, across the edges of the box", "[cosmology]") {
    const index_t n = 5;
    const random_stream random{1, 2, 3};
    for (double reach : {0.0, 0.4, 3.0, 40.0}) {
        std::array<tensor<float>, 3> psi{zeros(n), zeros(n), zeros(n)};
        std::vector<double> positions;
        for (index_t i = 0; i < n * n * n; ++i)
            for (std::size_t a = 0; a < 3; ++a) {
                const index_t q = a == 0 ? i / (n * n) : a == 1 ? i / n % n : i % n;
                psi[a][i] = static_cast<float>(reach * random.normal(static_cast<std::uint64_t>(3 * i) + a));
                positions.push_back(static_cast<double>(q) + static_cast<double>(psi[a][i]));
            }
        const auto density = cloud_in_cell(psi);
        const auto expected = oracle::cloud_in_cell(positions, static_cast<int>(n));
        for (index_t i = 0; i < density.size(); ++i)
            REQUIRE(density[i] == Approx(expected[static_cast<std::size_t>(i)]).margin(1e-4));
    }
}

TEST_CASE("cloud in cell: mass is conserved, a shift of everything changes nothing", "[cosmology]") {
    const index_t n = 32;
    for (float shift : {0.0f, 0.25f, -7.5f, 31.99f}) {
        std::array<tensor<float>, 3> psi{zeros(n), zeros(n), zeros(n)};
        for (auto& component : psi) std::fill(component.span().begin(), component.span().end(), shift);
        const auto density = cloud_in_cell(psi);
        for (float value : density.span()) REQUIRE(value == Approx(1).epsilon(1e-4));
    }
    const cube_transform fft(n);
    const power_spectrum p(cosmology{});
    for (std::uint32_t i = 0; i < 5; ++i) {
        const auto density = zeldovich_density(fft, p, 128, {9, 7, i});
        double mass = 0;
        for (float value : density.span()) {
            REQUIRE(value >= 0);
            mass += static_cast<double>(value);
        }
        REQUIRE(mass == Approx(static_cast<double>(n * n * n)).epsilon(1e-6));
    }
}

TEST_CASE("zel'dovich: large scales keep the linear power", "[cosmology]") {
    const index_t n = 32;
    const double box = 1000;
    const cube_transform fft(n);
    const power_spectrum p(cosmology{});
    double linear = 0, evolved = 0;
    for (std::uint32_t i = 0; i < 6; ++i) {
        const auto delta = gaussian_spectrum(fft, p, box, {9, 7, i});
        auto density = zeldovich_density(fft, p, box, {9, 7, i});
        tensor<complex> spectrum(fft.spectrum_shape());
        fft.forward(density, spectrum);
        for_modes(n, [&](index_t at, const std::array<index_t, 3>& m, int weight) {
            const index_t m2 = m[0] * m[0] + m[1] * m[1] + m[2] * m[2];
            if (m2 == 0 || m2 > 9) return;
            linear += weight * static_cast<double>(std::norm(delta[at]));
            evolved += weight * static_cast<double>(std::norm(spectrum[at]));
        });
    }
    REQUIRE(evolved / linear == Approx(1).epsilon(0.06));
}

}  // namespace cairn::test
