#pragma once
// Matter in a periodic box, by the Zel'dovich approximation (A&A 5, 84, 1970).
//   white noise w(x) → w_k → δ_k = w_k √(P(k) N³/V)  Gaussian overdensity with spectrum P
//   Ψ_k = i k δ_k / k²,   δ = −∇·Ψ                   displacement, a gradient
//   x = q + Ψ(q)                                     one particle a cell
//   ρ(cell) += Π_axis (1 − |distance|)               cloud in cell: a particle shares itself among 8 cells
// The mean of ρ is 1. Grid (n, n, n) row-major, the axes called 0, 1, 2; box edge L in Mpc/h. Derivatives vanish at the
// Nyquist wave number, whose sign is undefined. Work for one volume is serial: run many volumes at once.

#include <cairn/core/random.hpp>
#include <cairn/data/fftw.hpp>
#include <cairn/data/power_spectrum.hpp>

#include <array>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

namespace cairn {

/// Signed wave number of bin i of n, in units of 2π/L.
inline index_t signed_frequency(index_t i, index_t n) { return i <= n / 2 ? i : i - n; }

/// Fourier transform (FFTW's convention) of a Gaussian overdensity field with spectrum P, the mean mode being 0.
inline tensor<std::complex<float>> gaussian_spectrum(const cube_transform& fft, const power_spectrum& p, double box,
                                                     random_stream random) {
    const index_t n = fft.edge(), cells = n * n * n;
    tensor<float> noise({n, n, n}, memory_category::data);
    for (index_t i = 0; i < cells; i += 4) {
        // Two Box–Muller pairs from one block of 128 bits.
        const auto bits = random.bits4(static_cast<std::uint64_t>(i / 4));
        for (std::size_t pair = 0; pair < 4; pair += 2) {
            const float radius = std::sqrt(-2.0f * std::log((static_cast<float>(bits[pair] >> 8) + 1.0f) * 0x1p-24f));
            const float angle = 2.0f * std::numbers::pi_v<float> * random_stream::to_unit(bits[pair + 1]);
            const index_t at = i + static_cast<index_t>(pair);
            if (at < cells) noise[at] = radius * std::cos(angle);
            if (at + 1 < cells) noise[at + 1] = radius * std::sin(angle);
        }
    }
    tensor<std::complex<float>> spectrum(fft.spectrum_shape(), memory_category::data);
    fft.forward(noise, spectrum);
    // The amplitude depends on the integer k² alone: a table of at most 3 (n/2)² + 1 values.
    const double fundamental = 2 * std::numbers::pi / box, volume = box * box * box;
    std::vector<float> amplitude(static_cast<std::size_t>(3 * (n / 2) * (n / 2) + 1), 0.0f);
    for (std::size_t k2 = 1; k2 < amplitude.size(); ++k2)
        amplitude[k2] = static_cast<float>(
            std::sqrt(p(fundamental * std::sqrt(static_cast<double>(k2))) * static_cast<double>(cells) / volume));
    std::complex<float>* mode = spectrum.data();
    for (index_t a = 0; a < n; ++a)
        for (index_t b = 0; b < n; ++b)
            for (index_t c = 0; c <= n / 2; ++c) {
                const index_t ka = signed_frequency(a, n), kb = signed_frequency(b, n);
                *mode++ *= amplitude[static_cast<std::size_t>(ka * ka + kb * kb + c * c)];
            }
    return spectrum;
}

/// The real field of a spectrum: δ(x) with δ_k as above. Overwrites the spectrum.
inline tensor<float> field_of(const cube_transform& fft, tensor<std::complex<float>>& spectrum) {
    const index_t n = fft.edge();
    tensor<float> field({n, n, n}, memory_category::data);
    fft.inverse(spectrum, field);
    const float factor = 1.0f / static_cast<float>(n * n * n);
    for (float& value : field.span()) value *= factor;
    return field;
}

/// Component `axis` of the displacement of an overdensity spectrum, in cells.
inline tensor<float> displacement(const cube_transform& fft, const tensor<std::complex<float>>& delta, int axis) {
    const index_t n = fft.edge();
    tensor<std::complex<float>> psi(fft.spectrum_shape(), memory_category::data);
    // Ψ = i k/k² δ = L/2π · i m/m² δ with integer m, and N/L cells a unit of length.
    const float factor = static_cast<float>(static_cast<double>(n) / (2 * std::numbers::pi));
    index_t at = 0;
    for (index_t a = 0; a < n; ++a)
        for (index_t b = 0; b < n; ++b)
            for (index_t c = 0; c <= n / 2; ++c, ++at) {
                const std::array<index_t, 3> m{signed_frequency(a, n), signed_frequency(b, n), c};
                const index_t m2 = m[0] * m[0] + m[1] * m[1] + m[2] * m[2], along = m[static_cast<std::size_t>(axis)];
                const float weight =
                    m2 == 0 || 2 * along == n ? 0.0f : factor * static_cast<float>(along) / static_cast<float>(m2);
                psi[at] = {-weight * delta[at].imag(), weight * delta[at].real()};
            }
    return field_of(fft, psi);
}

/// Density, in units of the mean, of one particle a cell displaced by psi[0], psi[1], psi[2] (in cells), cloud in cell.
inline tensor<float> cloud_in_cell(const std::array<tensor<float>, 3>& psi) {
    const index_t n = psi[0].extent(0);
    auto density = tensor<float>::zeros({n, n, n}, memory_category::data);
    // The lower cell, the upper one, and the upper one's share. Positions stay small multiples of n, so that float is
    // enough.
    struct share {
        index_t low, high;
        float upper;
    };
    const auto shares = [n](float position) {
        const float cell = std::floor(position);
        index_t low = static_cast<index_t>(cell) % n;
        low += low < 0 ? n : 0;
        return share{low, low + 1 == n ? 0 : low + 1, position - cell};
    };
    index_t at = 0;
    for (index_t a = 0; a < n; ++a)
        for (index_t b = 0; b < n; ++b)
            for (index_t c = 0; c < n; ++c, ++at) {
                const share u = shares(static_cast<float>(a) + psi[0][at]);
                const share v = shares(static_cast<float>(b) + psi[1][at]);
                const share w = shares(static_cast<float>(c) + psi[2][at]);
                const auto add = [&](index_t i, index_t j, float weight) {
                    float* row = density.data() + (i * n + j) * n;
                    row[w.low] += weight * (1 - w.upper);
                    row[w.high] += weight * w.upper;
                };
                add(u.low, v.low, (1 - u.upper) * (1 - v.upper));
                add(u.low, v.high, (1 - u.upper) * v.upper);
                add(u.high, v.low, u.upper * (1 - v.upper));
                add(u.high, v.high, u.upper * v.upper);
            }
    return density;
}

/// One box at several times: ρ/ρ_mean on the grid, of the universe of `p`. growth: of each time, how far particles have
/// moved relative to what P describes (growth_factor).
inline std::vector<tensor<float>> zeldovich_snapshots(const cube_transform& fft, const power_spectrum& p, double box,
                                                      random_stream random, std::span<const double> growth) {
    const auto delta = gaussian_spectrum(fft, p, box, random);
    const std::array<tensor<float>, 3> whole{displacement(fft, delta, 0), displacement(fft, delta, 1),
                                             displacement(fft, delta, 2)};
    std::vector<tensor<float>> snapshots;
    for (const double part : growth) {
        std::array<tensor<float>, 3> moved;
        for (std::size_t axis = 0; axis < 3; ++axis) {
            moved[axis] = whole[axis].clone(memory_category::data);
            for (float& value : moved[axis].span()) value *= static_cast<float>(part);
        }
        snapshots.push_back(cloud_in_cell(moved));
    }
    return snapshots;
}

/// One box today: ρ/ρ_mean on the grid, of the universe of `p`.
inline tensor<float> zeldovich_density(const cube_transform& fft, const power_spectrum& p, double box,
                                       random_stream random) {
    constexpr std::array<double, 1> today{1};
    return std::move(zeldovich_snapshots(fft, p, box, random, today).front());
}

}  // namespace cairn
