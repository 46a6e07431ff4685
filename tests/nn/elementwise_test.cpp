#include "layer_laws.hpp"

#include <cairn/nn/dropout.hpp>
#include <cairn/nn/embedding.hpp>
#include <cairn/nn/layer_norm.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/nn/softmax.hpp>

namespace cairn {

using laws::law_case, laws::make_case;

TEST_CASE("dropout: laws", "[laws][dropout]") {
    for (const double rate : {0.0, 0.3, 0.9}) {
        law_case c =
            make_case(concat("dropout ", rate), {5, 7, 3}, [rate](auto t) { return dropout<decltype(t)>(rate); });
        c.wrong = std::nullopt;  // an elementwise layer takes any shape
        laws::check_laws(c);
    }
}

TEST_CASE("dropout: each place in a model and each step has its own mask", "[dropout]") {
    const auto mask = [](std::uint32_t step, int place) {
        sequential<float> net;
        for (int i = 0; i < 3; ++i) net.add(dropout<float>(i == place ? 0.5 : 0.0));
        saved_tensors<float> saved;
        pass_context p;
        p.random.step = step;
        return net.forward(tensor<float>::filled({1000}, 1.0f), saved, p);
    };
    const tensor<float> first = mask(0, 0);
    CHECK(laws::same_bits(first, mask(0, 0)));
    CHECK_FALSE(laws::same_bits(first, mask(1, 0)));
    CHECK_FALSE(laws::same_bits(first, mask(0, 1)));
    float sum = 0;
    for (index_t i = 0; i < first.size(); ++i) sum += first[i];
    CHECK(sum == Approx(1000).margin(5 * std::sqrt(1000.0)));  // each is 0 or 2
}

TEST_CASE("softmax, layer_norm: laws", "[laws][softmax][layer_norm]") {
    law_case s = make_case("softmax", {4, 3, 10}, [](auto t) { return softmax<decltype(t)>(); });
    s.wrong = std::nullopt;
    s.depth = 2;
    laws::check_laws(s);
    for (const index_t width : {1, 5, 64, 100}) {
        law_case c = make_case(concat("layer_norm ", width), {3, 7, width},
                               [width](auto t) { return layer_norm<decltype(t)>({.features = width}); });
        c.depth = 2;  // statistics, then values
        laws::check_laws(c);
    }
}

TEST_CASE("embedding: laws", "[laws][embedding]") {
    const auto check = [](const char* name, shape in, index_t entries, index_t width) {
        law_case c = make_case(name, in, [=](auto t) {
            return embedding<decltype(t)>({.num_embeddings = entries, .embedding_dim = width});
        });
        c.smooth = false;
        c.tokens = entries;
        c.wrong = std::nullopt;  // any shape of ids will do
        laws::check_laws(c);
    };
    check("embedding", {4, 6}, 11, 5);
    check("embedding, few entries", {3, 40}, 2, 16);
    check("embedding, one id", {1}, 3, 7);
}

}  // namespace cairn
