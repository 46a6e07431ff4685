// Convolutions of drawn geometries: every algorithm that may be chosen, in all phases, in float and in bfloat16, equals
// plain loops, between pages that must not be touched. A faulty kernel may crash or hang, so each batch runs in a
// process of its own. CAIRN_GEOMETRIES=N in the environment draws N instead of 30.
#include "catch.hpp"
#include "device/cpu/kernel_numbers.hpp"
#include "device/guarded_buffer.hpp"
#include "oracle/conv.hpp"
#include "state/temporary_folder.hpp"

#include <cairn/core/environment.hpp>
#include <cairn/device/cpu/conv.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace {

using cairn::conv_geometry;
using cairn::conv_phase;
using cairn::index_t;
using kernel_tests::guarded_buffer;

constexpr conv_phase phases[] = {conv_phase::forward, conv_phase::backward_input, conv_phase::backward_weight};

// Those that oneDNN 2.6 was wrong on: AVX-512 weight gradients that leave their operands, of float and bfloat16 (deep)
// and of bfloat16 alone (padded, wide), a depth that is padding alone, and, without AVX-512, a strided 1 × 1 weight
// gradient of few channels.
std::vector<conv_geometry> once_wrong() {
    conv_geometry deep, padded, wide, flat, narrow;
    deep.n = 4, deep.c_in = 16, deep.c_out = 32;
    deep.in = {6, 16, 16}, deep.kernel = {7, 3, 3}, deep.stride = {2, 1, 1}, deep.pad = {3, 1, 1};
    padded.n = 2, padded.c_in = 1, padded.c_out = 16;
    padded.in = {2, 7, 4}, padded.kernel = {2, 2, 4}, padded.stride = {2, 2, 1}, padded.pad = {1, 0, 3};
    wide.c_in = 1, wide.c_out = 16;
    wide.in = {1, 1, 2}, wide.kernel = {1, 1, 2}, wide.stride = {1, 1, 4};
    flat.n = 1, flat.c_in = 8, flat.c_out = 8;
    flat.in = {1, 8, 8}, flat.kernel = {1, 3, 3}, flat.stride = {3, 1, 1}, flat.pad = {1, 1, 1};
    narrow.c_in = 4, narrow.c_out = 8;
    narrow.in = {1, 12, 18}, narrow.stride = {1, 4, 1};
    return {deep.with_output(), padded.with_output(), wide.with_output(), narrow.with_output(), flat.with_output()};
}

// Geometry number i: first those above, then 1 to 3 dimensions, few channels often, padding up to the kernel's reach
// and beyond the stride.
conv_geometry drawn(index_t i) {
    static const std::vector<conv_geometry> first = once_wrong();
    if (i < std::ssize(first)) return first[static_cast<std::size_t>(i)];
    const cairn::random_stream random{2606, static_cast<std::uint32_t>(i), 0};
    std::uint64_t at = 0;
    const auto draw = [&](index_t low, index_t high) {
        return low + static_cast<index_t>(random.below(static_cast<std::uint64_t>(high - low + 1), at++));
    };
    const auto channels = [&] {
        constexpr index_t of[] = {1, 2, 3, 4, 5, 7, 8, 8, 12, 16, 16, 16, 17, 24, 32, 32};
        return of[draw(0, 15)];
    };
    conv_geometry g;
    g.n = draw(1, 4);
    g.groups = draw(0, 3) == 0 ? draw(2, 16) : 1;
    const bool depthwise = g.groups > 1 && draw(0, 2) == 0;
    g.c_in = g.groups * (depthwise ? 1 : g.groups > 1 ? draw(1, 9) : channels());
    g.c_out = g.groups * (depthwise ? 1 : g.groups > 1 ? draw(1, 9) : channels());
    const index_t dimensions = draw(1, 3);
    const bool dilated = draw(0, 3) == 0, pointwise = draw(0, 4) == 0;
    for (std::size_t axis = static_cast<std::size_t>(3 - dimensions); axis < 3; ++axis) {
        g.kernel[axis] = pointwise ? 1 : draw(1, dimensions == 3 ? 5 : 7);
        g.stride[axis] = draw(0, 1) ? 1 : draw(1, 4);
        g.dilation[axis] = dilated ? draw(1, 3) : 1;
        const index_t reach = g.dilation[axis] * (g.kernel[axis] - 1);
        g.pad[axis] = draw(0, std::max<index_t>(reach, 1));
        const index_t least = std::max<index_t>(1, reach + 1 - 2 * g.pad[axis]);
        g.in[axis] = least + draw(0, dimensions == 3 ? 8 : 20);
    }
    return g.with_output();
}

// Expected result: the plain loops' numbers, and the largest sum of the products' absolute values, which
// rounding grows with where a sum cancels.
struct plain_result {
    std::vector<float> values;
    double absolute = 0;
};

// The largest error beyond what rounding of one cancelled sum in float explains, relative to the largest value.
double error_of(const std::vector<float>& got, const plain_result& expected) {
    double worst = 0, scale = 1e-30;
    for (std::size_t i = 0; i < got.size(); ++i) {
        if (!std::isfinite(got[i])) return INFINITY;
        const double plain = static_cast<double>(expected.values[i]);
        worst = std::max(worst, std::abs(static_cast<double>(got[i]) - plain));
        scale = std::max(scale, std::abs(plain));
    }
    constexpr double rounding = std::numeric_limits<float>::epsilon();
    return worst <= rounding * expected.absolute ? 0 : worst / scale;
}

// The fault of one algorithm on operands of T and a result of R; "" for none.
template <class T, class R>
std::string fault(cairn::conv_detail::algorithm a, conv_phase phase, const conv_geometry& g,
                  const std::vector<float>& first, const std::vector<float>& second, const std::vector<float>* bias,
                  const std::vector<float>& before, const plain_result& expected) {
    for (index_t n = 64; n <= 1 << 18; n *= 4) {  // scratch memory that is not cleared
        cairn::tensor<float> used({n}, cairn::memory_category::workspace);
        std::fill(used.data(), used.data() + n, 1e10f);
    }
    const guarded_buffer<T> x(first), w(second), b(bias ? *bias : std::vector<float>{});
    const guarded_buffer<R> result(before);
    cairn::conv_detail::run<T, R>(a, phase, g, {x.data(), w.data(), bias ? b.data() : nullptr, result.data()});
    const double error = error_of(result.values(), expected);
    const double tolerance = (a == cairn::conv_detail::algorithm::winograd4 ? 1e-4 : 2e-5) +
                             (std::is_same_v<R, cairn::bfloat16> ? 0x1p-8 : 0);  // rounded once
    if (!(error < tolerance)) return "error " + std::to_string(error);
    if (!result.intact()) return "writes beyond its result";
    if (!x.intact() || !w.intact() || x.values() != first || w.values() != second) return "writes to its input";
    return "";
}

template <class T>
std::string describe(cairn::conv_detail::algorithm a, conv_phase phase, const conv_geometry& g) {
    const bool direct = a == cairn::conv_detail::algorithm::direct;
    return cairn::concat(cairn::conv_detail::algorithm_names[static_cast<std::size_t>(a)], ' ', cairn::format_name<T>,
                         ' ', direct ? cairn::onednn::convolution_kernel<T>(g, phase) + ' ' : "", cairn::name_of(phase),
                         ' ', g.to_string());
}

// All algorithms and phases of geometry i in T: "fault" lines, and before each of them runs an "at" line.
template <class T>
void try_all(index_t i, std::ostream& out) {
    using cairn::conv_detail::algorithm;
    const conv_geometry g = drawn(i);
    cairn::set_threads(1 + static_cast<int>(i % 2));
    const auto numbers = [](index_t n, std::uint32_t stream) {  // that T has
        std::vector<float> all = kernel_tests::draw<float>(n, stream);
        for (float& f : all) f = static_cast<float>(static_cast<T>(f));
        return all;
    };
    const auto x = numbers(g.x_elements(), 1), w = numbers(g.w_elements(), 2), dy = numbers(g.y_elements(), 3),
               b = numbers(g.c_out, 4);
    const auto plain = [&](conv_phase phase, const float* bias, auto&& operand) {  // operand: of each array's numbers
        const auto of = [&](const std::vector<float>& v) {
            std::vector<float> all(v);
            for (float& f : all) f = operand(f);
            return all;
        };
        const std::vector<float> xs = of(x), ws = of(w), dys = of(dy);
        if (phase == conv_phase::forward) {
            std::vector<float> y(dy.size());
            oracle::conv_forward<float>(g, xs.data(), ws.data(), bias, y.data());
            return y;
        }
        if (phase == conv_phase::backward_input) {
            std::vector<float> dx(x.size());
            oracle::conv_backward_input(g, dys.data(), ws.data(), dx.data());
            return dx;
        }
        std::vector<float> dw(w.size());
        oracle::conv_backward_weight<float>(g, xs.data(), dys.data(), dw.data(), nullptr);
        for (std::size_t k = 0; k < w.size(); ++k) dw[k] += ws[k];  // added to what is there
        return dw;
    };
    const auto result_of = [&](conv_phase phase, const float* bias = nullptr) {
        const auto absolute = plain(phase, nullptr, [](float f) { return std::abs(f); });
        return plain_result{plain(phase, bias, [](float f) { return f; }),
                            static_cast<double>(*std::ranges::max_element(absolute))};
    };
    const plain_result y = result_of(conv_phase::forward), y_with_bias = result_of(conv_phase::forward, b.data()),
                       dx = result_of(conv_phase::backward_input), dw = result_of(conv_phase::backward_weight);
    const std::vector<float> no_y(dy.size(), NAN), no_dx(x.size(), NAN);

    for (const conv_phase phase : phases)
        for (const algorithm a :
             {algorithm::direct, algorithm::winograd4, algorithm::winograd2, algorithm::tiled, algorithm::im2col}) {
            if (!cairn::conv_detail::applies<T>(a, g, phase)) continue;
            out << "at " << i << ' ' << describe<T>(a, phase, g) << std::endl;
            const auto run = [&](const std::vector<float>* bias) {
                if (phase == conv_phase::forward)
                    return fault<T, T>(a, phase, g, x, w, bias, no_y, bias ? y_with_bias : y);
                return phase == conv_phase::backward_input ? fault<T, T>(a, phase, g, dy, w, nullptr, no_dx, dx)
                                                           : fault<T, float>(a, phase, g, x, dy, nullptr, w, dw);
            };
            std::string wrong = run(nullptr);
            if (wrong.empty() && phase == conv_phase::forward) wrong = run(&b);
            if (!wrong.empty()) out << "fault " << describe<T>(a, phase, g) << ": " << wrong << std::endl;
        }
}

// A process of this program that does geometries [begin, end) and says in a file how far it came.
struct batch {
    temporary_folder folder;
    std::string path = folder / "report";

    // Its exit status; 0 where it came to the end.
    int run(index_t begin, index_t end) const {
        const pid_t child = fork();
        if (child == 0) {
            setenv("CAIRN_GEOMETRY_BATCH", cairn::concat(begin, ' ', end, ' ', path).c_str(), 1);
            const std::string log = path + ".log";
            if (!std::freopen(log.c_str(), "w", stdout) || dup2(STDOUT_FILENO, STDERR_FILENO) < 0) _exit(125);
            execl("/proc/self/exe", "cairn_test", "convolution: one batch of drawn geometries", nullptr);
            _exit(126);
        }
        int status = 0;
        waitpid(child, &status, 0);
        return status;
    }

    struct report {
        index_t begun = -1;
        std::string last, faults;
    };
    report read() const {
        report r;
        std::ifstream in(path);
        for (std::string word, rest; in >> word && std::getline(in, rest);)
            if (word == "at")
                r.begun = std::stoll(rest), r.last = rest;
            else
                r.faults += rest + '\n';
        return r;
    }

    // The end of what it printed: why it stopped, where a sanitizer stopped it.
    std::string printed() const {
        std::ifstream in(path + ".log");
        std::string text{std::istreambuf_iterator<char>(in), {}};
        return text.size() < 800 ? text : text.substr(text.size() - 800);
    }
};

// Faults of geometries [0, count), one line each.
std::string faults_of_drawn(index_t count) {
    const batch b;
    std::string all;
    for (index_t i = 0; i < count;) {
        const index_t end = std::min<index_t>(i + 250, count);
        const int status = b.run(i, end);
        const auto [begun, last, faults] = b.read();
        all += faults;
        if (begun < i) return cairn::concat(all, "no batch from ", i, ": status ", status, '\n');
        if (status != 0) all += cairn::concat(last, ": crashed or hung, status ", status, '\n', b.printed(), '\n');
        i = status == 0 ? end : begun + 1;
    }
    return all;
}

index_t asked_for(index_t usual) {
    return cairn::environment_number("CAIRN_GEOMETRIES", usual, index_t{1}, index_t{1} << 30, "geometries, at least 1");
}

}  // namespace

TEST_CASE("convolution: one batch of drawn geometries", "[.child]") {
    const char* text = std::getenv("CAIRN_GEOMETRY_BATCH");
    if (!text) return;  // nobody's child
    std::istringstream in(text);
    index_t begin = 0, end = 0;
    std::string path;
    in >> begin >> end >> path;
    std::ofstream out(path);
    cairn::autotune_cache::global().set_policy(cairn::autotune_policy::first);
    for (index_t i = begin; i < end; ++i) {
        alarm(60);
        try_all<float>(i, out);
        try_all<cairn::bfloat16>(i, out);
    }
}

#if CAIRN_HAS_ONEDNN
// What a processor without AMX can say of the kernel for it: it is not tried on the geometries that it is wrong on.
TEST_CASE("convolution: oneDNN's weight gradient by AMX is left out where padding meets padding", "[conv]") {
    const std::vector<conv_geometry> wrong = once_wrong();
    for (const char* kernel : {"jit:avx512_core_amx_bf16", "jit_bf16:avx512_core_bf16"}) {
        CHECK(cairn::onednn::detail::beyond_its_operands(wrong[1], conv_phase::backward_weight, kernel));
        CHECK(!cairn::onednn::detail::beyond_its_operands(wrong[1], conv_phase::forward, kernel));
        conv_geometry usual;
        usual.c_in = usual.c_out = 64, usual.in = {8, 28, 28}, usual.kernel = {3, 3, 3}, usual.pad = {1, 1, 1};
        CHECK(!cairn::onednn::detail::beyond_its_operands(usual.with_output(), conv_phase::backward_weight, kernel));
    }
}
#endif

TEST_CASE("convolution: every algorithm on drawn geometries", "[conv]") {
    const std::string faults = faults_of_drawn(asked_for(30));
    INFO(faults);
    CHECK(faults.empty());
}

TEST_CASE("convolution: every algorithm on 300 drawn geometries", "[.exhaustive]") {
    const std::string faults = faults_of_drawn(asked_for(300));
    INFO(faults);
    CHECK(faults.empty());
}
