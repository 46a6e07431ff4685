#include "catch.hpp"
#include "data/writers.hpp"

#include <cairn/data/mnist.hpp>

namespace cairn::test {
namespace {

using Catch::Matchers::Contains;

void write_part(const temporary_folder& folder, const std::string& stem, const bytes& images, const bytes& labels) {
    folder.write(stem + "-images-idx3-ubyte", images);
    folder.write(stem + "-labels-idx1-ubyte.gz", gzipped(labels));
}

}  // namespace

TEST_CASE("mnist: a folder of four files, packed or not", "[mnist]") {
    const temporary_folder folder;
    write_part(folder, "train", idx_file({3, 28, 28}, counting(3 * 784)), idx_file({3}, bytes{7, 0, 9}));
    write_part(folder, "t10k", idx_file({2, 28, 28}, counting(2 * 784)), idx_file({2}, bytes{1, 2}));
    const memory_images train = mnist(folder.path(), part::train), test = mnist(folder.path(), part::test);
    REQUIRE(train.size() == 3);
    REQUIRE(test.size() == 2);
    REQUIRE(train.sample_shape() == shape{28, 28, 1});
    REQUIRE(train.targets().count() == 10);
    std::vector<float> x(784);
    std::int32_t label = 0;
    REQUIRE(train.read(2, {}, {x.data(), &label, nullptr}));
    REQUIRE(label == 9);
    for (std::size_t i = 0; i < 784; ++i)
        REQUIRE(x[i] == Approx((static_cast<double>((i + 2 * 784) % 256) / 255 - 0.1307) / 0.3081).margin(1e-5));
}

TEST_CASE("mnist: bad folders", "[mnist]") {
    const auto message = [](const bytes& images, const bytes& labels) {
        const temporary_folder folder;
        write_part(folder, "train", images, labels);
        return message_of([&] { mnist(folder.path(), part::train); });
    };
    const bytes images = idx_file({3, 28, 28}, counting(3 * 784)), labels = idx_file({3}, bytes{7, 0, 9});
    REQUIRE(message(images, labels).empty());
    REQUIRE_THAT(message(labels, labels), Contains("magic 2051") && Contains("(3)"));
    REQUIRE_THAT(message(images, images), Contains("magic 2049"));
    REQUIRE_THAT(message(images, idx_file({2}, bytes{7, 0})), Contains("3 images") && Contains("2 labels"));
    REQUIRE_THAT(message(images, idx_file({3}, bytes{7, 10, 9})),
                 Contains("labels-idx1-ubyte.gz: byte 9: label 10 of image 1"));
    REQUIRE_THAT(message(bytes(images.begin(), images.end() - 1), labels), Contains("2351 are there"));
    REQUIRE_THAT(message({}, labels), Contains("truncated at byte 0"));
    REQUIRE_THAT(message(idx_file({0, 28, 28}, bytes{}), idx_file({0}, bytes{})),
                 Contains("train-images-idx3-ubyte: no images"));
    REQUIRE_THAT(message_of([] { mnist("/nowhere", part::test); }),
                 Contains("/nowhere/t10k-images-idx3-ubyte[.gz]: no such file") && Contains("fetch_data"));
}

TEST_CASE("mnist: images without pixels are refused", "[mnist]") {
    const temporary_folder folder;
    folder.write("train-images-idx3-ubyte", idx_file({2, 0, 28}, {}));
    folder.write("train-labels-idx1-ubyte", idx_file({2}, bytes{0, 1}));
    REQUIRE_THAT(message_of([&] { read_mnist(folder.path(), part::train); }),
                 Contains("no images with pixels, but of shape (2, 0, 28)"));
}

TEST_CASE("mnist: the real one", "[mnist]") {
    const auto folder = real_data() / "mnist";
    if (!std::filesystem::exists(folder)) {
        WARN("skipped: no data");
        return;
    }
    const memory_images train = mnist(folder, part::train), test = mnist(folder, part::test);
    REQUIRE(train.size() == 60000);
    REQUIRE(test.size() == 10000);
    const std::vector<std::int32_t> first{5, 0, 4, 1, 9, 2, 1, 3, 1, 4};
    for (std::size_t i = 0; i < first.size(); ++i) REQUIRE(train.labels()[i] == first[i]);
    double sum = 0, squares = 0;
    for (std::uint8_t v : train.images().pixels) {
        sum += v;
        squares += static_cast<double>(v) * v;
    }
    const double n = static_cast<double>(train.images().pixels.size()), mean = sum / n / 255;
    REQUIRE(mean == Approx(0.1307).margin(1e-4));
    REQUIRE(std::sqrt(squares / n / 255 / 255 - mean * mean) == Approx(0.3081).margin(1e-4));
}

}  // namespace cairn::test
