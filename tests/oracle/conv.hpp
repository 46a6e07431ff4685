#pragma once
// Convolution by plain loops: the definition that every convolution kernel is compared with.
// Sums are in double, whatever T is; results overwrite what was there. Nothing here is fast or shared with the library.

#include <cairn/device/conv_geometry.hpp>
#include <vector>

namespace oracle {

/// Calls visit(x_offset, w_offset, y_offset) for every product x * w that adds to y; offsets count elements.
template <class Visit>
void conv_im2col_gemm(const cairn::conv_geometry& g, Visit visit) {
    using cairn::index_t;
    const index_t group_in = g.c_in / g.groups, group_out = g.c_out / g.groups;
    for (index_t n = 0; n < g.n; ++n)
        for (index_t od = 0; od < g.out[0]; ++od)
            for (index_t oh = 0; oh < g.out[1]; ++oh)
                for (index_t ow = 0; ow < g.out[2]; ++ow)
                    for (index_t kd = 0; kd < g.kernel[0]; ++kd)
                        for (index_t kh = 0; kh < g.kernel[1]; ++kh)
                            for (index_t kw = 0; kw < g.kernel[2]; ++kw) {
                                const index_t id = od * g.stride[0] + kd * g.dilation[0] - g.pad[0];
                                const index_t ih = oh * g.stride[1] + kh * g.dilation[1] - g.pad[1];
                                const index_t iw = ow * g.stride[2] + kw * g.dilation[2] - g.pad[2];
                                if (id < 0 || id >= g.in[0]) continue;
                                if (ih < 0 || ih >= g.in[1]) continue;
                                if (iw < 0 || iw >= g.in[2]) continue;
                                const index_t x_point = ((n * g.in[0] + id) * g.in[1] + ih) * g.in[2] + iw;
                                const index_t y_point = ((n * g.out[0] + od) * g.out[1] + oh) * g.out[2] + ow;
                                const index_t k_point = (kd * g.kernel[1] + kh) * g.kernel[2] + kw;
                                for (index_t co = 0; co < g.c_out; ++co)
                                    for (index_t ci = 0; ci < group_in; ++ci)
                                        visit(x_point * g.c_in + co / group_out * group_in + ci,
                                              (co * g.kernel_points() + k_point) * group_in + ci,
                                              y_point * g.c_out + co);
                            }
}

/// y (n, out..., c_out) = x * w + bias. `bias` (c_out) may be null.
template <class T>
void conv_forward(const cairn::conv_geometry& g, const T* x, const T* w, const T* bias, T* y) {
    std::vector<double> sum(static_cast<std::size_t>(g.y_elements()));
    conv_im2col_gemm(g, [&, s = sum.data()](auto i, auto k, auto o) {
        s[o] += static_cast<double>(x[i]) * static_cast<double>(w[k]);
    });
    for (std::size_t o = 0; o < sum.size(); ++o) {
        const double b = bias ? static_cast<double>(bias[o % static_cast<std::size_t>(g.c_out)]) : 0.0;
        y[o] = static_cast<T>(sum[o] + b);
    }
}

/// dx (n, in..., c_in): the gradient of <dy, conv(x, w)> with respect to x.
template <class T>
void conv_backward_input(const cairn::conv_geometry& g, const T* dy, const T* w, T* dx) {
    std::vector<double> sum(static_cast<std::size_t>(g.x_elements()));
    conv_im2col_gemm(g, [&, s = sum.data()](auto i, auto k, auto o) {
        s[i] += static_cast<double>(dy[o]) * static_cast<double>(w[k]);
    });
    for (std::size_t i = 0; i < sum.size(); ++i) dx[i] = static_cast<T>(sum[i]);
}

/// dw (c_out, kernel..., c_in / groups) and db (c_out): the gradient of <dy, conv(x, w) + bias> with respect to w and
/// bias. `db` may be null.
template <class T>
void conv_backward_weight(const cairn::conv_geometry& g, const T* x, const T* dy, T* dw, T* db) {
    std::vector<double> sum(static_cast<std::size_t>(g.w_elements()));
    conv_im2col_gemm(g, [&, s = sum.data()](auto i, auto k, auto o) {
        s[k] += static_cast<double>(x[i]) * static_cast<double>(dy[o]);
    });
    for (std::size_t k = 0; k < sum.size(); ++k) dw[k] = static_cast<T>(sum[k]);
    if (!db) return;
    for (cairn::index_t co = 0; co < g.c_out; ++co) {
        double total = 0;
        for (cairn::index_t o = co; o < g.y_elements(); o += g.c_out) total += static_cast<double>(dy[o]);
        db[co] = static_cast<T>(total);
    }
}

}  // namespace oracle
