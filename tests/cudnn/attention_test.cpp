// The graphs of attention that cuDNN is given, on an interpreter of them: they obey the laws of attention, and what is
// chosen among them and our own kernels is what may be chosen.

#include "cudnn/emulated_cudnn.hpp"
#include "device/cuda/attention_laws.hpp"
#include "nccl/streamed_gpu.hpp"

#include <cairn/device/cuda/attention_plans.hpp>

namespace cairn {

// As device/cuda/attention_plans.hpp has them for cuda, whose kernels only nvcc compiles.
template <class T>
void attention_forward(streamed_gpu, const attention_geometry& g, const T* q, const T* k, const T* v, T* y,
                       std::type_identity_t<grid::sum_type<T>>* lse) {
    detail::attention_forward_by_choice<streamed_gpu>(g, q, k, v, y, lse);
}
template <class T>
void attention_backward(streamed_gpu, const attention_geometry& g, const T* q, const T* k, const T* v, const T* y,
                        const std::type_identity_t<grid::sum_type<T>>* lse, const T* dy, T* dq, T* dk, T* dv) {
    detail::attention_backward_by_choice<streamed_gpu>(g, q, k, v, y, lse, dy, dq, dk, dv);
}

namespace {

/// The choice for attention, as long as it lives.
struct forced {
    explicit forced(const char* name) { autotune_cache::global().force("attention_gpu", name); }
    ~forced() { autotune_cache::global().force("attention_gpu", ""); }
};

struct with_engines {
    explicit with_engines(std::vector<emulated::cudnn_engine> engines) {
        emulated::cudnn_engines() = std::move(engines);
        autotune_cache::global().clear();
    }
    ~with_engines() {
        emulated::cudnn_engines() = {{}};
        autotune_cache::global().clear();
    }
};

template <class T>
void same_as_host(const attention_geometry& g, double tolerance) {
    attention_laws::same<T, float, streamed_gpu>(g, tolerance);
}

template <class T>
constexpr double tolerance_of = std::is_same_v<T, bfloat16> ? 0.02 : 0.003;

constexpr attention_geometry small{.batch = 2, .length = 33, .heads = 3, .head_dim = 16};

attention_geometry causal(attention_geometry g) {
    g.causal = true;
    return g;
}

/// Names and choices of the registry that begin so.
std::vector<std::string> chosen(const std::string& begin) {
    std::vector<std::string> all;
    for (const auto& [key, entry] : autotune_cache::global().entries())
        if (key.starts_with(begin)) all.push_back(entry.choice);
    return all;
}

}  // namespace

TEMPLATE_TEST_CASE("cuDNN attention, emulated: results are the host's", "[cudnn][attention]", bfloat16, float16) {
    using T = TestType;
    const forced cudnn("cudnn0");
    const std::size_t before = emulated::cudnn_runs().size();
    std::size_t calls = 0;
    attention_laws::library_shapes<streamed_gpu, T>();
    calls += 2 * 3 * 4 +
             2 * 2 * 2;  // shapes; forward and backward, twice; of length 1 only forward, of a negative factor none
    for (const bool is_causal : {false, true})
        for (const index_t head_dim : {24, 104}) {
            same_as_host<T>({.batch = 2, .length = 70, .heads = 2, .head_dim = head_dim, .causal = is_causal},
                            tolerance_of<T>);
            calls += 4;
        }
    CHECK(emulated::cudnn_runs().size() == before + calls);
}

TEST_CASE("cuDNN attention, emulated: what it is not made for runs on our own kernels", "[cudnn][attention]") {
    const forced cudnn("cudnn0");
    const std::size_t before = emulated::cudnn_runs().size();
    for (const auto& one : attention_laws::all<streamed_gpu>()) SECTION(one.name) {
            if (std::string(one.name).find("16") != std::string::npos) continue;
            one.check();
            CHECK(emulated::cudnn_runs().size() == before);
        }
    SECTION("sizes and lengths") {
        same_as_host<bfloat16>({.batch = 1, .length = 20, .heads = 2, .head_dim = 20}, 0.02);
        same_as_host<bfloat16>({.batch = 1, .length = 20, .heads = 1, .head_dim = 136}, 0.02);
        tensor<std::int32_t> lengths({2});
        lengths[0] = 33, lengths[1] = 7;
        attention_laws::same<bfloat16, float, streamed_gpu>(small, 0.02, lengths);
        CHECK(emulated::cudnn_runs().size() == before);
    }
    SECTION("backward of odd lengths by versions that have it wrong") {
        emulated::cudnn_version() = 91500;
        same_as_host<bfloat16>(small, 0.02);
        CHECK(emulated::cudnn_runs().size() == before + 2);  // forward
        same_as_host<bfloat16>({.batch = 1, .length = 128, .heads = 1, .head_dim = 8}, 0.02);
        CHECK(emulated::cudnn_runs().size() == before + 6);
        emulated::cudnn_version() = 91001;
        same_as_host<bfloat16>(small, 0.02);
        CHECK(emulated::cudnn_runs().size() == before + 6);
        emulated::cudnn_version() = 91900;
        same_as_host<bfloat16>({.batch = 1, .length = 192, .heads = 1, .head_dim = 8}, 0.02);
        CHECK(emulated::cudnn_runs().size() == before + 8);
        emulated::cudnn_version() = 92600;
        same_as_host<bfloat16>({.batch = 1, .length = 192, .heads = 1, .head_dim = 8}, 0.02);
        CHECK(emulated::cudnn_runs().size() == before + 12);
        emulated::cudnn_version() = 91900;
    }
    SECTION("addresses") {
        const auto host = attention_laws::converted<bfloat16>(attention_laws::drawn<float>({3 * 9 * 16 + 1}, 75));
        const auto x = tensor<bfloat16, streamed_gpu>::copy_of(host);
        tensor<bfloat16, streamed_gpu> y({9 * 16});
        const attention_geometry g{.batch = 1, .length = 9, .heads = 2, .head_dim = 8};
        attention_forward(streamed_gpu{}, g, x.data() + 1, x.data() + 145, x.data() + 289, y.data(), nullptr);
        streamed_gpu::wait();
        CHECK(emulated::cudnn_runs().size() == before);
    }
}

TEST_CASE("cuDNN attention, emulated: without logarithms as with them", "[cudnn][attention]") {
    const forced cudnn("cudnn0");
    for (const bool is_causal : {false, true}) {
        attention_geometry g = small;
        g.causal = is_causal;
        const shape s{g.batch, g.length, g.heads, g.head_dim};
        const auto at = [&](std::uint32_t stream) {
            return tensor<bfloat16, streamed_gpu>::copy_of(
                attention_laws::converted<bfloat16>(attention_laws::drawn<float>(s, stream)));
        };
        const auto q = at(1), k = at(2), v = at(3);
        tensor<bfloat16, streamed_gpu> y(s), z(s);
        tensor<float, streamed_gpu> lse({g.batch, g.heads, g.length});
        attention_forward(streamed_gpu{}, g, q.data(), k.data(), v.data(), y.data(), lse.data());
        attention_forward(streamed_gpu{}, g, q.data(), k.data(), v.data(), z.data(), nullptr);
        const auto first = y.on_host(), second = z.on_host();
        for (index_t i = 0; i < first.size(); ++i) REQUIRE(float{first[i]} == float{second[i]});
    }
}

TEST_CASE("cuDNN attention, emulated: plans that may not run do not", "[cudnn][attention]") {
    using emulated::cudnn_engine;
    const std::size_t before = emulated::cudnn_runs().size();
    SECTION("other bits every time") {
        const with_engines engines({cudnn_engine{{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}}, cudnn_engine{}});
        const forced cudnn("cudnn0");
        same_as_host<bfloat16>(causal(small), 0.02);
        const auto runs = emulated::cudnn_runs();
        CHECK(runs.size() == before + 4);
        for (std::size_t i = before; i < runs.size(); ++i) CHECK(runs[i] == 1);
    }
    SECTION("engines that cannot, or want too much memory; then our own kernels are what is left") {
        const with_engines engines(
            {cudnn_engine{.works = false}, cudnn_engine{.workspace = (std::int64_t{1} << 30) + (1 << 20)}});
        same_as_host<float16>(small, 0.003);
        CHECK(emulated::cudnn_runs().size() == before);
        CHECK(chosen("attention_gpu/") == std::vector<std::string>{"own", "own"});
    }
}

TEST_CASE("cuDNN attention, emulated: a plan may want the workspace of its problem, where that is left",
          "[cudnn][attention]") {
    // A GPT's backward of 32 sequences of 1,024: deterministic engines keep dS, 1.6 GB of it in float.
    const attention_geometry long_one{.batch = 32, .length = 1024, .heads = 12, .head_dim = 64};
    CHECK(detail::attention_plans<bfloat16, streamed_gpu>::most_workspace(long_one) >=
          index_t{32} * 12 * 1024 * 1024 * 4);
    memory_pool& memory = cuda::memory();
    const index_t limit = memory.limit(), wanted = index_t{8} << 20;
    for (const bool is_left : {true, false}) {
        const with_engines engines({emulated::cudnn_engine{.workspace = wanted}});
        memory.set_limit(memory.total().live + (is_left ? 2 * wanted : wanted / 2));
        same_as_host<bfloat16>(small, 0.02);
        memory.set_limit(limit);
        for (const auto& [key, entry] : autotune_cache::global().entries())
            if (key.starts_with("attention_gpu/")) CHECK(entry.seconds.size() == (is_left ? 2u : 0u));
    }
}

TEST_CASE("cuDNN attention, emulated: chosen by measurement, written down, and taken again", "[cudnn][attention]") {
    const with_engines engines({emulated::cudnn_engine{}});
    same_as_host<bfloat16>(small, 0.02);
    auto entries = autotune_cache::global().entries();
    std::vector<std::string> keys;
    for (const auto& [key, entry] : entries)
        if (key.starts_with("attention_gpu/")) {
            keys.push_back(key);
            REQUIRE(entry.seconds.size() == 2);
            CHECK(entry.seconds[0].first == "own");
            CHECK(entry.seconds[1].first == "cudnn0");
        }
    REQUIRE(keys.size() == 2);
    CHECK(keys[0].starts_with("attention_gpu/backward emulated cudnn 91900 bfloat16 b2 l33 h3x16"));
    for (const char* name : {"own", "cudnn0"}) {
        for (const auto& key : keys) autotune_cache::global().set(key, {.choice = name, .seconds = {}});
        const std::size_t before = emulated::cudnn_runs().size();
        same_as_host<bfloat16>(small, 0.02);
        CHECK(emulated::cudnn_runs().size() == before + (name == std::string("own") ? 0 : 4));
    }
}

}  // namespace cairn
