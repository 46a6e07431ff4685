#pragma once
// Real Fourier transforms of a cube by FFTW, single precision. The only file that includes FFTW.
//   forward  F[k] = Σ_x f[x] exp(−2πi k·x / n)
//   inverse  f[x] = Σ_k F[k] exp(+2πi k·x / n)      no factor: inverse ∘ forward = n³
// Plans come from FFTW_ESTIMATE, which measures nothing: the same plan, hence the same bits, on every run of a machine.

#include <cairn/core/tensor.hpp>

#include <complex>
#include <memory>
#include <mutex>

#if !defined(CAIRN_HAS_FFTW) && __has_include(<fftw3.h>)
#define CAIRN_HAS_FFTW 1
#endif
#if CAIRN_HAS_FFTW
#include <fftw3.h>
#endif

namespace cairn {

#if CAIRN_HAS_FFTW

/// Plans for one size. Transforms may run on many threads at once.
class cube_transform {
public:
    /// n³ real values, n² (n/2 + 1) complex ones. Throws when n < 1 or FFTW cannot plan.
    explicit cube_transform(index_t n) : n_(n) {
        require(n >= 1 && n <= 2048, "fftw: a cube of edge ", n, "; 1 to 2048 are possible");
        const std::scoped_lock lock(planner());
        tensor<float> real({n, n, n}, memory_category::workspace);
        tensor<std::complex<float>> spectrum(spectrum_shape(), memory_category::workspace);
        const int edge = static_cast<int>(n);
        forward_.reset(fftwf_plan_dft_r2c_3d(edge, edge, edge, real.data(), raw(spectrum.data()), FFTW_ESTIMATE));
        inverse_.reset(fftwf_plan_dft_c2r_3d(edge, edge, edge, raw(spectrum.data()), real.data(), FFTW_ESTIMATE));
        require(forward_ && inverse_, "fftw: no plan for a cube of edge ", n);
    }

    index_t edge() const { return n_; }
    shape spectrum_shape() const { return {n_, n_, n_ / 2 + 1}; }

    /// Tensors made by the caller have the alignment that the plan assumes. The input is overwritten.
    void forward(tensor<float>& real, tensor<std::complex<float>>& spectrum) const {
        check(real, spectrum);
        fftwf_execute_dft_r2c(forward_.get(), real.data(), raw(spectrum.data()));
    }
    void inverse(tensor<std::complex<float>>& spectrum, tensor<float>& real) const {
        check(real, spectrum);
        fftwf_execute_dft_c2r(inverse_.get(), raw(spectrum.data()), real.data());
    }

private:
    struct destroy {
        void operator()(fftwf_plan p) const {
            const std::scoped_lock lock(planner());
            fftwf_destroy_plan(p);
        }
    };
    using plan = std::unique_ptr<std::remove_pointer_t<fftwf_plan>, destroy>;

    // FFTW's planner is the one part of it that is not thread safe.
    static std::mutex& planner() {
        static std::mutex m;
        return m;
    }
    static fftwf_complex* raw(std::complex<float>* p) { return reinterpret_cast<fftwf_complex*>(p); }
    void check(const tensor<float>& real, const tensor<std::complex<float>>& spectrum) const {
        require_shape(real, {n_, n_, n_}, "fftw: real field");
        require_shape(spectrum, spectrum_shape(), "fftw: spectrum");
    }

    index_t n_;
    plan forward_, inverse_;
};

#else

class cube_transform {
public:
    explicit cube_transform(index_t) {
        fail("fftw: Cairn was built without FFTW; install libfftw3-dev and build again");
    }
    index_t edge() const { return 0; }
    shape spectrum_shape() const { return {}; }
    void forward(tensor<float>&, tensor<std::complex<float>>&) const {}
    void inverse(tensor<std::complex<float>>&, tensor<float>&) const {}
};

#endif

}  // namespace cairn
