#include "catch.hpp"
#include "data/writers.hpp"
#include "messages.hpp"

#include <cairn/data/segmentation_volumes.hpp>

#include <set>

namespace cairn::test {
namespace segmentation_tests {

struct sample {
    std::vector<float> x;
    std::vector<std::int32_t> label;
};

sample read_one(const segmentation_volumes& d, index_t i, augment_key key = {}) {
    sample s{std::vector<float>(static_cast<std::size_t>(d.sample_shape().size()), -7.0f),
             std::vector<std::int32_t>(static_cast<std::size_t>(d.targets().labels_each), -7)};
    REQUIRE(d.read(i, key, {s.x.data(), s.label.data(), nullptr}));
    return s;
}

// A volume (4, 3, 2) of 0 … 23, and labels that are 1 where x = 0 and 2 where x = 3.
bytes image() { return nifti_file({}, counting(24)); }
bytes labels() {
    bytes all(24);
    for (std::size_t i = 0; i < 24; ++i) all[i] = i % 4 == 0 ? 1 : i % 4 == 3 ? 2 : 0;
    return nifti_file({}, all);
}

TEST_CASE("segmentation: volumes are normalised, padded and cropped around the middle", "[segmentation]") {
    const temporary_folder folder;
    folder.write("Task/imagesTr/b.nii.gz", gzipped(image()));
    folder.write("Task/labelsTr/b.nii.gz", gzipped(labels()));
    folder.write("Task/imagesTr/._b.nii.gz", std::string("of a Mac"));
    folder.write("Task/imagesTs/c.nii.gz", std::string("has no labels"));
    const segmentation_volumes d(folder.path(), {.size = {2, 5, 2}});
    REQUIRE(d.size() == 1);
    REQUIRE(d.sample_shape() == shape{2, 5, 2, 1});
    REQUIRE(d.targets().names == std::vector<std::string>{"background", "class 1", "class 2"});
    REQUIRE(d.targets().labels_each == 20);
    REQUIRE(d.targets().labels == label_place::voxels);
    REQUIRE(d.sample_name(0).ends_with("b.nii.gz"));
    REQUIRE(d.foreground_and_lost(0) == std::pair<index_t, index_t>{12, 12});
    const sample s = read_one(d, 0);
    const double mean = 11.5, deviation = std::sqrt((24.0 * 24.0 - 1) / 12);
    for (index_t x = 0; x < 2; ++x)
        for (index_t y = 0; y < 5; ++y)
            for (index_t z = 0; z < 2; ++z) {
                const auto at = static_cast<std::size_t>((x * 5 + y) * 2 + z);
                const index_t from = y - 1;  // 5 − 3 rows of padding, one of them in front
                const bool inside = from >= 0 && from < 3;
                const double v = static_cast<double>((z * 3 + from) * 4 + x + 1);
                CHECK(s.x[at] == Approx(inside ? (v - mean) / deviation : 0).margin(1e-6));
                CHECK(s.label[at] == 0);
            }
    const sample whole = read_one(segmentation_volumes(folder.path(), {.size = {4, 3, 2}}), 0);
    for (std::size_t at = 0; at < 24; ++at) CHECK(whole.label[at] == (at < 6 ? 1 : at < 18 ? 0 : 2));
}

TEST_CASE("segmentation: an archive gives what its folder gives, in order of names", "[segmentation]") {
    const temporary_folder folder;
    bytes other = image();
    other.back() = 77;
    const std::vector<std::pair<std::string, bytes>> members{{"images/z.nii", other},
                                                             {"labels/z.nii", labels()},
                                                             {"images/a.nii.gz", gzipped(image())},
                                                             {"labels/a.nii.gz", gzipped(labels())}};
    for (const auto& [name, content] : members) folder.write("d/" + name, content);
    const auto tar = folder.write("d.tar", tar_file(members));
    const segmentation_config c{.size = {5, 4, 3}, .classes = 4};
    const segmentation_volumes a(folder.path() / "d", c), b(tar, c);
    REQUIRE(a.size() == 2);
    REQUIRE(a.targets().count() == 4);
    for (index_t i = 0; i < 2; ++i) {
        CHECK(read_one(a, i).x == read_one(b, i).x);
        CHECK(read_one(a, i).label == read_one(b, i).label);
    }
    CHECK(b.sample_name(0).ends_with("a.nii.gz"));
    CHECK(read_one(a, 0).x != read_one(a, 1).x);
}

TEST_CASE("segmentation: the box moves by epoch and sample, labels with it", "[segmentation]") {
    const temporary_folder folder;
    folder.write("images/a.nii", image());
    folder.write("labels/a.nii", labels());
    const segmentation_volumes d(folder.path(), {.size = {4, 3, 2}, .shift = 1}), still = d.unaugmented();
    std::set<std::vector<float>> seen;
    const sample middle = read_one(still, 0);
    for (std::uint32_t epoch = 0; epoch < 400; ++epoch) {
        const sample s = read_one(d, 0, {1, epoch});
        seen.insert(s.x);
        bool found = false;
        for (index_t dx = -1; dx <= 1; ++dx)
            for (index_t dy = -1; dy <= 1; ++dy)
                for (index_t dz = -1; dz <= 1; ++dz) {
                    bool same = true;
                    for (index_t x = 0; x < 4; ++x)
                        for (index_t y = 0; y < 3; ++y)
                            for (index_t z = 0; z < 2; ++z) {
                                const index_t fx = x + dx, fy = y + dy, fz = z + dz;
                                const bool in = fx >= 0 && fx < 4 && fy >= 0 && fy < 3 && fz >= 0 && fz < 2;
                                const auto from = static_cast<std::size_t>((fx * 3 + fy) * 2 + fz),
                                           to = static_cast<std::size_t>((x * 3 + y) * 2 + z);
                                same &= s.x[to] == (in ? middle.x[from] : 0.0f);
                                same &= s.label[to] == (in ? middle.label[from] : 0);
                            }
                    found |= same;
                }
        REQUIRE(found);
    }
    CHECK(seen.size() == 27);
    CHECK(read_one(d, 0, {1, 3}).x == read_one(d, 0, {1, 3}).x);
}

TEST_CASE("segmentation: channels are normalised one by one", "[segmentation]") {
    const temporary_folder folder;
    folder.write("images/a.nii", nifti_file({.dim = {2, 2, 1, 2}}, bytes{0, 1, 2, 3, 10, 30, 50, 70}));
    folder.write("labels/a.nii", nifti_file({.dim = {2, 2, 1}}, bytes{0, 1, 1, 0}));
    const segmentation_volumes d(folder.path(), {.size = {2, 2, 1}});
    REQUIRE(d.sample_shape() == shape{2, 2, 1, 2});
    const sample s = read_one(d, 0);
    for (std::size_t voxel = 0; voxel < 4; ++voxel) CHECK(s.x[2 * voxel] == Approx(s.x[2 * voxel + 1]));
}

TEST_CASE("segmentation: images with a class for each pixel have two axes", "[segmentation]") {
    const temporary_folder folder;
    cairn::image photograph{5, 4, 3, {}}, classes{5, 4, 1, {}};
    photograph.pixels.resize(60), classes.pixels.resize(20);
    for (std::size_t i = 0; i < 60; ++i) photograph.pixels[i] = static_cast<std::uint8_t>(i * 3 % 100);
    for (std::size_t i = 0; i < 20; ++i) classes.pixels[i] = static_cast<std::uint8_t>(i % 3);
    folder.write("images/a.png", png_file(photograph));
    folder.write("labels/a.png", png_file(classes, PNG_FORMAT_GRAY));
    const segmentation_config config{.size = {3, 4, 1}, .axes = 2, .shift = 1};
    const segmentation_volumes d(folder.path(), config);
    REQUIRE(d.sample_shape() == shape{3, 4, 3});
    REQUIRE(d.targets().spacing == std::vector<double>{1, 1});
    const sample s = read_one(d.unaugmented(), 0);
    double mean = 0, squares = 0;
    for (std::size_t i = 0; i < 20; ++i) mean += photograph.pixels[3 * i + 1] / 20.0;
    for (std::size_t i = 0; i < 20; ++i) squares += std::pow(photograph.pixels[3 * i + 1] - mean, 2) / 20;
    for (std::size_t i = 0; i < 12; ++i) {  // one of two rows is left out in front
        CHECK(s.label[i] == classes.pixels[i + 4]);
        CHECK(static_cast<double>(s.x[3 * i + 1]) ==
              Approx((photograph.pixels[3 * (i + 4) + 1] - mean) / std::sqrt(squares)).margin(1e-5));
    }
    std::set<std::vector<float>> seen;
    for (std::uint32_t epoch = 0; epoch < 100; ++epoch) seen.insert(read_one(d, 0, {1, epoch}).x);
    CHECK(seen.size() == 9);
    folder.write("labels/a.png", png_file(photograph));
    CHECK(contains(message_of([&] { segmentation_volumes(folder.path(), config); }), "a pixel of labels has a colour"));
    classes.resize(4, 5, 1);
    folder.write("labels/a.png", png_file(classes, PNG_FORMAT_GRAY));
    CHECK(contains(message_of([&] { segmentation_volumes(folder.path(), config); }), "labels of shape (4, 5, 1)"));
}

TEST_CASE("segmentation: what is wrong is named", "[segmentation]") {
    const auto why = [](const std::vector<std::pair<std::string, bytes>>& files, segmentation_config c = {}) {
        const temporary_folder folder;
        for (const auto& [name, content] : files) folder.write("d/" + name, content);
        folder.write("d/readme", std::string("text"));
        return message_of([&] { segmentation_volumes(folder.path() / "d", c); });
    };
    CHECK(contains(why({}), "no volume; images/NAME.nii.gz and labels/NAME.nii.gz are expected"));
    CHECK(contains(why({{"images/a.nii", image()}}), "volume a.nii has no file in labels"));
    CHECK(contains(why({{"labels/a.nii", labels()}}), "volume a.nii has no file in images"));
    CHECK(contains(why({{"images/a.nii", image()}, {"labels/a.nii", nifti_file({.dim = {4, 2, 3}}, bytes(24))}}),
                   "labels of shape (4, 2, 3)"));
    bytes apart = labels();
    apart[84 + 2] ^= 0x40;  // of the second axis' spacing
    CHECK(contains(why({{"images/a.nii", image()}, {"labels/a.nii", apart}}), "apart along axis 1"));
    CHECK(contains(why({{"images/a.nii", image()}, {"labels/a.nii", labels()}}, {.size = {4, 3, 1}, .axes = 2}),
                   "a volume of 2 slices"));
    CHECK(contains(why({{"images/a.nii", image()}, {"labels/a.nii", nifti_file({}, bytes(24))}}),
                   "all labels are 0, the background"));
    CHECK(contains(why({{"images/a.nii", nifti_file({}, bytes(24))}, {"labels/a.nii", labels()}}),
                   "all voxels are equal"));
    CHECK(contains(why({{"images/a.nii", image()}, {"labels/a.nii", labels()}}, {.classes = 2}),
                   "has label 2; classes are whole numbers from 0 to 1 (data.segmentation.classes)"));
    CHECK(contains(why({{"images/a.nii", image()}, {"labels/a.nii", nifti_file({.slope = 0.5f}, counting(24))}}),
                   "has label 0.5"));
    CHECK(contains(why({{"images/a.nii", image()}, {"other/images/a.nii", image()}, {"labels/a.nii", labels()}}),
                   "have one name"));
    for (const char* other :
         {"images/b.nrrd", "labels/b.mha", "imagesTr/b.img.gz", "labelsTr/b.dcm", "images/b.npy", "labels/b"})
        CHECK(contains(why({{"images/a.nii", image()}, {"labels/a.nii", labels()}, {other, image()}}),
                       concat(other, ": a volume in a format that is not read; save it as .nii.gz")));
    CHECK(contains(why({{"images/a.nii", image()}, {"labels/a.nii", labels()}, {"images/B.NII", image()}}),
                   "volume B.NII has no file in labels"));
    CHECK(why({{"images/a.nii", image()}, {"labels/a.nii", labels()}, {"images/a.json", image()}}).empty());
    CHECK(contains(why({{"images/a.nii", image()}, {"labels/a.nii", labels()}}, {.size = {1, 0, 1}}), "0 voxels"));
    CHECK(contains(message_of([] { segmentation_volumes("/nowhere", {}); }), "/nowhere"));
}

TEST_CASE("segmentation: the real hippocampi", "[segmentation]") {
    const auto archive = real_data() / "hippocampus3d" / "hippocampus-260.tar";
    if (real_data().empty() || !std::filesystem::exists(archive)) {
        WARN("skipped: no data");
        return;
    }
    const segmentation_volumes d(archive, {.size = {32, 56, 40}});
    REQUIRE(d.size() == 260);
    REQUIRE(d.targets().count() == 3);
    for (index_t i = 0; i < d.size(); ++i) {
        const auto [foreground, lost] = d.foreground_and_lost(i);
        CHECK(foreground >= 2382);  // SOURCE.txt
        CHECK(foreground <= 4401);
        CHECK(lost == 0);
    }
}

}  // namespace segmentation_tests
}  // namespace cairn::test
