// Converts CIFAR-10 as JPEG files in a tar into the official binary layout.
//
//   jpeg_to_cifar_binary ARCHIVE OUT [--seed S]
//
// ARCHIVE (tar, also compressed) holds train/CLASS/NAME.jpg and test/CLASS/NAME.jpg. OUT gets data_batch_1.bin ...
// data_batch_5.bin and test_batch.bin: records of 1 label byte and 3072 bytes, the red, green and blue plane of 32x32.
// Labels are the official ones (airplane 0 ... truck 9). The files are sorted by name and then shuffled by a fixed
// seed, so that classes are mixed as in the official files and the output is the same byte for byte everywhere with
// the same libjpeg. A file that is no 32x32 JPEG image is an error that names it.
#include <archive.h>
#include <archive_entry.h>

#include <cstdio>  // before jpeglib.h, which needs FILE

#include <jpeglib.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr int side = 32, plane = side * side;
constexpr std::array<std::string_view, 10> classes{"airplane", "automobile", "bird",  "cat",  "deer",
                                                   "dog",      "frog",       "horse", "ship", "truck"};

struct record {
    std::string name;
    std::array<uint8_t, 1 + 3 * plane> bytes;
};

// libjpeg reports errors through a callback that must not return; a C++ exception must not cross its C frames.
struct jpeg_failure {
    jpeg_error_mgr base;
    std::jmp_buf jump;
    char message[JMSG_LENGTH_MAX];
};

// No object with a destructor may live between setjmp and longjmp, hence this plain function over a plain buffer.
// A warning (corrupt data that libjpeg would paper over) is an error here.
bool decode(const std::vector<uint8_t>& file, uint8_t* planes, jpeg_failure& failure) {
    jpeg_decompress_struct jpeg;
    jpeg.err = jpeg_std_error(&failure.base);
    failure.base.error_exit = [](j_common_ptr c) {
        auto* f = reinterpret_cast<jpeg_failure*>(c->err);
        c->err->format_message(c, f->message);
        std::longjmp(f->jump, 1);
    };
    failure.base.emit_message = [](j_common_ptr c, int level) {
        if (level < 0) {
            c->err->error_exit(c);
        }
    };
    jpeg_create_decompress(&jpeg);
    if (setjmp(failure.jump) != 0) {
        jpeg_destroy_decompress(&jpeg);
        return false;
    }
    jpeg_mem_src(&jpeg, file.data(), file.size());
    jpeg_read_header(&jpeg, TRUE);
    jpeg.out_color_space = JCS_RGB;
    jpeg_start_decompress(&jpeg);
    if (jpeg.output_width != side || jpeg.output_height != side || jpeg.output_components != 3) {
        std::snprintf(failure.message, sizeof failure.message, "the image is %ux%u, CIFAR's are 32x32",
                      jpeg.output_width, jpeg.output_height);
        jpeg_destroy_decompress(&jpeg);
        return false;
    }
    uint8_t row[side * 3];
    while (jpeg.output_scanline < side) {
        const auto y = jpeg.output_scanline;
        JSAMPROW rows[1] = {row};
        jpeg_read_scanlines(&jpeg, rows, 1);
        for (int x = 0; x < side; ++x) {
            for (int c = 0; c < 3; ++c) {
                planes[c * plane + static_cast<int>(y) * side + x] = row[3 * x + c];
            }
        }
    }
    jpeg_finish_decompress(&jpeg);
    jpeg_destroy_decompress(&jpeg);
    return true;
}

/// splitmix64 (Steele et al. 2014): the standard library's shuffle is not the same everywhere, this one is.
struct splitmix64 {
    uint64_t state;
    uint64_t operator()() {
        uint64_t z = (state += 0x9e3779b97f4a7c15U);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
        return z ^ (z >> 31);
    }
};

void sort_and_shuffle(std::vector<record>& records, uint64_t seed) {
    std::sort(records.begin(), records.end(), [](const record& a, const record& b) { return a.name < b.name; });
    splitmix64 random{seed};
    for (std::size_t i = records.size(); i > 1; --i) {
        std::swap(records[i - 1], records[random() % i]);
    }
}

void write_records(const std::filesystem::path& path, const record* first, std::size_t count) {
    std::ofstream out(path, std::ios::binary);
    for (std::size_t i = 0; i < count; ++i) {
        out.write(reinterpret_cast<const char*>(first[i].bytes.data()), first[i].bytes.size());
    }
    out.close();
    if (!out) {
        throw std::runtime_error(path.string() + ": cannot be written (full disk? missing rights?)");
    }
    std::printf("%s: %zu records\n", path.c_str(), count);
}

/// train/CLASS/NAME.jpg -> (is it a training image, label); throws on any other path.
std::pair<bool, uint8_t> place(const std::filesystem::path& path) {
    const auto label = std::find(classes.begin(), classes.end(), path.parent_path().filename().string());
    const auto split = path.parent_path().parent_path().filename();
    if (label == classes.end() || (split != "train" && split != "test")) {
        throw std::runtime_error(path.string() +
                                 ": expected train/CLASS/NAME.jpg or test/CLASS/NAME.jpg with one of "
                                 "CIFAR-10's classes");
    }
    return {split == "train", static_cast<uint8_t>(label - classes.begin())};
}

void convert(const std::string& archive_path, const std::filesystem::path& out, uint64_t seed) {
    const std::unique_ptr<archive, decltype(&archive_read_free)> tar(archive_read_new(), archive_read_free);
    archive_read_support_filter_all(tar.get());
    archive_read_support_format_tar(tar.get());
    const auto check = [&](la_ssize_t code) {
        if (code < ARCHIVE_WARN) {
            throw std::runtime_error(archive_path + ": " + archive_error_string(tar.get()));
        }
        return code;
    };
    check(archive_read_open_filename(tar.get(), archive_path.c_str(), 1 << 20));
    std::vector<record> train, test;
    jpeg_failure failure;
    archive_entry* entry = nullptr;
    while (check(archive_read_next_header(tar.get(), &entry)) != ARCHIVE_EOF) {
        if (archive_entry_filetype(entry) != AE_IFREG) {
            continue;
        }
        const std::string name = archive_entry_pathname(entry);
        const auto [is_train, label] = place(name);
        std::vector<uint8_t> file(static_cast<std::size_t>(archive_entry_size(entry)));
        if (check(archive_read_data(tar.get(), file.data(), file.size())) != static_cast<la_ssize_t>(file.size())) {
            throw std::runtime_error(archive_path + ": " + name + ": truncated");
        }
        auto& r = (is_train ? train : test).emplace_back();
        r.name = name;
        r.bytes[0] = label;
        if (!decode(file, r.bytes.data() + 1, failure)) {
            throw std::runtime_error(archive_path + ": " + name + ": " + failure.message);
        }
    }
    if (train.empty() || train.size() % 5 != 0 || test.empty()) {
        throw std::runtime_error(archive_path + ": " + std::to_string(train.size()) + " training and " +
                                 std::to_string(test.size()) +
                                 " test images; need test images, and training images that divide into five batches");
    }
    std::filesystem::create_directories(out);
    sort_and_shuffle(train, seed);
    sort_and_shuffle(test, seed);
    const std::size_t fifth = train.size() / 5;
    for (std::size_t i = 0; i < 5; ++i) {
        write_records(out / ("data_batch_" + std::to_string(i + 1) + ".bin"), train.data() + i * fifth, fifth);
    }
    write_records(out / "test_batch.bin", test.data(), test.size());
}

}  // namespace

int main(int argc, char** argv) {
    const bool seeded = argc == 5 && std::string_view(argv[3]) == "--seed";
    if (argc != 3 && !seeded) {
        std::fputs("usage: jpeg_to_cifar_binary ARCHIVE OUT [--seed S]\n", stderr);
        return 2;
    }
    try {
        convert(argv[1], argv[2], seeded ? std::strtoull(argv[4], nullptr, 10) : 0);
    } catch (const std::exception& e) {
        std::fprintf(stderr, "jpeg_to_cifar_binary: %s\n", e.what());
        return 1;
    }
    return 0;
}
