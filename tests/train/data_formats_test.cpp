// Settings of data that are read and refused.

#include <cairn/train/data_formats.hpp>

#include "catch.hpp"
#include "messages.hpp"
#include "state/temporary_folder.hpp"

#include <set>

using namespace cairn;

namespace {

// Bytes of an IDX file.
void write_idx(const std::filesystem::path& file, std::initializer_list<int> extents, const std::string& elements) {
    std::string bytes{'\0', '\0', '\x08', static_cast<char>(extents.size())};
    for (const int extent : extents)
        bytes += {'\0', '\0', static_cast<char>(extent / 256), static_cast<char>(extent % 256)};
    std::ofstream(file, std::ios::binary) << bytes << elements;
}

// Digits 0 to 3, 25 images of each, in their order: class folders lie so too. Image i has the pixels i + 1.
void write_sorted_digits(const std::filesystem::path& folder, int count = 100) {
    std::string labels, pixels;
    for (int i = 0; i < count; ++i) {
        labels += static_cast<char>(i / 25);
        pixels.append(28 * 28, static_cast<char>(i + 1));
    }
    for (const std::string part : {"train", "t10k"}) {
        write_idx(folder / (part + "-labels-idx1-ubyte"), {count}, labels);
        write_idx(folder / (part + "-images-idx3-ubyte"), {count, 28, 28}, pixels);
    }
}

data_parts data_of(const std::filesystem::path& path, const std::string& settings, std::uint64_t seed = 1) {
    configuration c = configuration::from_text("[data]\npath = '" + path.string() + "'\n" + settings);
    return make_data(c, false, seed);
}

struct sample_read {
    std::vector<float> x;
    std::vector<std::int32_t> label;
    friend bool operator==(const sample_read&, const sample_read&) = default;
};

sample_read read(const any_dataset& d, index_t i, std::uint32_t epoch) {
    sample_read s{std::vector<float>(static_cast<std::size_t>(d.sample_shape().size())),
                  std::vector<std::int32_t>(static_cast<std::size_t>(d.targets().labels_each))};
    REQUIRE(d.read(i, {1, epoch}, {s.x.data(), s.label.data(), nullptr}));
    return s;
}

std::set<std::string> names(const any_dataset& d) {
    std::set<std::string> all;
    for (index_t i = 0; i < d.size(); ++i) all.insert(d.sample_name(i));
    return all;
}

std::set<std::int32_t> classes(const any_dataset& d) {
    std::set<std::int32_t> all;
    for (index_t i = 0; i < d.size(); ++i) all.insert(read(d, i, 0).label[0]);
    return all;
}

struct nothing_format {
    static constexpr const char* name = "test-nothing";
    int parts = 2;
    template <class Table>
    void read(Table& table) {
        table("parts", parts, from_to(1, 3));
    }
    data_parts without_files(std::uint64_t seed) const { return synthetic_parts({3}, numbered_classes(parts), seed); }
    data_parts load() const { return make_data_parts(synthetic_data(0, {3}, numbered_classes(parts), 1), {}); }
};

bool disjoint(const std::set<std::string>& a, const std::set<std::string>& b) {
    return std::ranges::none_of(a, [&](const std::string& name) { return b.contains(name); });
}

}  // namespace

TEST_CASE("data: a format reads its own table, and no other", "[settings]") {
    register_data_format<nothing_format> nothing;
    const auto of = [](const std::string& text) {
        configuration settings = configuration::from_text("[data]\n" + text);
        const data_parts parts = make_data(settings, true, 1);
        settings.check_all_used();
        return parts;
    };
    const auto why = [&](const std::string& text) { return test::message_of([&] { of(text); }); };
    CHECK(of("format = 'test-nothing'\ntest-nothing.parts = 3\n").info.count() == 3);
    CHECK(of("format = 'test-nothing'\n").info.count() == 2);
    CHECK(test::contains(why("format = 'test-nothing'\n[data.test-nothing]\nparts = 4\n"),
                         "(text):4: data.test-nothing.parts = 4 is out of range; it must be at least 1 and at most 3"));
    CHECK(test::contains(why("format = 'mnist'\nshift = 3\n"),
                         "setting 'data.shift' is not known for this workload; did you mean 'data.mnist.shift'?"));
    CHECK(
        test::contains(why("format = 'mnist'\n[data.text]\nlength = 3\n"), "setting 'data.text.length' is not known"));
    CHECK(test::contains(why("format = 'folder'\n[data.folder]\nnormalise = 'imagnet'\n"),
                         "data.folder.normalise: 'imagnet' is not known; did you mean 'imagenet'?"));
    CHECK(test::contains(why("format = 'folder'\n[data.folder]\nnormalise = true\n"), "must be a string"));
    configuration settings =
        configuration::from_text("[data]\nformat = 'folder'\n[data.folder]\nsize = 112\nflip = false\n");
    make_data(settings, true, 1);
    CHECK(test::contains(settings.resolved(), "\n[data.folder]\narea_min = 0.0"));
    CHECK(test::contains(settings.resolved(), "\nresize = 128\n"));
    CHECK(test::contains(settings.resolved(), "\ncorrupt = 'stop'\n") +
              test::contains(settings.resolved(), "\ncorrupt = \"stop\"\n") ==
          1);
}

TEST_CASE("data: a path of any bytes comes back from the record of a run", "[settings]") {
    std::string every;
    for (int i = 1; i < 256; ++i) every += static_cast<char>(i);
    for (const std::string& path :
         {std::string("/home/andr\xe9/data"), std::string("\xff\xfe"),
          std::string("/\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), std::string("\xee\xbe\x80\xee\xbf\xbf\xee\xbf"),
          std::string("\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80\xe2\x82"), every}) {
        configuration settings;
        settings.set_text("data.path", path);
        settings.get<std::string>("data.path", "");
        CHECK(configuration::from_text(settings.resolved()).get<std::string>("data.path", "") == path);
    }
    configuration settings;
    settings.set_text("data.path", "/daten/\xc3\xa9");
    settings.get<std::string>("data.path", "");
    CHECK(test::contains(settings.resolved(), "/daten/\xc3\xa9"));  // UTF-8 stays as it is
}

TEST_CASE("data: a folder's validation set is tested on where settings ask for it", "[settings]") {
    const temporary_folder folder;
    const auto write = [&](const std::string& part, int count) {
        for (const std::string name : {"cat", "dog"}) {
            std::filesystem::create_directories(folder / part / name);
            for (int i = 0; i < count; ++i)
                std::ofstream(folder / part / name / (std::to_string(i) + ".png")) << "not read here";
        }
    };
    write("train", 10);
    write("valid", 4);
    const auto all_below = [](const any_dataset& d, const std::string& part) {
        return std::ranges::all_of(names(d),
                                   [&](const std::string& name) { return test::contains(name, "/" + part + "/"); });
    };
    CHECK(data_of(folder.path, "format = 'folder'\n").test.size() == 8);  // as in ImageNet
    write("test", 3);
    const data_parts plain = data_of(folder.path, "format = 'folder'\n");
    CHECK((plain.train.size() == 20 && plain.test.size() == 6 && all_below(plain.test, "test")));
    const data_parts some = data_of(folder.path, "format = 'folder'\nvalidation = 5\ntrain_samples = 20\n"),
                     all = data_of(folder.path, "format = 'folder'\nvalidation = 8\n", 3);
    CHECK((some.train.size() == 20 && some.test.size() == 5 && all_below(some.test, "valid")));
    CHECK((all.train.size() == 20 && all.test.size() == 8 && all_below(all.train, "train")));
    CHECK(std::ranges::includes(names(all.test), names(some.test)));
    CHECK(test::contains(test::message_of([&] { data_of(folder.path, "format = 'folder'\nvalidation = 9\n"); }),
                         "data.validation = 9 is out of range; it must be at least 0 and at most 8"));
}

TEST_CASE("data: segmentation and graphs without files, and what they refuse", "[settings]") {
    const auto of = [](const std::string& text) {
        configuration settings = configuration::from_text(text);
        return make_data(settings, true, 1);
    };
    const data_parts volumes =
        of("[data]\nformat = 'segmentation'\nsegmentation.size = [4, 6, 8]\nsegmentation.classes = 4\n");
    CHECK(volumes.sample == shape{4, 6, 8, 1});
    CHECK(volumes.info.labels_each == 192);
    CHECK(volumes.info.count() == 4);
    std::vector<float> x(192);
    std::vector<std::int32_t> label(192, -1);
    volumes.train.read(3, {}, {x.data(), label.data(), nullptr});
    for (const std::int32_t l : label) CHECK((l >= 0 && l < 4));
    CHECK(test::contains(test::message_of([&] { of("[data]\nformat = 'segmentation'\nsegmentation.size = [4]\n"); }),
                         "data.segmentation.size has 1 extents"));
    CHECK(of("[data]\nformat = 'segmentation'\nsegmentation.size = [4, 6]\nsegmentation.classes = 2\n").sample ==
          shape{4, 6, 1});
    const data_parts nodes = of("[data]\nformat = 'graph'\n");
    REQUIRE(nodes.graph);
    CHECK(nodes.sample[0] == nodes.graph->rows);
    CHECK(nodes.info.labels == label_place::nodes);
    configuration missing = configuration::from_text("[data]\nformat = 'graph'\npath = '/nowhere'\n");
    CHECK(test::contains(test::message_of([&] { make_data(missing, false, 1); }), "benchmarks/fetch_data graph"));
}

TEST_CASE("data: a validation part is drawn, from every class and the same in every run", "[settings]") {
    const temporary_folder folder;
    write_sorted_digits(folder.path);
    const data_parts held = data_of(folder.path, "format = 'mnist'\nmnist.shift = 6\nvalidation = 20\n");
    CHECK(held.train.size() == 80);
    CHECK(held.test.size() == 20);
    CHECK(disjoint(names(held.train), names(held.test)));
    CHECK(classes(held.train).size() == 4);
    CHECK(classes(held.test).size() == 4);
    const data_parts few = data_of(folder.path, "format = 'mnist'\ntrain_samples = 20\nvalidation = 20\n", 2);
    CHECK(few.train.size() == 20);
    CHECK(classes(few.train).size() == 4);
    CHECK(names(few.test) == names(held.test));
    CHECK(std::ranges::includes(names(held.train), names(few.train)));
    const data_parts more = data_of(folder.path, "format = 'mnist'\nvalidation = 30\n");
    CHECK(std::ranges::includes(names(more.test), names(held.test)));
    const data_parts fewer = data_of(folder.path, "format = 'mnist'\ntrain_samples = 20\n");
    CHECK(names(fewer.train) == names(few.train));
    CHECK(fewer.test.size() == 100);
}

TEST_CASE("data: what is held out is read without augmentation", "[settings]") {
    const temporary_folder folder;
    write_sorted_digits(folder.path);
    const data_parts held = data_of(folder.path, "format = 'mnist'\nmnist.shift = 6\nvalidation = 20\n");
    int moved = 0;
    for (index_t i = 0; i < 20; ++i) {
        CHECK(read(held.test, i, 0) == read(held.test, i, 1));
        moved += read(held.train, i, 0) != read(held.train, i, 1);
    }
    CHECK(moved > 10);
}

TEST_CASE("data: a text's end is held out, and no byte of it is trained on", "[settings]") {
    const temporary_folder folder;
    std::string text;  // byte i is i
    for (int i = 0; i < 250; ++i) text += static_cast<char>(i);
    std::ofstream(folder / "letters.txt", std::ios::binary) << text;
    const std::string settings =
        "format = 'text'\ntext.file = 'letters.txt'\ntext.length = 10\ntext.test_fraction = 0.0\n";
    const index_t all = data_of(folder.path, settings).train.size();
    const data_parts held = data_of(folder.path, settings + "train_samples = 6\nvalidation = 5\n");
    CHECK(held.train.size() == 6);
    const data_parts full = data_of(folder.path, settings + "validation = 5\n");
    REQUIRE(full.train.size() == all - 5);
    REQUIRE(full.test.size() == 5);
    std::int32_t last = 0, first = 255;
    for (std::uint32_t epoch = 0; epoch < 200; ++epoch) {
        for (index_t i = 0; i < full.train.size(); ++i) last = std::max(last, read(full.train, i, epoch).label.back());
        for (index_t i = 0; i < 5; ++i) {
            CHECK(read(full.test, i, epoch) == read(full.test, i, 0));
            first = std::min(first, read(full.test, i, epoch).label.front());
        }
    }
    CHECK(last < first);
    CHECK(read(held.train, 5, 3) == read(full.train, 5, 3));
}

TEST_CASE("data: no part for tests, and none to train on", "[settings]") {
    const temporary_folder folder;
    for (const std::string name : {"cat", "dog"}) {
        std::filesystem::create_directories(folder / name);
        for (int i = 0; i < 5; ++i) std::ofstream(folder / name / (std::to_string(i) + ".png")) << "not read here";
    }
    const data_parts all = data_of(folder.path, "format = 'folder'\nfolder.test_fraction = 0.0\n");
    CHECK(all.train.size() == 10);
    CHECK_FALSE(all.test);
    CHECK(data_of(folder.path, "format = 'folder'\n").test.size() == 2);
    const data_parts held = data_of(folder.path, "format = 'folder'\nfolder.test_fraction = 0.0\nvalidation = 3\n");
    CHECK(held.train.size() == 7);
    CHECK(held.test.size() == 3);
    CHECK(test::contains(
        test::message_of([&] { data_of(folder.path, "format = 'folder'\nfolder.test_fraction = 0.95\n"); }),
        folder.path.string() + ": 0.05 of each class for training, rounded, leaves no image for the train part"));
    register_data_format<nothing_format> nothing;
    CHECK(test::contains(test::message_of([&] { data_of(folder.path, "format = 'test-nothing'\n"); }),
                         "data.format = test-nothing: the training set is empty"));
}
