#include "catch.hpp"
#include "data/writers.hpp"
#include "oracle/data_resize.hpp"

#include <cairn/data/image_folder.hpp>
#include <cairn/data/loader.hpp>

namespace cairn::test {
namespace {

using Catch::Matchers::Contains;
using files = std::vector<std::pair<std::string, bytes>>;

// Three classes of four pictures, two of the files in PNG.
files three_classes(const std::string& root = "") {
    files out;
    for (int c = 0; c < 3; ++c)
        for (unsigned i = 0; i < 4; ++i) {
            const image in = picture(30 + c, 40, 10 * static_cast<unsigned>(c) + i, i == 3 ? 1 : 3);
            const bool png = i == 1 && c > 0;
            out.emplace_back(concat(root, "class", c, "/", i,
                                    png      ? ".png"
                                    : i == 2 ? ".JPEG"
                                             : ".jpg"),
                             png ? png_file(in) : jpeg_file(in));
        }
    return out;
}

void unpack(const temporary_folder& folder, const files& all) {
    for (const auto& [name, content] : all) {
        if (name.ends_with('/'))
            std::filesystem::create_directories(folder.path() / name);
        else
            folder.write(name, content);
    }
}

std::vector<index_t> all_of(const image_collection& c) {
    std::vector<index_t> all;
    for (index_t i = 0; i < c.size(); ++i) all.push_back(i);
    return all;
}

std::vector<float> read_one(const image_folder& d, index_t i, augment_key key = {}) {
    std::vector<float> x(static_cast<std::size_t>(d.sample_shape().size()));
    std::int32_t label = 0;
    REQUIRE(d.read(i, key, {x.data(), &label, nullptr}));
    return x;
}

}  // namespace

TEST_CASE("image folder: plain folders and archives hold the same samples", "[image_folder]") {
    const temporary_folder folder;
    unpack(folder, three_classes());
    folder.write("class0/notes.txt", "not an image");
    folder.write("class0/._0.jpg", "macOS leaves these");
    std::vector<std::shared_ptr<image_collection>> collections{std::make_shared<image_collection>(folder.path())};
    const temporary_folder archives;
    for (const char* filter : {"", "gzip"})
        for (const char* root : {"", "top/", "./deep/down/"})
            collections.push_back(
                std::make_shared<image_collection>(archives.write("a.tar", tar_file(three_classes(root), filter))));
    for (const auto& c : collections) {
        REQUIRE(c->size() == 12);
        REQUIRE(c->classes() == std::vector<std::string>{"class0", "class1", "class2"});
        const image_folder d(c, all_of(*c), {.size = 24, .augmented = true, .resize = 28});
        const image_folder reference(collections[0], all_of(*collections[0]), d.config());
        REQUIRE(d.sample_shape() == shape{24, 24, 3});
        for (index_t i = 0; i < 12; ++i) {
            REQUIRE(c->label(i) == i / 4);
            REQUIRE(d.sample_name(i).find(concat("class", i / 4)) != std::string::npos);
            REQUIRE(read_one(d, i, {1, 2}) == read_one(reference, i, {1, 2}));
        }
    }
}

TEST_CASE("image folder: pixels against the definition", "[image_folder]") {
    const temporary_folder folder;
    unpack(folder, three_classes());
    const auto c = std::make_shared<image_collection>(folder.path());
    for (bool augmented : {false, true}) {
        const image_folder_config config{.size = 24, .augmented = augmented, .resize = 28};
        const image_folder d(c, all_of(*c), config);
        for (index_t i = 0; i < 12; ++i) {
            const augment_key key{5, 7};
            const auto x = read_one(d, i, key);
            image whole;
            std::vector<std::uint8_t> buffer;
            detail::decode_image(c->bytes(i, buffer), "x", whole);
            sample_random random(key, i);
            const pixel_box box = augmented ? config.crop(whole.height, whole.width, random)
                                            : centre_crop{28, 24}(whole.height, whole.width);
            const bool mirrored = augmented && random.coin(0.5f);
            const auto expected = oracle::resize(whole, box, 24, 24, mirrored);
            for (std::size_t k = 0; k < x.size(); ++k) {
                const double value = (static_cast<double>(x[k]) * static_cast<double>(config.std[k % 3]) +
                                      static_cast<double>(config.mean[k % 3])) *
                                     255;
                REQUIRE(value == Approx(expected[k]).margin(2e-3));
            }
        }
    }
}

TEST_CASE("image folder: values that are rounded are the nearest of 256", "[image_folder]") {
    const temporary_folder folder;
    unpack(folder, three_classes());
    const auto c = std::make_shared<image_collection>(folder.path());
    for (const float jitter : {0.0f, 0.4f}) {
        image_folder_config config{.size = 24, .jitter = {jitter, jitter, 0, 0}, .resize = 28};
        const image_folder exact(c, all_of(*c), config);
        config.rounded = true;
        const image_folder rounded(c, all_of(*c), config);
        CHECK(exact.pixel_table().empty());
        const std::vector<float> table = rounded.pixel_table();
        for (index_t i = 0; i < 12; ++i) {
            const augment_key key{5, 7};
            const auto x = read_one(exact, i, key), y = read_one(rounded, i, key);
            std::vector<std::uint8_t> pixels(x.size());
            crop_flip move{1, 2, 1};
            std::int32_t label = -1;
            REQUIRE(rounded.read_pixels(i, key, {pixels.data(), &move, &label, nullptr}));
            CHECK(label == i / 4);
            CHECK(move == crop_flip{});
            for (std::size_t k = 0; k < x.size(); ++k) {
                const double value = (static_cast<double>(x[k]) * static_cast<double>(config.std[k % 3]) +
                                      static_cast<double>(config.mean[k % 3])) *
                                     255;
                REQUIRE(std::abs(value - pixels[k]) < 0.501);
                REQUIRE(y[k] == table[k % 3 * 256 + pixels[k]]);
                REQUIRE(static_cast<double>(y[k]) ==
                        Approx((pixels[k] / 255.0 - static_cast<double>(config.mean[k % 3])) /
                               static_cast<double>(config.std[k % 3]))
                            .margin(1e-5));
            }
        }
    }
}

TEST_CASE("image folder: parts by folder, or by a split that keeps the share of every class", "[image_folder]") {
    const temporary_folder folder;
    files all = three_classes("train/");
    for (auto& f : three_classes("val/"))
        if (f.first.find("class1") == std::string::npos) all.push_back(f);
    unpack(folder, all);
    const image_collection parts(folder.path());
    REQUIRE(parts.size() == 20);
    REQUIRE(parts.classes().size() == 3);
    REQUIRE(parts.part_of(part::train).size() == 12);
    REQUIRE(parts.part_of(part::test).size() == 8);
    for (index_t i : parts.part_of(part::test)) REQUIRE(parts.label(i) != 1);

    const temporary_folder single;
    unpack(single, three_classes());
    const image_collection c(single.path());
    const auto train = c.part_of(part::train, 0.75, 1), test = c.part_of(part::test, 0.75, 1);
    REQUIRE(train.size() == 9);
    REQUIRE(test.size() == 3);
    std::set<std::int32_t> labels;
    for (index_t i : test) labels.insert(c.label(i));
    REQUIRE(labels.size() == 3);
    REQUIRE(c.part_of(part::train, 0.75, 2) != train);
    REQUIRE(c.part_of(part::train, 1).size() == 12);
    REQUIRE(c.part_of(part::test, 1).empty());
    REQUIRE(c.part_of(part::train, 0).empty());
    REQUIRE_THAT(message_of([&] { c.part_of(part::test, 0.9); }),
                 Contains(single.path().string() + ": 0.9 of each class") && Contains("no image for the test part"));
    REQUIRE_THAT(message_of([&] { c.part_of(part::train, 0.1); }), Contains("no image for the train part"));

    const temporary_folder only_train;
    unpack(only_train, three_classes("train/"));
    REQUIRE_THAT(message_of([&] { image_collection(only_train.path()).part_of(part::test); }),
                 Contains("none called test, val, valid or validation"));
}

TEST_CASE("image folder: the validation set is a part of its own", "[image_folder]") {
    for (const char* name : {"val", "valid", "validation", "Val"}) {
        const temporary_folder folder, archives;
        files all = three_classes("set/Train/");
        for (auto& f : three_classes(concat("set/", name, "/")))
            if (!f.first.ends_with("/0.jpg")) all.push_back(f);
        unpack(folder, all);
        const image_collection two(folder.path());
        CHECK(two.part_of(part::train).size() == 12);
        CHECK(two.part_of(part::test) == two.validation());  // as in ImageNet
        for (auto& f : three_classes("set/test/"))
            if (f.first.ends_with("/0.jpg")) all.push_back(f);
        unpack(folder, all);
        const image_collection three(folder.path());
        CHECK(three.part_of(part::train).size() == 12);
        CHECK(three.validation().size() == 9);
        CHECK(three.part_of(part::test).size() == 3);
        for (const index_t i : three.part_of(part::test)) CHECK(three.name(i).ends_with("/0.jpg"));
        CHECK(image_collection(archives.write("a.tar", tar_file(all))).validation().size() == 9);

        folder.write("set/dev/class1/x.jpg", jpeg_file(picture(8, 8)));
        CHECK_THAT(message_of([&] { image_collection{folder.path()}; }),
                   Contains(": has folders by part, but image 'set/dev/class1/x.jpg' lies in none of them; call its "
                            "part train, val or test"));
    }
    const temporary_folder single;
    unpack(single, three_classes());
    CHECK(image_collection(single.path()).validation().empty());
}

TEST_CASE("image folder: images in formats that are not read are refused by name", "[image_folder]") {
    for (const char* ending : {"bmp", "webp", "tif", "TIFF", "gif", "heic", "avif", "jp2", "jxl", "ppm"})
        for (const bool archive : {false, true}) {
            files all = three_classes();
            all.emplace_back(concat("class2/z.", ending), counting(30));
            all.emplace_back(concat("class1/a.", ending), counting(30));
            const temporary_folder folder;
            auto path = folder.path();
            if (archive)
                path = folder.write("a.tar", tar_file(all));
            else
                unpack(folder, all);
            CHECK_THAT(message_of([&] { image_collection{path}; }),
                       Contains(concat(path.string(), ": image 'class1/a.", ending,
                                       "' and 1 more are in a format that is not read; convert to .png or .jpg")));
        }
    const temporary_folder folder;
    unpack(folder, three_classes());
    folder.write("banner.gif", "in no class folder");
    folder.write("class0/._x.bmp", "of macOS");
    folder.write("class0/x.JFIF", jpeg_file(picture(8, 8)));
    folder.write("class0/y.jpe", jpeg_file(picture(8, 8)));
    CHECK(image_collection(folder.path()).size() == 14);
}

TEST_CASE("image folder: layouts that would be mixed up are refused, hidden folders are left alone", "[image_folder]") {
    const auto why = [](const std::vector<std::string>& names) {
        files all;
        for (const std::string& name : names) all.emplace_back(name, jpeg_file(picture(8, 8)));
        const temporary_folder folder, archives;
        unpack(folder, all);
        const std::string of_archive = message_of([&] { image_collection{archives.write("a.tar", tar_file(all))}; });
        const std::string message = message_of([&] { image_collection{folder.path()}; });
        CHECK(message.empty() == of_archive.empty());
        return message;
    };
    // Parts by names that are not known.
    CHECK_THAT(why({"train2017/a/1.jpg", "val2017/a/2.jpg"}),
               Contains("class folders 'train2017/a' and 'val2017/a' have one name") &&
                   Contains("call those train, val and test"));
    CHECK_THAT(why({"a/train/1.jpg", "b/train/1.jpg", "b/c/1.jpg"}), Contains("class folders 'a/train' and 'b/train'"));
    // Parts without class folders.
    CHECK_THAT(why({"test/1.jpg", "train/1.jpg"}),
               Contains("image 'test/1.jpg' lies in a part, but in no class folder of it"));
    CHECK(why({"plane/1.jpg", "train/1.jpg"}).empty());  // a class
    // Classes that nothing is trained on.
    CHECK_THAT(why({"train/a/1.jpg", "train/b/1.jpg", "val/b/1.jpg", "test/A/1.jpg"}),
               Contains("class 'A' has no image in train"));
    CHECK(why({"train/a/1.jpg", "train/b/1.jpg", "test/b/1.jpg"}).empty());
    CHECK_THAT(why({"a/1.jpg", "a/2.mpo"}), Contains("'a/2.mpo' is in a format that is not read"));

    files all = three_classes();
    for (const char* name : {".ipynb_checkpoints/x.jpg", "class1/.ipynb_checkpoints/y.jpg", "__MACOSX/class1/z.jpg"})
        all.emplace_back(name, jpeg_file(picture(8, 8)));
    all.emplace_back(".git/", bytes{});
    const temporary_folder folder, archives;
    unpack(folder, all);
    CHECK(image_collection(folder.path()).size() == 12);
    CHECK(image_collection(archives.write("a.tar", tar_file(all))).classes().size() == 3);
    std::filesystem::create_symlink("nowhere", folder.path() / "class9");
    CHECK_THAT(message_of([&] { image_collection{folder.path()}; }), Contains("link 'class9' leads nowhere"));
}

TEST_CASE("image folder: corrupt images stop the run by name, or are left out", "[image_folder]") {
    files all = three_classes();
    all[5].second.resize(all[5].second.size() / 2);  // class1/1.png
    all[6].second.resize(all[6].second.size() / 2);  // class1/2.JPEG
    all[8].second.clear();                           // class2/0.jpg
    const temporary_folder folder;
    unpack(folder, all);
    const auto tar = folder.write("../" + folder.path().filename().string() + ".tar", tar_file(all));
    for (const auto& root : {folder.path(), tar}) {
        const auto c = std::make_shared<image_collection>(root);
        const image_folder stop(c, all_of(*c), {.size = 8, .resize = 8});
        std::vector<float> x(8 * 8 * 3);
        std::int32_t label = 0;
        REQUIRE_THAT(message_of([&] {
                         stop.read(5, {}, {x.data(), &label, nullptr});
                     }),
                     Contains("class1/1.png") && Contains("truncated or corrupt"));
        REQUIRE_THAT(message_of([&] {
                         stop.read(6, {}, {x.data(), &label, nullptr});
                     }),
                     Contains("class1/2.JPEG") && Contains("corrupt JPEG"));
        REQUIRE_THAT(message_of([&] {
                         stop.read(8, {}, {x.data(), &label, nullptr});
                     }),
                     Contains("class2/0.jpg: empty file"));
        for (index_t cache : {0, 1 << 20}) {
            loader l(image_folder(c, all_of(*c),
                                  {.size = 8, .resize = 8, .corrupt = corrupt_image::skip, .cache_bytes = cache}),
                     {.batch = 4, .workers = 2});
            std::set<std::string> skipped;
            index_t count = 0;
            while (auto b = l.next()) {
                count += b->count;
                skipped.insert(b->skipped.begin(), b->skipped.end());
            }
            REQUIRE(count == 9);
            REQUIRE(skipped.size() == 3);
            REQUIRE(skipped.begin()->ends_with("class1/1.png"));
        }
        REQUIRE_THAT(message_of([&] { image_folder(c, all_of(*c), {.size = 8, .resize = 8, .cache_bytes = 1 << 20}); }),
                     Contains("class"));
    }
    std::filesystem::remove(tar);
}

TEST_CASE("image folder: empty classes, no classes, no images", "[image_folder]") {
    files all = three_classes();
    all.emplace_back("class9/", bytes{});
    for (bool archive : {false, true}) {
        const temporary_folder folder;
        auto path = folder.path();
        if (archive)
            path = folder.write("a.tar", tar_file(all));
        else
            unpack(folder, all);
        REQUIRE_THAT(message_of([&] { image_collection{path}; }), Contains("class folder 'class9' holds no image"));
        const image_collection c(path, empty_class::leave_out);
        REQUIRE(c.left_out() == std::vector<std::string>{"class9"});
        REQUIRE(c.classes().size() == 3);
    }
    const temporary_folder folder;
    folder.write("a/notes.txt", "text");
    REQUIRE_THAT(message_of([&] { image_collection{folder.path()}; }),
                 Contains("no image") && Contains("1 other file"));
    REQUIRE_THAT(message_of([&] { image_collection{folder.path() / "a" / "notes.txt"}; }),
                 Contains("neither a folder nor an archive"));
    folder.write("lost.jpg", jpeg_file(picture(8, 8)));
    REQUIRE_THAT(message_of([&] { image_collection(folder.path(), empty_class::leave_out); }),
                 Contains("'lost.jpg' lies in no class folder"));
}

TEST_CASE("image folder: an empty class says what its reader may do", "[image_folder]") {
    const temporary_folder folder;
    unpack(folder, three_classes());
    std::filesystem::create_directories(folder.path() / "class9");
    CHECK_THAT(message_of([&] { image_collection{folder.path()}; }), Catch::EndsWith("; remove or fill it"));
    CHECK_THAT(message_of([&] {
                   image_collection(folder.path(), empty_class::stop, "set data.folder.empty_class = leave_out");
               }),
               Catch::EndsWith("; remove or fill it, or set data.folder.empty_class = leave_out"));
}

TEST_CASE("image folder: links to other folders are followed, loops of links are named", "[image_folder]") {
    const temporary_folder folder, other;
    unpack(folder, three_classes());
    unpack(other, three_classes());
    const auto link = [&](const std::filesystem::path& to, const char* name) {
        std::filesystem::create_directory_symlink(to, folder.path() / name);
    };
    const auto why = [&] { return message_of([&] { image_collection{folder.path()}; }); };
    link(other.path() / "class0", "class4");
    link(folder.path() / "class0", "class5");  // twice the same folder is no loop
    CHECK(image_collection(folder.path()).size() == 20);

    for (const char* to : {"..", ".", "../../"}) {
        link(to, "class1/up");
        CHECK_THAT(why(), Contains("link 'class1/up' leads back to") && Contains("remove it"));
        std::filesystem::remove(folder.path() / "class1" / "up");
    }
    link("../class2", "class1/two");
    link("../class1", "class2/one");  // each is fine without the other
    CHECK_THAT(why(), Contains("leads back to") && (Contains("class1/two/one") || Contains("class2/one/two")));
    std::filesystem::remove(folder.path() / "class2" / "one");
    CHECK(image_collection(folder.path()).size() == 24);
    link("self", "class1/self");
    CHECK_THAT(why(), Contains("link 'class1/self' leads to itself"));
}

TEST_CASE("image folder: the cache of decoded images", "[image_folder]") {
    const temporary_folder folder;
    unpack(folder, three_classes());
    const auto c = std::make_shared<image_collection>(folder.path());
    image_folder_config config{.size = 24, .resize = 28};
    const image_folder plain(c, all_of(*c), config);
    config.cache_bytes = 1 << 20;
    const image_folder cached(c, all_of(*c), config);
    config.cache_bytes = 100;
    const image_folder too_small(c, all_of(*c), config);
    REQUIRE(cached.cached());
    REQUIRE_FALSE(too_small.cached());
    REQUIRE_FALSE(plain.cached());
    for (index_t i = 0; i < 12; ++i) {
        REQUIRE(read_one(cached, i, {1, 1}) == read_one(plain, i, {1, 1}));
        REQUIRE(read_one(too_small, i, {1, 1}) == read_one(plain, i, {1, 1}));
    }
    config.augmented = false;
    const image_folder centres(c, all_of(*c), config);
    REQUIRE(cached.unaugmented().cached());
    for (index_t i = 0; i < 12; ++i) REQUIRE(read_one(cached.unaugmented(), i, {1, 1}) == read_one(centres, i));
}

TEST_CASE("image folder: jitter keeps values in range and depends on the epoch", "[image_folder]") {
    const temporary_folder folder;
    unpack(folder, three_classes());
    const auto c = std::make_shared<image_collection>(folder.path());
    const image_folder d(c, all_of(*c), {.size = 16, .jitter = {0.4f, 0.4f, 0.4f, 0.1f}, .resize = 16});
    REQUIRE(read_one(d, 3, {1, 1}) == read_one(d, 3, {1, 1}));
    REQUIRE(read_one(d, 3, {1, 1}) != read_one(d, 3, {1, 2}));
    const auto x = read_one(d, 3, {1, 1});
    for (std::size_t k = 0; k < x.size(); ++k) {
        const float value = x[k] * d.config().std[k % 3] + d.config().mean[k % 3];
        REQUIRE(value > -1e-4f);
        REQUIRE(value < 1 + 1e-4f);
    }
}

TEST_CASE("image folder: images of one size become an array", "[image_folder]") {
    const temporary_folder folder;
    files all;
    for (unsigned i = 0; i < 70; ++i)
        all.emplace_back(concat("c", i % 2, "/", 100 + i, ".png"), png_file(picture(8, 9, i)));
    unpack(folder, all);
    const image_collection c(folder.path());
    const auto images = decode_all(c, all_of(c), "seventy");
    REQUIRE(images->count == 70);
    REQUIRE(images->height == 8);
    REQUIRE(images->labels[34] == 0);
    REQUIRE(images->labels[35] == 1);
    REQUIRE(std::equal(images->pixels.begin(), images->pixels.begin() + 216, picture(8, 9, 0).pixels.begin()));
    REQUIRE(std::equal(images->pixels.end() - 216, images->pixels.end(), picture(8, 9, 69).pixels.begin()));
    folder.write("c1/999.png", png_file(picture(8, 8)));
    const image_collection d(folder.path());
    REQUIRE_THAT(message_of([&] { decode_all(d, all_of(d), "seventy"); }),
                 Contains("999.png: 8 × 8 pixels, the first image has 8 × 9"));
}

TEST_CASE("image folder: the real archives", "[image_folder]") {
    const auto data = real_data();
    if (!std::filesystem::exists(data / "caltech101-subset")) {
        WARN("skipped: no data");
        return;
    }
    const auto caltech = std::make_shared<image_collection>(data / "caltech101-subset" / "caltech101-25x60.tar");
    REQUIRE(caltech->size() == 1500);
    REQUIRE(caltech->classes().size() == 25);
    REQUIRE(caltech->part_of(part::train, 0.8, 0).size() == 1200);
    loader l(image_folder(caltech, caltech->part_of(part::test, 0.8, 0), {.size = 64, .resize = 72}),
             {.batch = 50, .workers = 2});
    index_t count = 0;
    while (auto b = l.next()) count += b->count;
    REQUIRE(count == 300);

    const image_collection cifar(data / "cifar10" / "cifar10-jpeg.tar.gz");
    REQUIRE(cifar.size() == 60000);
    REQUIRE(cifar.part_of(part::train).size() == 50000);
    REQUIRE(cifar.part_of(part::test).size() == 10000);
    REQUIRE(cifar.classes().front() == "airplane");
    REQUIRE(cifar.classes().back() == "truck");
    const auto few = cifar.part_of(part::test);
    const auto images = decode_all(cifar, {few.begin(), few.begin() + 2000}, "CIFAR-10 from JPEG");
    REQUIRE(images->height == 32);
}

}  // namespace cairn::test
