#pragma once
// CIFAR-10 and CIFAR-100 in the official binary layout, plain or .gz (www.cs.toronto.edu/~kriz/cifar.html):
//   CIFAR-10   record = 1 label byte, then 1024 red, 1024 green, 1024 blue bytes   data_batch_{1…5}.bin, test_batch.bin
//   CIFAR-100  record = 1 coarse and 1 fine label byte, then the same              train.bin, test.bin
// The planes become (32, 32, 3) on reading. Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.

#include <cairn/data/data_format.hpp>
#include <cairn/data/gzip.hpp>
#include <cairn/data/image_folder.hpp>
#include <cairn/data/memory_images.hpp>

#include <fstream>

namespace cairn {

/// Usual mean and deviation; for training padded by 4, cropped and flipped.
inline image_transform cifar10_recipe(bool augmented) {
    return {{0.4914f, 0.4822f, 0.4465f}, {0.2470f, 0.2435f, 0.2616f}, augmented ? 4 : 0, augmented};
}
inline image_transform cifar100_recipe(bool augmented) {
    return {{0.5071f, 0.4865f, 0.4409f}, {0.2673f, 0.2564f, 0.2762f}, augmented ? 4 : 0, augmented};
}

namespace detail {

// label_bytes: 1 or 2; the last one counts.
inline void append_cifar(labelled_images& out, const std::filesystem::path& path, std::size_t label_bytes,
                         int classes) {
    constexpr std::size_t plane = 32 * 32;
    const auto bytes = read_maybe_gzip(path);
    const std::size_t record = label_bytes + 3 * plane;
    require(!bytes.empty() && bytes.size() % record == 0, path.string(), ": ", bytes.size(),
            " bytes are no whole number of records of ", record, " bytes (", bytes.size() / record, " records and ",
            bytes.size() % record, " bytes): truncated, or not a CIFAR binary file");
    const std::size_t records = bytes.size() / record, before = out.pixels.size();
    out.pixels.resize(before + records * 3 * plane);
    for (std::size_t r = 0; r < records; ++r) {
        const std::uint8_t* in = bytes.data() + r * record;
        require(in[label_bytes - 1] < classes, path.string(), ": byte ", r * record + label_bytes - 1, ": label ",
                int{in[label_bytes - 1]}, " of record ", r, ", 0 to ", classes - 1, " expected");
        out.labels.push_back(in[label_bytes - 1]);
        in += label_bytes;
        std::uint8_t* to = out.pixels.data() + before + r * 3 * plane;
        for (std::size_t p = 0; p < plane; ++p)
            for (std::size_t c = 0; c < 3; ++c) to[p * 3 + c] = in[c * plane + p];
    }
    out.count += static_cast<index_t>(records);
}

inline std::filesystem::path cifar_file(const std::filesystem::path& folder, const std::string& name, const char* set) {
    for (const char* ending : {"", ".gz"})
        if (std::filesystem::exists(folder / (name + ending))) return folder / (name + ending);
    fail((folder / name).string(), "[.gz]: no such file; give the folder of the binary version of ", set,
         ", or run benchmarks/fetch_data ", set);
}

// Class names from the list that comes with the data; numbers where it is missing.
inline std::vector<std::string> cifar_classes(const std::filesystem::path& list, int classes) {
    std::vector<std::string> names;
    std::ifstream in(list);
    for (std::string line; static_cast<int>(names.size()) < classes && std::getline(in, line);)
        if (!line.empty()) names.push_back(line);
    for (int c = static_cast<int>(names.size()); c < classes; ++c) names.push_back(std::to_string(c));
    return names;
}

}  // namespace detail

/// Reads files of CIFAR-10 records, in order. Throws on a wrong size (with the bytes) or a wrong label (with its
/// place).
inline std::shared_ptr<const labelled_images> read_cifar10(const std::vector<std::filesystem::path>& files) {
    auto out = std::make_shared<labelled_images>();
    out->height = out->width = 32;
    out->channels = 3;
    out->classes = {"airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"};
    require(!files.empty(), "cifar10: no file");
    out->name = files.front().string();
    for (const auto& file : files) detail::append_cifar(*out, file, 1, 10);
    return out;
}

/// One part of CIFAR-10 from its folder.
inline memory_images cifar10(const std::filesystem::path& folder, part which, image_transform recipe) {
    std::vector<std::filesystem::path> files;
    if (which == part::test)
        files.push_back(detail::cifar_file(folder, "test_batch.bin", "cifar10"));
    else
        for (int i = 1; i <= 5; ++i)
            files.push_back(detail::cifar_file(folder, concat("data_batch_", i, ".bin"), "cifar10"));
    return {read_cifar10(files), std::move(recipe)};
}
inline memory_images cifar10(const std::filesystem::path& folder, part which) {
    return cifar10(folder, which, cifar10_recipe(which == part::train));
}

/// One part of CIFAR-100 (fine labels) from its folder.
inline memory_images cifar100(const std::filesystem::path& folder, part which, image_transform recipe) {
    auto out = std::make_shared<labelled_images>();
    out->height = out->width = 32;
    out->channels = 3;
    out->classes = detail::cifar_classes(folder / "fine_label_names.txt", 100);
    const auto file = detail::cifar_file(folder, which == part::train ? "train.bin" : "test.bin", "cifar100");
    out->name = file.string();
    detail::append_cifar(*out, file, 2, 100);
    return {std::move(out), std::move(recipe)};
}
inline memory_images cifar100(const std::filesystem::path& folder, part which) {
    return cifar100(folder, which, cifar100_recipe(which == part::train));
}

/// data.format = "cifar10" or "cifar100": binary files; of CIFAR-10 also JPEG or PNG files in class folders below train
/// and test, plain or in an archive.
template <int Classes>
struct cifar_format {
    static constexpr const char* name = Classes == 10 ? "cifar10" : "cifar100";
    static constexpr data_source source{name};
    index_t crop_pad = 4;  // of random crops
    bool flip = true;

    template <class Table>
    void read(Table& table) {
        table("crop_pad", crop_pad, from_to(0, 32));
        table("flip", flip);
    }
    data_parts without_files(std::uint64_t seed) const {
        return synthetic_parts({32, 32, 3}, numbered_classes(Classes), seed);
    }
    data_parts load(std::filesystem::path path) const {
        image_transform recipe = Classes == 10 ? cifar10_recipe(true) : cifar100_recipe(true);
        recipe.pad = crop_pad;
        recipe.flip = flip;
        const auto unpacked = path / (Classes == 10 ? "cifar-10-batches-bin" : "cifar-100-binary");
        if (std::filesystem::is_directory(unpacked)) path = unpacked;  // as tar leaves it
        require(!path.filename().string().starts_with("cifar-10-binary.tar"), path.string(),
                ": unpack it (tar -xf) and give the folder that holds data_batch_1.bin to data_batch_5.bin and "
                "test_batch.bin");
        if (Classes == 100) return make_data_parts(cifar100(path, part::train, recipe), cifar100(path, part::test));
        if (has_binary_batches(path))
            return make_data_parts(cifar10(path, part::train, recipe), cifar10(path, part::test));
        std::filesystem::path root = path;
        if (std::filesystem::is_directory(path) && !std::filesystem::exists(path / "train"))
            for (const auto& file : std::filesystem::directory_iterator(path))
                if (is_archive_name(file.path())) root = file.path();
        const image_collection images(root);
        return make_data_parts(
            memory_images(decode_all(images, images.part_of(part::train), "CIFAR-10 train"), recipe),
            memory_images(decode_all(images, images.part_of(part::test), "CIFAR-10 test"), recipe).unaugmented());
    }

private:
    // Whether any of CIFAR-10's binary files is there; the reader says which are missing.
    static bool has_binary_batches(const std::filesystem::path& path) {
        if (!std::filesystem::is_directory(path)) return false;
        for (const auto& file : std::filesystem::directory_iterator(path)) {
            const std::string file_name = file.path().filename().string();
            if (file_name.ends_with("_batch.bin") || file_name.ends_with("_batch.bin.gz") ||
                file_name.starts_with("data_batch_"))
                return true;
        }
        return false;
    }
};

}  // namespace cairn
