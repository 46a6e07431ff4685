// Uses an installed Cairn as a stranger would: without our flags, for the baseline instruction set.

#include <cairn/core/for_each.hpp>
#include <cairn/core/random.hpp>

#include <cstdlib>
#include <iostream>

int main() {
    auto x = cairn::tensor<float>::zeros({4, 3});
    const cairn::random_stream random{.seed = 1, .stream = cairn::stream_of("consumer")};
    for (cairn::index_t i = 0; i < x.size(); ++i) x[i] = random.uniform(static_cast<std::uint64_t>(i));
    auto y = x.clone();
    cairn::for_each([](float& a, float b) { a += b; }, y, x);
    std::cout << "tensor of shape " << y.shape() << ", y[5] / x[5] = " << y[5] / x[5] << ", " << cairn::threads()
              << " threads, oneDNN " << (CAIRN_HAS_ONEDNN ? "found" : "not found") << '\n';
    return y[5] == 2 * x[5] ? EXIT_SUCCESS : EXIT_FAILURE;
}
