// What your functions cost, counted: operations, cache lines and bytes. Not graded, for a program cannot count safely
// inside itself. From the root of the repository:
//   g++ -std=c++20 -O1 -I include -I my-lab1 labs/01-tensors-and-sgd/count.cpp -o my-lab1/count && my-lab1/count

#include "layers.hpp"
#include "tensors.hpp"

#include "counted.hpp"  // behind what is handed in, which does not see it

#include <cstdio>

namespace {

using lab::counted;

student::matrix<counted> some(std::size_t rows, std::size_t columns) {
    student::matrix<counted> m = student::matrix<counted>::from_shape({rows, columns});
    for (std::size_t i = 0; i < m.size(); ++i) m.data()[i] = std::sin(static_cast<double>(i));
    return m;
}

void line(const char* what, double lines, double operations, double bytes, const char* aim) {
    std::printf("%-18s %8.3f %11.2f %10.2f   %s\n", what, lines, operations, bytes, aim);
}

}  // namespace

int main() try {
    std::printf("of one element     lines  operations      bytes   aim\n");
    const auto x = some(120, 130);
    const auto elements = static_cast<double>(x.size());
    const auto told = [](const char* what, double of, const char* aim) {
        line(what, static_cast<double>(lab::cache.moved) / of, static_cast<double>(lab::operations) / of,
             static_cast<double>(lab::allocated) / of, aim);
    };
    lab::reset_counts();
    const student::matrix<counted> t = student::transposed(x);
    told("transposed", elements, "lines <= 0.625; down columns 1.125");
    lab::reset_counts();
    const student::matrix<counted> s = student::standardised(x, counted(1e-3));
    told("standardised", elements, "operations <= 12, bytes <= 20");
    std::printf("of one product\n");
    const auto a = some(10, 96), w = some(100, 96), dy = some(10, 100);
    student::vec<counted> b = student::vec<counted>::from_shape({100});
    for (std::size_t o = 0; o < 100; ++o) b(o) = counted(0);
    lab::reset_counts();
    const student::matrix<counted> y = student::linear_forward(a, w, b);
    told("linear_forward", 96'000, "lines <= 0.375; down columns 1");
    lab::reset_counts();
    const student::linear_gradients<counted> d = student::linear_backward(a, w, dy);
    told("linear_backward", 192'000, "lines <= 0.375; down columns 1");
} catch (const std::exception& error) {
    std::fprintf(stderr, "count: %s\n", error.what());
    return 1;
}
