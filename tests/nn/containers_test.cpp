#include "layer_laws.hpp"
#include "own_container.hpp"

#include <cairn/nn/activation.hpp>
#include <cairn/nn/batch_norm.hpp>
#include <cairn/nn/branches.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/embedding.hpp>
#include <cairn/nn/flatten.hpp>
#include <cairn/nn/layer_norm.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/pool.hpp>

namespace cairn {
using laws::law_case, laws::make_case;

namespace {

void check(law_case c, int depth) {
    c.depth = depth;
    laws::check_laws(c);
}

template <class T, class... Layers>
sequential<T> chain(Layers... layers) {
    sequential<T> net;
    (net.add(std::move(layers)), ...);
    return net;
}

template <class T>
conv<T> conv3(index_t in, index_t out, index_t stride = 1) {
    return conv<T>({.in = in, .out = out, .kernel = 3, .stride = stride, .pad = 1, .bias = false});
}

template <class T>
batch_norm<T> norm(index_t channels, activation act) {
    return batch_norm<T>({.channels = channels, .act = act});
}

template <class T>
std::vector<sequential<T>> three_branches() {
    std::vector<sequential<T>> list;
    list.push_back(chain<T>(conv3<T>(4, 6), relu<T>()));
    list.emplace_back();  // the input itself
    list.push_back(
        chain<T>(max_pool<T>({.kernel = 3, .stride = 1, .pad = 1}), conv<T>({.in = 4, .out = 2, .kernel = 1})));
    return list;
}

template <class T>
std::vector<sequential<T>> equal_branches() {
    std::vector<sequential<T>> list;
    list.push_back(chain<T>(conv3<T>(4, 4), activation_layer<T>(activation::tanh)));  // keeps its output
    list.emplace_back();
    list.push_back(chain<T>(conv3<T>(4, 4)));
    return list;
}

}  // namespace

TEST_CASE("flatten: laws", "[laws][flatten]") {
    law_case c = make_case("flatten", {3, 4, 5, 2}, [](auto t) { return flatten<decltype(t)>(); });
    c.wrong = std::nullopt;
    laws::check_laws(c);
}

TEST_CASE("unsqueeze: laws", "[laws][flatten]") {
    law_case c = make_case("unsqueeze", {3, 4, 2}, [](auto t) { return unsqueeze<decltype(t)>(); });
    c.wrong = std::nullopt;
    laws::check_laws(c);
    CHECK(unsqueeze<float>().output_shape({3, 4, 2}) == shape{3, 4, 2, 1});
}

TEST_CASE("flatten: in front of a layer that has no gradient of its input", "[flatten]") {
    sequential<float> net = chain<float>(flatten<float>(), embedding<float>({.num_embeddings = 5, .embedding_dim = 2}));
    laws::bench<float> b{any_layer<float>(std::move(net))};
    b.p.input_gradient = false;
    saved_tensors<float> saved;
    tensor<float> y = b.layer.forward(tensor<float>::filled({2, 3, 1}, 4.0f), saved, b.p);
    CHECK(y.shape() == shape{2, 3, 2});
    b.layer.backward(std::move(y), saved, b.p);
    CHECK(saved.empty());
}

TEST_CASE("sequential: laws", "[laws][sequential]") {
    check(make_case("conv, relu, pool, flatten, linear", {2, 8, 8, 3},
                    [](auto t) {
                        using T = decltype(t);
                        return chain<T>(conv3<T>(3, 5), relu<T>(), max_pool<T>({.kernel = 2}), flatten<T>(),
                                        linear<T>({.in = 80, .out = 7}));
                    }),
          5);
    check(make_case("neighbours that keep the same block", {4, 6},
                    [](auto t) {
                        using T = decltype(t);
                        return chain<T>(linear<T>({.in = 6, .out = 8}), activation_layer<T>(activation::tanh),
                                        flatten<T>(), linear<T>({.in = 8, .out = 5}),
                                        activation_layer<T>(activation::silu));
                    }),
          5);
    check(make_case("a kept output at the end", {4, 6},
                    [](auto t) {
                        using T = decltype(t);
                        return chain<T>(linear<T>({.in = 6, .out = 8}), activation_layer<T>(activation::sigmoid),
                                        flatten<T>());
                    }),
          3);
    check(make_case("relu first: x is not ours", {4, 6},
                    [](auto t) {
                        using T = decltype(t);
                        return chain<T>(relu<T>(), linear<T>({.in = 6, .out = 8}), relu<T>());
                    }),
          3);
    check(make_case("chains in chains", {2, 6, 6, 3},
                    [](auto t) {
                        using T = decltype(t);
                        return chain<T>(chain<T>(conv3<T>(3, 4), norm<T>(4, activation::relu)), chain<T>(),
                                        chain<T>(conv3<T>(4, 2), flatten<T>()));
                    }),
          4);
}

TEST_CASE("residual: laws", "[laws][residual]") {
    check(make_case("basic block", {2, 6, 6, 8},
                    [](auto t) {
                        using T = decltype(t);
                        return residual<T>(chain<T>(conv3<T>(8, 8), norm<T>(8, activation::relu), conv3<T>(8, 8),
                                                    norm<T>(8, activation::relu)));
                    }),
          8);
    check(make_case("basic block with projection", {2, 7, 5, 4},
                    [](auto t) {
                        using T = decltype(t);
                        return residual<T>(
                            chain<T>(conv3<T>(4, 6, 2), norm<T>(6, activation::relu), conv3<T>(6, 6),
                                     norm<T>(6, activation::relu)),
                            chain<T>(conv<T>({.in = 4, .out = 6, .kernel = 1, .stride = 2, .bias = false}),
                                     norm<T>(6, activation::none)));
                    }),
          8);
    check(make_case("plain sum", {2, 5, 5, 3},
                    [](auto t) {
                        using T = decltype(t);
                        return residual<T>(chain<T>(norm<T>(3, activation::relu), conv3<T>(3, 3)));
                    }),
          4);
    check(make_case("plain sum of a kept output", {3, 5},
                    [](auto t) {
                        using T = decltype(t);
                        return residual<T>(
                            chain<T>(linear<T>({.in = 5, .out = 5}), activation_layer<T>(activation::tanh)));
                    }),
          3);
    check(make_case("plain sum with projection, then relu", {3, 5},
                    [](auto t) {
                        using T = decltype(t);
                        return chain<T>(
                            residual<T>(
                                chain<T>(linear<T>({.in = 5, .out = 7}), relu<T>(), linear<T>({.in = 7, .out = 6})),
                                chain<T>(linear<T>({.in = 5, .out = 6}), activation_layer<T>(activation::tanh))),
                            relu<T>());
                    }),
          5);
    check(make_case("a normalisation in front adds what comes past, a map at the end the skip", {2, 3, 6},
                    [](auto t) {
                        using T = decltype(t);
                        return residual<T>(chain<T>(layer_norm<T>({.features = 6}), linear<T>({.in = 6, .out = 9}),
                                                    gelu<T>(), linear<T>({.in = 9, .out = 6})));
                    }),
          6);
    check(make_case("a normalisation in front, something else at the end", {4, 5},
                    [](auto t) {
                        using T = decltype(t);
                        return residual<T>(chain<T>(layer_norm<T>({.features = 5}), linear<T>({.in = 5, .out = 5}),
                                                    activation_layer<T>(activation::tanh)));
                    }),
          5);
    check(make_case("nothing but a normalisation", {4, 5},
                    [](auto t) {
                        using T = decltype(t);
                        return residual<T>(chain<T>(layer_norm<T>({.features = 5})));
                    }),
          2);
    check(make_case("a map within a chain at the end, past a projection", {4, 5},
                    [](auto t) {
                        using T = decltype(t);
                        return residual<T>(chain<T>(layer_norm<T>({.features = 5}),
                                                    chain<T>(relu<T>(), linear<T>({.in = 5, .out = 3}))),
                                           chain<T>(linear<T>({.in = 5, .out = 3})));
                    }),
          6);
    check(make_case("two blocks", {2, 4, 4, 4},
                    [](auto t) {
                        using T = decltype(t);
                        const auto block = [] {
                            return residual<T>(chain<T>(conv3<T>(4, 4), norm<T>(4, activation::relu), conv3<T>(4, 4),
                                                        norm<T>(4, activation::relu)));
                        };
                        return chain<T>(block(), block(), global_average_pool<T>());
                    }),
          20);
    law_case doubled = make_case("body that only renames", {3, 5}, [](auto t) {
        using T = decltype(t);
        return residual<T>(chain<T>(flatten<T>()));
    });
    doubled.wrong = std::nullopt;
    laws::check_laws(doubled);
}

TEST_CASE("branches, summed, skip: laws", "[laws][branches][skip]") {
    check(make_case("branches", {2, 5, 6, 4},
                    [](auto t) { return concat_branches<decltype(t)>(three_branches<decltype(t)>()); }),
          3);
    check(make_case("summed", {2, 5, 6, 4},
                    [](auto t) { return add_branches<decltype(t)>(equal_branches<decltype(t)>()); }),
          3);
    check(make_case("skip", {2, 5, 6, 4},
                    [](auto t) {
                        using T = decltype(t);
                        return concat_skip<T>(chain<T>(conv3<T>(4, 3), relu<T>(), conv3<T>(3, 2)));
                    }),
          3);
    check(make_case("skip in skip", {2, 5, 6, 4},
                    [](auto t) {
                        using T = decltype(t);
                        return concat_skip<T>(
                            chain<T>(conv3<T>(4, 3),
                                     concat_skip<T>(chain<T>(conv3<T>(3, 2), activation_layer<T>(activation::tanh)))));
                    }),
          3);
}

TEST_CASE("a container of one's own: laws, the peak that is planned for it among them", "[laws][containers][own]") {
    const auto joined = [](auto t) {
        using T = decltype(t);
        return own::two_ways<combination::join, T>(chain<T>(conv3<T>(4, 3), relu<T>()), chain<T>(conv3<T>(4, 2)));
    };
    law_case c = make_case("joined", {2, 5, 6, 4}, joined);
    c.depth = 3;
    laws::check_laws(c);
    c = make_case("added", {2, 5, 6, 4}, [](auto t) {
        using T = decltype(t);
        return own::two_ways<combination::sum, T>(chain<T>(conv3<T>(4, 3), relu<T>(), conv3<T>(3, 4)),
                                                  chain<T>(own::boxed<T>(chain<T>(conv3<T>(4, 4), relu<T>()))));
    });
    c.depth = 4;
    laws::check_laws(c);
}

TEST_CASE("containers: errors name the layer and both shapes", "[containers]") {
    const auto net = chain<float>(conv3<float>(3, 4), flatten<float>(), linear<float>({.in = 100, .out = 2}));
    CHECK_THROWS_WITH(net.output_shape({1, 4, 4, 3}),
                      Catch::Contains("layer 2") && Catch::Contains("(..., 100)") && Catch::Contains("(1, 64)"));
    const residual<float> block(chain<float>(conv3<float>(3, 4)));
    CHECK_THROWS_WITH(block.output_shape({1, 4, 5, 3}),
                      Catch::Contains("(1, 4, 5, 4)") && Catch::Contains("(1, 4, 5, 3)"));
    CHECK_THROWS_WITH(add_branches<float>(three_branches<float>()).output_shape({1, 4, 4, 4}),
                      Catch::Contains("branch 1"));
    const concat_skip<float> s(chain<float>(max_pool<float>({.kernel = 2})));
    CHECK_THROWS_WITH(s.output_shape({1, 4, 4, 3}), Catch::Contains("(1, 2, 2, 3)"));
    CHECK_THROWS_WITH(residual<float>(sequential<float>{}), Catch::Contains("no layers"));
}

TEST_CASE("containers: names of parameters", "[containers]") {
    sequential<float> body, projection, net;
    body.add("conv1", conv3<float>(3, 4)).add("bn1", norm<float>(4, activation::relu));
    projection.add("conv", conv<float>({.in = 3, .out = 4, .kernel = 1}));
    net.add("layer1/0", residual<float>(std::move(body), std::move(projection)));
    std::string names;
    for (const auto& [name, p] : net.parameters()) names += name + ' ';
    CHECK(names ==
          "layer1/0/conv1/weight layer1/0/bn1/weight layer1/0/bn1/bias layer1/0/shortcut/conv/weight "
          "layer1/0/shortcut/conv/bias ");
    CHECK(net.buffers().size() == 2);
    CHECK(net.buffers()[0].name == "layer1/0/bn1/running_mean");
}

}  // namespace cairn
