#include <cairn/core/for_each.hpp>

int main() {
    auto x = cairn::tensor<float>::zeros({4, 3});
    return x.size() == 12 ? 0 : 1;
}
