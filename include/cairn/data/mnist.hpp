#pragma once
// MNIST and sets in its format (Fashion-MNIST, KMNIST): four IDX files in a folder, plain or .gz.
//   {train,t10k}-images-idx3-ubyte[.gz]  (N, 28, 28) bytes      {train,t10k}-labels-idx1-ubyte[.gz]  (N) bytes, 0 … 9
// LeCun, Cortes, Burges: The MNIST database of handwritten digits.

#include <cairn/data/data_format.hpp>
#include <cairn/data/idx.hpp>
#include <cairn/data/memory_images.hpp>

namespace cairn {

/// Mean and deviation of MNIST's training pixels, and shifts by up to `pad` pixels if asked for.
inline image_transform mnist_recipe(index_t pad = 0) { return {{0.1307f}, {0.3081f}, pad, false}; }

/// Reads one part of MNIST from a folder. Throws when a file is missing, is not what its name says, or the counts
/// differ.
inline std::shared_ptr<const labelled_images> read_mnist(const std::filesystem::path& folder, part which) {
    const std::string stem = which == part::train ? "train" : "t10k";
    const auto find = [&](const std::string& name) {
        for (const char* ending : {"", ".gz"})
            if (std::filesystem::exists(folder / (name + ending))) return folder / (name + ending);
        fail((folder / name).string(),
             "[.gz]: no such file; give the folder that holds MNIST's four files, or run benchmarks/fetch_data mnist");
    };
    idx_array images = read_idx(find(stem + "-images-idx3-ubyte"));
    idx_array labels = read_idx(find(stem + "-labels-idx1-ubyte"));
    require(images.type == idx_type::u8 && images.shape.rank() == 3, images.name,
            ": bytes of rank 3 expected (magic 2051), found type ", static_cast<int>(images.type), " of shape ",
            images.shape);
    require(labels.type == idx_type::u8 && labels.shape.rank() == 1, labels.name,
            ": bytes of rank 1 expected (magic 2049), found type ", static_cast<int>(labels.type), " of shape ",
            labels.shape);
    require(images.shape[0] == labels.shape[0], images.name, " holds ", images.shape[0], " images, ", labels.name, ' ',
            labels.shape[0], " labels: files of different sets?");
    require(images.shape.size() > 0, images.name, ": no images with pixels, but of shape ", images.shape, ": damaged?");
    auto out = std::make_shared<labelled_images>();
    out->count = images.shape[0];
    out->height = images.shape[1];
    out->width = images.shape[2];
    out->channels = 1;
    out->name = folder.string() + ' ' + stem;
    for (int digit = 0; digit < 10; ++digit) out->classes.push_back(std::to_string(digit));
    for (std::size_t i = 0; i < labels.bytes.size(); ++i) {
        require(labels.bytes[i] < 10, labels.name, ": byte ", i + 8, ": label ", int{labels.bytes[i]}, " of image ", i,
                ", 0 to 9 expected");
        out->labels.push_back(labels.bytes[i]);
    }
    out->pixels = std::move(images.bytes);
    return out;
}

/// One part of MNIST as a data set of (28, 28, 1) images.
inline memory_images mnist(const std::filesystem::path& folder, part which, image_transform recipe = mnist_recipe()) {
    return {read_mnist(folder, which), std::move(recipe)};
}

/// data.format = "mnist".
struct mnist_format {
    static constexpr const char* name = "mnist";
    static constexpr data_source source{"mnist"};
    index_t shift = 0;      // at random by up to so many pixels
    bool normalise = true;  // or pixels in [0, 1]

    template <class Table>
    void read(Table& table) {
        table("shift", shift, from_to(0, 28));
        table("normalise", normalise);
    }
    data_parts without_files(std::uint64_t seed) const {
        return synthetic_parts({28, 28, 1}, numbered_classes(10), seed);
    }
    data_parts load(const std::filesystem::path& folder) const {
        image_transform recipe = mnist_recipe(shift);
        if (!normalise) recipe.mean = {0.0f}, recipe.std = {1.0f};
        return make_data_parts(mnist(folder, part::train, recipe), mnist(folder, part::test, recipe).unaugmented());
    }
};

}  // namespace cairn
