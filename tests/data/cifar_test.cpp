#include "catch.hpp"
#include "data/writers.hpp"

#include <cairn/data/cifar.hpp>

#include <map>

namespace cairn::test {
namespace {

using Catch::Matchers::Contains;

// A record whose byte p of plane c is 3 p + c + salt.
bytes record(std::initializer_list<std::uint8_t> labels, unsigned salt) {
    bytes out(labels);
    for (unsigned c = 0; c < 3; ++c)
        for (unsigned p = 0; p < 1024; ++p) out.push_back(static_cast<std::uint8_t>(3 * p + c + salt));
    return out;
}
bytes joined(std::initializer_list<bytes> parts) {
    bytes out;
    for (const bytes& p : parts) append(out, p);
    return out;
}

}  // namespace

TEST_CASE("cifar10: batches in order, planes interleaved", "[cifar]") {
    const temporary_folder folder;
    for (int i = 1; i <= 5; ++i)
        folder.write(concat("data_batch_", i, ".bin"),
                     joined({record({static_cast<std::uint8_t>(i)}, static_cast<unsigned>(i)), record({9}, 0)}));
    folder.write("test_batch.bin.gz", gzipped(record({3}, 77)));
    const memory_images train = cifar10(folder.path(), part::train, {}), test = cifar10(folder.path(), part::test, {});
    REQUIRE(train.size() == 10);
    REQUIRE(test.size() == 1);
    REQUIRE(train.sample_shape() == shape{32, 32, 3});
    REQUIRE(train.targets().names[9] == "truck");
    for (index_t i = 0; i < 10; ++i) REQUIRE(train.labels()[static_cast<std::size_t>(i)] == (i % 2 ? 9 : i / 2 + 1));
    std::vector<float> x(3072);
    std::int32_t label = 0;
    test.read(0, {}, {x.data(), &label, nullptr});
    REQUIRE(label == 3);
    for (unsigned i = 0; i < 3072; ++i) REQUIRE(x[i] * 255 == Approx((i + 77) % 256).margin(1e-3));
}

TEST_CASE("cifar100: fine labels and names", "[cifar]") {
    const temporary_folder folder;
    folder.write("train.bin", joined({record({4, 99}, 1), record({0, 17}, 2)}));
    const memory_images d = cifar100(folder.path(), part::train);
    REQUIRE(d.size() == 2);
    REQUIRE(d.labels()[0] == 99);
    REQUIRE(d.targets().count() == 100);
    REQUIRE(d.targets().names[5] == "5");
    folder.write("fine_label_names.txt", "apple\naquarium_fish\n");
    REQUIRE(cifar100(folder.path(), part::train).targets().names[1] == "aquarium_fish");
    REQUIRE(cifar100(folder.path(), part::train).targets().names[2] == "2");
}

TEST_CASE("cifar: bad files are named with their bytes", "[cifar]") {
    const temporary_folder folder;
    const auto message = [&](const bytes& file) {
        return message_of([&] { read_cifar10({folder.write("b.bin", file)}); });
    };
    REQUIRE(message(record({3}, 0)).empty());
    bytes bad = joined({record({3}, 0), record({4}, 0)});
    bad.pop_back();
    REQUIRE_THAT(message(bad),
                 Contains("b.bin: 6145 bytes are no whole number of records of 3073 bytes (1 records and 3072 bytes)"));
    REQUIRE_THAT(message({}), Contains("b.bin: 0 bytes"));
    REQUIRE_THAT(message(joined({record({3}, 0), record({10}, 0)})), Contains("byte 3073: label 10 of record 1"));
    bytes cut = gzipped(record({3}, 0));
    cut.resize(cut.size() / 2);
    REQUIRE_THAT(message(cut), Contains("b.bin: truncated"));
    REQUIRE_THAT(message_of([&] { cifar10(folder.path(), part::train); }),
                 Contains("data_batch_1.bin[.gz]: no such file"));
    REQUIRE_THAT(message_of([&] { cifar100(folder.path(), part::test); }), Contains("test.bin[.gz]: no such file"));
}

TEST_CASE("cifar10: 4,000 real records", "[cifar]") {
    const auto file = real_data() / "cifar10" / "data_batch_1_first4000.bin.gz";
    if (!std::filesystem::exists(file)) {
        WARN("skipped: no data");
        return;
    }
    const auto images = read_cifar10({file});
    REQUIRE(images->count == 4000);
    std::map<std::int32_t, int> counts;
    for (std::int32_t label : images->labels) ++counts[label];
    const std::vector<int> expected{396, 366, 420, 384, 422, 393, 414, 385, 407, 413};
    for (std::int32_t c = 0; c < 10; ++c) REQUIRE(counts[c] == expected[static_cast<std::size_t>(c)]);
    // The usual means, in the usual order of channels.
    const auto recipe = cifar10_recipe(false);
    for (std::size_t c = 0; c < 3; ++c) {
        double sum = 0;
        for (std::size_t i = c; i < images->pixels.size(); i += 3) sum += images->pixels[i];
        REQUIRE(sum / (4000.0 * 1024 * 255) == Approx(recipe.mean[c]).margin(0.006));
    }
}

}  // namespace cairn::test
