// CIFAR-10 (official binary layout) and MNIST (idx, unpacked) in memory as bytes, and the batches made from them.
//
// A batch is normalised per channel, (pixel/255 - mean)/std. For training it is then padded with zeros (in normalised
// space) on each side, cropped back at a random place and flipped left-right with probability 1/2.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace peer {

struct image_set {
    int64_t channels = 0, height = 0, width = 0;
    std::vector<uint8_t> pixels;  // (N, C, H, W)
    std::vector<uint8_t> labels;  // (N)

    [[nodiscard]] int64_t size() const { return static_cast<int64_t>(labels.size()); }
};

struct normalisation {
    std::vector<float> mean, std;
};

struct augmentation {
    int64_t pad = 0;
    bool flip = false;
};

inline std::vector<uint8_t> read_bytes(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) {
        throw std::runtime_error(path.string() +
                                 ": cannot be opened; --data must name the folder that holds it "
                                 "(unpacked; for CIFAR run jpeg_to_cifar_binary or fetch the "
                                 "official binary version)");
    }
    return {std::istreambuf_iterator<char>(in), {}};
}

/// Records of 1 label byte and 3 x 32 x 32 bytes. Throws if the size is no multiple of 3073 or a label is above 9.
inline void append_cifar(const std::filesystem::path& path, image_set& set) {
    constexpr std::size_t image = 3 * 32 * 32, record = image + 1;
    const auto bytes = read_bytes(path);
    if (bytes.empty() || bytes.size() % record != 0) {
        throw std::runtime_error(path.string() + ": " + std::to_string(bytes.size()) +
                                 " bytes are no whole number of CIFAR-10 records of 3073 bytes: truncated file?");
    }
    set.channels = 3;
    set.height = set.width = 32;
    for (std::size_t at = 0; at < bytes.size(); at += record) {
        if (bytes[at] > 9) {
            throw std::runtime_error(path.string() + ": record " + std::to_string(at / record) + " has label " +
                                     std::to_string(bytes[at]) + ", CIFAR-10 has 0..9");
        }
        set.labels.push_back(bytes[at]);
        const auto* first = bytes.data() + at + 1;
        set.pixels.insert(set.pixels.end(), first, first + image);
    }
}

/// data_batch_1.bin ... data_batch_5.bin, or test_batch.bin.
inline image_set load_cifar(const std::filesystem::path& folder, bool train) {
    image_set set;
    if (!train) {
        append_cifar(folder / "test_batch.bin", set);
        return set;
    }
    for (int i = 1; i <= 5; ++i) {
        append_cifar(folder / ("data_batch_" + std::to_string(i) + ".bin"), set);
    }
    return set;
}

inline uint32_t big_endian(const std::vector<uint8_t>& b, std::size_t at) {
    return uint32_t{b[at]} << 24 | uint32_t{b[at + 1]} << 16 | uint32_t{b[at + 2]} << 8 | b[at + 3];
}

/// The idx files of MNIST, unpacked. Throws on wrong magic numbers, sizes or counts.
inline image_set load_mnist(const std::filesystem::path& folder, bool train) {
    const std::string stem = train ? "train" : "t10k";
    const auto image_path = folder / (stem + "-images-idx3-ubyte"), label_path = folder / (stem + "-labels-idx1-ubyte");
    const auto images = read_bytes(image_path), labels = read_bytes(label_path);
    if (images.size() < 16 || big_endian(images, 0) != 2051) {
        throw std::runtime_error(image_path.string() + ": not an idx file of images (magic 2051)");
    }
    if (labels.size() < 8 || big_endian(labels, 0) != 2049) {
        throw std::runtime_error(label_path.string() + ": not an idx file of labels (magic 2049)");
    }
    image_set set;
    set.channels = 1;
    set.height = big_endian(images, 8);
    set.width = big_endian(images, 12);
    const std::size_t count = big_endian(images, 4);
    const std::size_t image = static_cast<std::size_t>(set.height * set.width);
    if (images.size() != 16 + count * image || labels.size() != 8 + count || big_endian(labels, 4) != count) {
        throw std::runtime_error(image_path.string() + ": " + std::to_string(count) + " images are announced, but " +
                                 std::to_string(images.size()) + " bytes and " + std::to_string(labels.size() - 8) +
                                 " labels are there: truncated file?");
    }
    set.pixels.assign(images.begin() + 16, images.end());
    set.labels.assign(labels.begin() + 8, labels.end());
    return set;
}

struct batch {
    torch::Tensor images;  // (N, C, H, W) float, in the layout asked for
    torch::Tensor labels;  // (N) int64
};

/// Makes the batch of the images `order[begin .. begin + count)`.
inline batch make_batch(const image_set& set, const normalisation& norm, const std::vector<int64_t>& order,
                        int64_t begin, int64_t count, const augmentation& aug, std::mt19937_64& random,
                        at::MemoryFormat format) {
    const int64_t c = set.channels, h = set.height, w = set.width;
    std::vector<std::array<float, 256>> table(static_cast<std::size_t>(c));
    for (std::size_t ch = 0; ch < table.size(); ++ch) {
        for (int v = 0; v < 256; ++v) {
            table[ch][static_cast<std::size_t>(v)] = (static_cast<float>(v) / 255.0F - norm.mean[ch]) / norm.std[ch];
        }
    }
    auto images = torch::zeros({count, c, h, w});
    auto labels = torch::empty({count}, torch::kInt64);
    auto* out = images.data_ptr<float>();
    std::uniform_int_distribution<int64_t> offset(-aug.pad, aug.pad);
    std::bernoulli_distribution coin(0.5);
    for (int64_t i = 0; i < count; ++i) {
        const int64_t from = order[static_cast<std::size_t>(begin + i)];
        labels.data_ptr<int64_t>()[i] = set.labels[static_cast<std::size_t>(from)];
        const int64_t dy = offset(random), dx = offset(random);
        const bool flip = aug.flip && coin(random);
        for (int64_t ch = 0; ch < c; ++ch) {
            const auto* in = set.pixels.data() + (from * c + ch) * h * w;
            for (int64_t y = 0; y < h; ++y) {
                if (y + dy < 0 || y + dy >= h) {
                    continue;
                }
                for (int64_t x = 0; x < w; ++x) {
                    const int64_t source = (flip ? w - 1 - x : x) + dx;
                    if (source < 0 || source >= w) {
                        continue;
                    }
                    out[((i * c + ch) * h + y) * w + x] =
                        table[static_cast<std::size_t>(ch)][in[(y + dy) * w + source]];
                }
            }
        }
    }
    return {images.contiguous(format), labels};
}

}  // namespace peer
