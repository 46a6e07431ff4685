#include "layer_laws.hpp"
#include "oracle/transformer_xl.hpp"

#include <cairn/models/transformer_xl.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>

namespace cairn {
using laws::make_case;

namespace {

std::vector<double> values(const tensor<double>& t) { return {t.data(), t.data() + t.size()}; }

double largest_difference(const tensor<double>& a, const std::vector<double>& b) {
    REQUIRE(a.size() == std::ssize(b));
    double most = 0;
    for (index_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[std::size_t(i)]));
    return most;
}

}  // namespace

TEST_CASE("relative attention: laws", "[laws][transformer-xl]") {
    auto c = make_case("relative attention", {2, 5, 6},
                       [](auto t) { return relative_attention<decltype(t)>({.embedding_dim = 6, .heads = 3}); });
    c.depth = 3;
    laws::check_laws(c);
    auto longer = make_case("relative attention, more rows than a strip", {1, 33, 8},
                            [](auto t) { return relative_attention<decltype(t)>({.embedding_dim = 8, .heads = 2}); });
    longer.depth = 3;
    laws::check_laws(longer);
    CHECK_THROWS_WITH(relative_attention<float>({.embedding_dim = 10, .heads = 4}),
                      Catch::Contains("4 heads for width 10"));
}

TEST_CASE("transformer-xl: laws", "[laws][transformer-xl]") {
    auto c = make_case("transformer-xl", {2, 5}, [](auto t) {
        return transformer_xl<decltype(t)>(
            {.vocab_size = 7, .embedding_dim = 8, .heads = 2, .blocks = 2, .dropout = 0.1});
    });
    c.tokens = 7;
    c.smooth = false;
    c.depth = 20;
    c.wrong = std::nullopt;
    laws::check_laws(c);
}

TEST_CASE("relative attention: results and gradients are those of plain loops, with a memory", "[transformer-xl]") {
    autotune_cache::global().set_policy(autotune_policy::first);
    // L, M, positions known, heads, size of each
    const index_t cases[][5] = {{5, 0, 0, 2, 3},  {7, 3, 3, 1, 4},    {4, 9, 9, 2, 2},   {6, 8, 5, 3, 2},
                                {3, 5, 0, 1, 10}, {31, 20, 20, 2, 4}, {40, 70, 33, 1, 6}};
    for (const auto& [length, memory, known, heads, dim] : cases) {
        CAPTURE(length, memory, known, heads, dim);
        constexpr index_t batch = 2;
        const index_t width = heads * dim;
        laws::bench<double> b(any_layer<double>(relative_attention<double>({.embedding_dim = width, .heads = heads})));
        stream_memory<double> before(memory, {3, batch});
        tensor<double>& m = before.of("", width);
        const auto old = laws::numbers<double>(m.shape(), 7);
        for (index_t i = 0; i < m.size(); ++i)
            m[i] = i / width % memory < memory - known ? 0 : old[i];  // empty positions are zero
        before.known() = known;
        b.p.memory = &before;
        b.p.random.first_sample = 3;
        const auto x = laws::numbers<double>({batch, length, width}, 1), dy = laws::numbers<double>(x.shape(), 2);
        oracle::relative_attention_weights w;
        for (const auto& [name, p] : b.arena.parameters()) {
            const auto all = values(p->value);
            const auto half = all.begin() + std::ptrdiff_t(all.size() / 2);
            if (name == "q/weight") w.q = all;
            if (name == "kv/weight") w.k = {all.begin(), half}, w.v = {half, all.end()};
            if (name == "r/weight") w.r = all;
            if (name == "u") w.u = all;
            if (name == "v") w.bias = all;
        }
        const auto size = [](index_t n) { return std::size_t(n); };
        const auto expected = oracle::relative_attention(
            {size(batch), size(length), size(memory), size(memory - known), size(heads), size(dim)}, values(x),
            values(m), w, values(dy));
        for (const auto kind : {laws::bench<double>::backward_kind::joint, laws::bench<double>::backward_kind::split}) {
            const auto result = b.run(x.clone(), dy.clone(), kind);
            CHECK(largest_difference(result.y, expected.y) < 1e-10);
            CHECK(largest_difference(result.dx, expected.dx) < 1e-10);
            std::vector<double> kv = expected.d.k;
            kv.insert(kv.end(), expected.d.v.begin(), expected.d.v.end());
            CHECK(largest_difference(result.grads[0], expected.d.q) < 1e-10);
            CHECK(largest_difference(result.grads[1], kv) < 1e-10);
            CHECK(largest_difference(result.grads[2], expected.d.r) < 1e-10);
            CHECK(largest_difference(result.grads[3], expected.d.u) < 1e-10);
            CHECK(largest_difference(result.grads[4], expected.d.bias) < 1e-10);
        }
    }
}

TEST_CASE("transformer-xl: with a memory as long as the text, segments are one long pass", "[transformer-xl]") {
    constexpr index_t rows = 3, segment = 7, segments = 5, width = 8;
    auto net = transformer_xl<double>({.vocab_size = 11, .embedding_dim = width, .heads = 2, .blocks = 3});
    arena<double> weights(net.parameters(), 3);
    tensor<double> text({rows, segment * segments});
    for (index_t i = 0; i < text.size(); ++i) text[i] = double(random_stream{1, 2, 3}.below(11, std::uint64_t(i)));
    saved_tensors<double> none;
    pass_context p{.mode = mode::evaluate};
    const auto whole = net.forward(text.share(), none, p);
    for (const index_t memory : {segment * segments, segment * (segments - 1), segment}) {
        CAPTURE(memory);
        stream_memory<double> before(memory, {0, rows});
        p.memory = &before;
        double apart = 0;
        for (index_t s = 0; s < segments; ++s) {
            tensor<double> here({rows, segment});
            for (index_t i = 0; i < here.size(); ++i)
                here[i] = text[i / segment * text.extent(1) + s * segment + i % segment];
            for (int again = 0; again < 2; ++again) {  // repeated passes read the same memory
                const auto y = net.forward(here.share(), none, p);
                for (index_t i = 0; i < y.size(); ++i) {
                    const index_t row = i / (segment * 11), place = row * segments * segment * 11 + s * segment * 11;
                    apart = std::max(apart, std::abs(y[i] - whole[place + i % (segment * 11)]));
                }
            }
            before.advance(segment);
        }
        if (memory < segment * (segments - 1))
            CHECK(apart > 1e-4);  // what is forgotten is missed
        else
            CHECK(apart < 1e-12);
        before.clear();
        const auto first = net.forward(text.slice(0, {1, segment}), none, p);
        for (index_t i = 0; i < first.size(); ++i) CHECK(std::abs(first[i] - whole[i]) < 1e-12);
    }
    stream_memory<double> other(4, {2, 1});
    p.memory = &other;
    CHECK_THROWS_WITH(net.forward(text.share(), none, p), Catch::Contains("rows 0 to 3") && Catch::Contains("2 to 3"));
}

}  // namespace cairn
