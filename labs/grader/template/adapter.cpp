// What the tests may call: each name is a function of what is handed in. Arguments and results are values.

#include "worker.hpp"

#include "statistics.hpp"

const bool served[] = {
    lab::serve("mean", [](std::vector<float> x) { return student::mean(x); }),
    lab::serve("variance", [](std::vector<float> x) { return student::variance(x); }),
};
