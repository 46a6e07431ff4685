#pragma once
// The linear power spectrum of matter today, normalised to σ_8. Lengths in Mpc/h, wave numbers in h/Mpc.
//   P(k) = A k^{n_s} T(k)²,   A such that σ_R = σ_8 for R = 8 Mpc/h
//   σ_R² = ∫ dln k  k³ P(k) / (2π²) · W(kR)²,   W(x) = 3 (sin x − x cos x) / x³
// T is the shape of Eisenstein and Hu 1998 (ApJ 496, 605) without acoustic wiggles, equations 26 and 28 to 31:
//   s = 44.5 ln(9.83 / Ω_m h²) / √(1 + 10 (Ω_b h²)^{3/4})  Mpc
//   α = 1 − 0.328 ln(431 Ω_m h²) Ω_b/Ω_m + 0.38 ln(22.3 Ω_m h²) (Ω_b/Ω_m)²
//   Γ = Ω_m h [α + (1 − α) / (1 + (0.43 k s)⁴)],   q = k Θ² / Γ,   Θ = T_CMB / 2.7 K
//   T = L / (L + C q²),   L = ln(2e + 1.8 q),   C = 14.2 + 731 / (1 + 62.5 q)

#include <cairn/core/error.hpp>

#include <cmath>
#include <numbers>

namespace cairn {

/// The parameters of a flat universe that the spectrum depends on.
struct cosmology {
    double omega_m = 0.3;    // matter density
    double sigma_8 = 0.8;    // rms linear overdensity in spheres of 8 Mpc/h
    double n_s = 0.96;       // spectral index of the primordial fluctuations
    double h = 0.67;         // Hubble constant / (100 km/s/Mpc)
    double omega_b = 0.049;  // baryon density
};

/// Linear growth D(z) / D(0) of fluctuations in a flat universe of matter and a cosmological constant:
///   D(a) ∝ H(a) ∫₀ᵃ da' / (a' H(a'))³     (Heath 1977), by the midpoint rule in a^(5/2), where the integrand is smooth
inline double growth_factor(const cosmology& c, double z) {
    const auto hubble = [&](double a) { return std::sqrt(c.omega_m / (a * a * a) + 1 - c.omega_m); };
    const auto growth = [&](double a) {
        constexpr int steps = 256;
        const double width = std::pow(a, 2.5) / steps;
        double sum = 0;
        for (int i = 0; i < steps; ++i) {
            const double at = std::pow((i + 0.5) * width, 0.4);
            sum += width / (2.5 * std::pow(at, 1.5) * std::pow(at * hubble(at), 3));
        }
        return hubble(a) * sum;
    };
    return growth(1 / (1 + z)) / growth(1);
}

/// Fourier transform of a ball of radius R at x = kR; 1 at 0.
inline double top_hat(double x) {
    if (x < 0.05) return 1 - x * x / 10 + x * x * x * x / 280;  // the formula below loses digits there
    return 3 * (std::sin(x) - x * std::cos(x)) / (x * x * x);
}

class power_spectrum {
public:
    /// Throws unless all parameters are positive and Ω_b < Ω_m.
    explicit power_spectrum(const cosmology& c) : c_(c) {
        require(c.omega_m > 0 && c.sigma_8 > 0 && c.h > 0 && c.omega_b > 0 && c.omega_b < c.omega_m,
                "power_spectrum: impossible cosmology: Omega_m ", c.omega_m, ", Omega_b ", c.omega_b, ", h ", c.h,
                ", sigma_8 ", c.sigma_8);
        const double matter = c.omega_m * c.h * c.h, baryons = c.omega_b * c.h * c.h, ratio = c.omega_b / c.omega_m;
        sound_ = 44.5 * std::log(9.83 / matter) / std::sqrt(1 + 10 * std::pow(baryons, 0.75)) * c.h;
        alpha_ = 1 - 0.328 * std::log(431 * matter) * ratio + 0.38 * std::log(22.3 * matter) * ratio * ratio;
        const double unit = sigma(8);
        amplitude_ = c.sigma_8 * c.sigma_8 / (unit * unit);
    }

    /// T(k), 1 for k → 0.
    double transfer(double k) const {
        constexpr double theta = 2.7255 / 2.7;
        const double ks = 0.43 * k * sound_;
        const double gamma = c_.omega_m * c_.h * (alpha_ + (1 - alpha_) / (1 + ks * ks * ks * ks));
        const double q = k * theta * theta / gamma;
        const double l = std::log(2 * std::numbers::e + 1.8 * q), c = 14.2 + 731 / (1 + 62.5 * q);
        return l / (l + c * q * q);
    }

    /// P(k) in (Mpc/h)³.
    double operator()(double k) const {
        const double t = transfer(k);
        return amplitude_ * std::pow(k, c_.n_s) * t * t;
    }

    /// Rms of the linear field in balls of `radius` Mpc/h: the integral over ln k by the trapezoidal rule. Relative
    /// error below 1e-4.
    double sigma(double radius) const {
        constexpr int steps = 600;
        const double low = std::log(1e-5 / radius * 8), high = std::log(30.0 / radius * 8);
        const double d = (high - low) / steps;
        double sum = 0;
        for (int i = 0; i <= steps; ++i) {
            const double k = std::exp(low + i * d), w = top_hat(k * radius);
            sum += (*this)(k)*k * k * k * w * w * (i == 0 || i == steps ? 0.5 : 1.0);
        }
        return std::sqrt(sum * d / (2 * std::numbers::pi * std::numbers::pi));
    }

    const cosmology& parameters() const { return c_; }

private:
    cosmology c_;
    double sound_ = 0;  // Mpc/h
    double alpha_ = 0;
    double amplitude_ = 1;
};

}  // namespace cairn
