#pragma once
// For the programs of labs that train on MNIST: where its four files are.

#include <cairn/data/mnist.hpp>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

namespace lab {

/// `given`, $CAIRN_DATA/mnist, data/mnist or ../shared/data/mnist: the first that has them. Empty where none has, and
/// says so.
inline std::filesystem::path mnist_folder(const std::filesystem::path& given) {
    const char* const data = std::getenv("CAIRN_DATA");
    for (const std::filesystem::path& where :
         {given, std::filesystem::path(data ? data : "") / "mnist", std::filesystem::path("data/mnist"),
          std::filesystem::path("../shared/data/mnist")})
        for (const char* const ending : {"", ".gz"})
            if (exists(where / (std::string("train-images-idx3-ubyte") + ending))) return where;
    std::puts("skipped: no data (benchmarks/fetch_data mnist --to data brings it)");
    return {};
}

}  // namespace lab
