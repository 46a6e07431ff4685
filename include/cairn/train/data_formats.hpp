#pragma once
// Data sets by their names in a workload file: [data] format = mnist | cifar10 | cifar100 | folder | quijote |
// cosmology | text | segmentation | graph, or what another header enters (register_data_format).
// data.path is a folder or archive; without it $CAIRN_DATA/FORMAT is taken, then data/FORMAT, where
// benchmarks/fetch_data puts it.

#include <cairn/data/cifar.hpp>
#include <cairn/data/cosmology.hpp>
#include <cairn/data/graph_nodes.hpp>
#include <cairn/data/image_folder.hpp>
#include <cairn/data/mnist.hpp>
#include <cairn/data/planetoid.hpp>
#include <cairn/data/quijote.hpp>
#include <cairn/data/segmentation_volumes.hpp>
#include <cairn/data/split.hpp>
#include <cairn/data/text.hpp>
#include <cairn/train/configuration.hpp>
#include <cairn/train/registry.hpp>
#include <cairn/train/separate_nodes.hpp>
#include <cairn/train/synthetic_data.hpp>

#include <cstdlib>
#include <filesystem>

namespace cairn {

/// What a run trains and tests on. `test` may be empty.
struct data_parts {
    any_dataset train, test;
    shape sample;
    target_info info;
    std::shared_ptr<const csr_matrix<float>> graph = nullptr;  // whose nodes a sample is, if it is one
    bool in_sequence = false;  // training samples follow each other and may overlap: parts are cut off, not drawn
};

/// Makes the data of the settings; `without_files`: random samples of the same shape, drawn by `seed`.
using data_formats = registry<data_parts (*)(configuration&, bool without_files, std::uint64_t seed)>;

/// Enters a data format. Entry: `name`; make(configuration&, bool without_files, std::uint64_t seed), a data_parts.
template <class Entry>
struct register_data_format {
    register_data_format() { data_formats::global().add(Entry::name, typeid(Entry), Entry::make); }
};

namespace detail {

// Beyond what data have, and what fits into memory.
inline constexpr double most_pixels = 1 << 14;  // of an edge
inline constexpr double most_volumes = 1 << 24;

// `name`: of the folder, and for benchmarks/fetch_data unless `where` says where else the data come from.
inline std::filesystem::path data_path(configuration& settings, const std::string& name, std::string where = {}) {
    if (where.empty()) where = ", or run benchmarks/fetch_data " + name;
    std::filesystem::path fallback = std::filesystem::path("data") / name;
    if (const char* root = std::getenv("CAIRN_DATA")) fallback = std::filesystem::path(root) / name;
    const std::filesystem::path path = settings.get("data.path", fallback.string());
    require(std::filesystem::exists(path), "data ", path.string(), " not found; give --data DIR", where);
    return path;
}

inline data_parts parts_of(any_dataset train, any_dataset test) {
    const shape sample = train.sample_shape();
    const target_info info = train.targets();
    require(!test || (test.sample_shape() == sample && test.targets().count() == info.count()),
            "data: training samples have shape ", sample, " and ", info.count(), " targets or classes, test samples ",
            test ? test.sample_shape() : sample, " and ", test ? test.targets().count() : 0,
            "; do both come from the same set?");
    return {std::move(train), std::move(test), sample, info, nullptr, false};
}

inline target_info numbered_classes(index_t n) {
    target_info info;
    for (index_t i = 0; i < n; ++i) info.names.push_back(concat("class ", i));
    return info;
}

inline data_parts generated(shape sample, target_info info, std::uint64_t seed) {
    return parts_of(synthetic_data(1 << 16, sample, std::move(info), seed), {});
}

inline data_parts make_mnist(configuration& settings, bool without_files, std::uint64_t seed) {
    image_transform recipe = mnist_recipe(settings.get<index_t>("data.shift", 0, from_to(0, 28)));
    if (!settings.get("data.normalise", true)) recipe.mean = {0.0f}, recipe.std = {1.0f};
    if (without_files) return generated({28, 28, 1}, numbered_classes(10), seed);
    const auto path = data_path(settings, "mnist");
    return parts_of(mnist(path, part::train, recipe), mnist(path, part::test, recipe).unaugmented());
}

// CIFAR-10 as JPEG or PNG files in class folders below train and test, plain or in an archive.
inline data_parts make_cifar10_of_images(const std::filesystem::path& path, const image_transform& recipe) {
    std::filesystem::path root = path;
    if (std::filesystem::is_directory(path) && !std::filesystem::exists(path / "train"))
        for (const auto& file : std::filesystem::directory_iterator(path))
            if (is_archive_name(file.path())) root = file.path();
    const image_collection images(root);
    return parts_of(
        memory_images(decode_all(images, images.part_of(part::train), "CIFAR-10 train"), recipe),
        memory_images(decode_all(images, images.part_of(part::test), "CIFAR-10 test"), recipe).unaugmented());
}

// Whether any of CIFAR-10's binary files is there; the reader says which are missing.
inline bool has_binary_batches(const std::filesystem::path& path) {
    if (!std::filesystem::is_directory(path)) return false;
    for (const auto& file : std::filesystem::directory_iterator(path)) {
        const std::string name = file.path().filename().string();
        if (name.ends_with("_batch.bin") || name.ends_with("_batch.bin.gz") || name.starts_with("data_batch_"))
            return true;
    }
    return false;
}

inline data_parts make_cifar(configuration& settings, index_t classes, bool without_files, std::uint64_t seed) {
    image_transform recipe = classes == 10 ? cifar10_recipe(true) : cifar100_recipe(true);
    recipe.pad = settings.get<index_t>("data.crop_pad", 4, from_to(0, 32));
    recipe.flip = settings.get("data.flip", true);
    if (without_files) return generated({32, 32, 3}, numbered_classes(classes), seed);
    auto path = data_path(settings, concat("cifar", classes));
    const auto unpacked = path / (classes == 10 ? "cifar-10-batches-bin" : "cifar-100-binary");
    if (std::filesystem::is_directory(unpacked)) path = unpacked;  // as tar leaves it
    require(
        !path.filename().string().starts_with("cifar-10-binary.tar"), path.string(),
        ": unpack it (tar -xf) and give the folder that holds data_batch_1.bin to data_batch_5.bin and test_batch.bin");
    if (classes == 10 && !has_binary_batches(path)) return make_cifar10_of_images(path, recipe);
    if (classes == 100)
        return parts_of(cifar100(path, part::train, recipe), cifar100(path, part::test, cifar100_recipe(false)));
    return parts_of(cifar10(path, part::train, recipe), cifar10(path, part::test, cifar10_recipe(false)));
}

// A folder that holds nothing but one archive stands for the archive.
inline std::filesystem::path archive_in(const std::filesystem::path& root) {
    if (!std::filesystem::is_directory(root)) return root;
    std::vector<std::filesystem::path> folders, archives;
    for (const auto& file : std::filesystem::directory_iterator(root)) {
        std::error_code loop;  // of links, which who reads the folder names
        if (file.is_directory(loop)) folders.push_back(file.path());
        if (is_archive_name(file.path())) archives.push_back(file.path());
    }
    return folders.empty() && archives.size() == 1 ? archives.front() : root;
}

inline data_parts make_folder(configuration& settings, bool without_files, std::uint64_t seed) {
    image_folder_config training;
    training.size = settings.get<index_t>("data.size", 224, from_to(1, most_pixels));
    training.resize = settings.get<index_t>("data.resize", training.size * 8 / 7,
                                            from_to(static_cast<double>(training.size), 2 * most_pixels));
    training.augmented =
        settings.choice("data.augment", {"random_resized_crop", "none"}, "random_resized_crop") != "none";
    training.crop.area_min = settings.get("data.area_min", 0.08f, above_to(0, 1));
    training.flip = settings.get("data.flip", true) ? 0.5f : 0.0f;
    const float jitter = settings.get("data.jitter", 0.0f, from_to(0, 10));
    training.jitter = {jitter, jitter, jitter, 0};
    training.rounded = settings.get("data.rounded", false);
    require(settings.choice("data.decode", {"cpu", "gpu"}, "cpu") == "cpu",
            "data.decode = gpu was withdrawn until a GPU has measured it (course/decisions/0015); take data.decode = "
            "cpu, or leave it out");
    training.cache_bytes = settings.get<index_t>("data.cache_mib", 0, from_to(0, 1e9)) << 20;
    if (settings.choice("data.normalise", {"imagenet", "none"}, "imagenet") == "none")
        training.mean = {0, 0, 0}, training.std = {1, 1, 1};
    training.corrupt =
        settings.choice("data.corrupt", {"stop", "skip"}, "stop") == "skip" ? corrupt_image::skip : corrupt_image::stop;
    const empty_class empty = settings.choice("data.empty_class", {"stop", "leave_out"}, "stop") == "stop"
                                  ? empty_class::stop
                                  : empty_class::leave_out;
    const double fraction = 1 - settings.get("data.test_fraction", 0.2, from_below(0, 1));
    const index_t classes = settings.get<index_t>("data.classes", 1000, from_to(1, 1e6));
    if (without_files) return generated({training.size, training.size, 3}, numbered_classes(classes), seed);
    const std::filesystem::path root =
        archive_in(data_path(settings, "images",
                             ", a folder of images with one subfolder for each class, or an archive of that; "
                             "benchmarks/fetch_data --list names some"));
    const auto images = std::make_shared<const image_collection>(root, empty, "set data.empty_class = leave_out");
    const any_dataset train = image_folder(images, images->part_of(part::train, fraction), training);
    const std::vector<index_t> tests = images->part_of(part::test, fraction);
    if (tests.empty()) return parts_of(train, {});
    return parts_of(train, image_folder(images, tests, training).unaugmented());
}

inline data_parts make_quijote(configuration& settings, bool without_files, std::uint64_t seed) {
    quijote_config c{.targets = settings.get("data.targets", std::vector<std::string>{"Omega_m", "sigma_8"}),
                     .reduce = settings.get<index_t>("data.reduce", 1, from_to(1, most_pixels)),
                     .crop = settings.get<index_t>("data.crop", 0, from_to(0, most_pixels)),
                     .augment = settings.get("data.augment", true)};
    const index_t folds = settings.get<index_t>("data.folds", 5, from_to(2, 1e6)),
                  fold = settings.get<index_t>("data.fold", 0, from_to(0, static_cast<double>(folds - 1)));
    const auto split_seed = static_cast<std::uint64_t>(settings.get<std::int64_t>("data.split_seed", 0, any_number));
    if (without_files) {
        const index_t edge = c.crop ? c.crop : std::max<index_t>(352 / c.reduce, 1);
        return generated({edge, edge, 1},
                         {target_kind::values, c.targets, std::vector<float>(c.targets.size(), 0),
                          std::vector<float>(c.targets.size(), 1)},
                         seed);
    }
    const quijote_slices all(data_path(settings, "quijote",
                                       ", a folder of slices of the Quijote simulations (see "
                                       "include/cairn/data/quijote.hpp)"),
                             c);
    const split_indices parts = fold_split(all.size(), folds, fold, split_seed);
    return parts_of(subset(all, parts.first), subset(all.unaugmented(), parts.second));
}

inline data_parts make_cosmology(configuration& settings, bool without_files, std::uint64_t seed) {
    cosmology_config volumes{.count = settings.get<index_t>("data.volumes", 512, from_to(1, most_volumes)),
                             .first = 0,
                             .grid = settings.get<index_t>("data.size", 32, from_to(2, 1024)),
                             .reduce = settings.get<index_t>("data.reduce", 1, from_to(1, 512)),
                             .box = settings.get("data.box", 256.0, above_to(0, 1e5)),
                             .seed = static_cast<std::uint64_t>(settings.get<std::int64_t>("data.seed", 0, any_number)),
                             .augment = settings.get("data.augment", true)};
    const index_t tests = settings.get<index_t>("data.test_volumes", 64, from_to(1, most_volumes));
    const index_t channels = settings.get<index_t>("data.channels", 1, from_to(1, std::size(cosmoflow_redshifts)));
    const index_t edge = std::max<index_t>(volumes.grid / volumes.reduce, 1);
    if (without_files)
        return generated({edge, edge, edge, channels},
                         {target_kind::values, {"Omega_m", "sigma_8", "n_s"}, {0, 0, 0}, {1, 1, 1}}, seed);
    volumes.redshifts.assign(cosmoflow_redshifts.begin(), cosmoflow_redshifts.begin() + channels);
    cosmology_config testing = volumes;
    testing.first = volumes.count;
    testing.count = tests;
    testing.augment = false;
    return parts_of(cosmology_volumes(volumes), cosmology_volumes(testing));
}

inline data_parts text_parts(any_dataset train, any_dataset test) {
    data_parts parts = parts_of(std::move(train), std::move(test));
    parts.in_sequence = true;
    return parts;
}

// data.file and data.test_file are names in data.path, or data.path is the file; without a second file the end of the
// first is for tests.
inline data_parts make_text(configuration& settings, bool without_files, std::uint64_t seed) {
    const index_t length = settings.get<index_t>("data.length", 128, from_to(1, 1 << 20));
    const bool shifted = settings.get("data.shift", true);
    const std::string file = settings.get("data.file", std::string("tinyshakespeare.txt"));
    const std::string test_file = settings.get("data.test_file", std::string());
    const double test_fraction = settings.get("data.test_fraction", 0.1, from_below(0, 1));
    if (without_files) {
        const random_stream random{seed, stream_of("generated"), 0};
        text noise{
            .bytes = std::vector<std::uint8_t>(static_cast<std::size_t>(std::max<index_t>(1 << 22, 64 * length))),
            .name = "generated text"};
        for (std::size_t i = 0; i < noise.bytes.size(); ++i)
            noise.bytes[i] = static_cast<std::uint8_t>(random.bits4(i / 16)[i / 4 % 4] >> 8 * (i % 4));
        return text_parts(text_windows(std::make_shared<const text>(std::move(noise)), length, shifted), {});
    }
    const auto path = data_path(settings, "text");
    const bool folder = std::filesystem::is_directory(path);
    const auto train = read_text(folder ? path / file : path);
    if (!test_file.empty())
        return text_parts(text_windows(train, length, shifted),
                          text_windows(read_text((folder ? path : path.parent_path()) / test_file), length, false));
    const index_t bytes = std::ssize(train->bytes),
                  cut = bytes - static_cast<index_t>(test_fraction * static_cast<double>(bytes));
    if (cut == bytes) return text_parts(text_windows(train, length, shifted), {});
    return text_parts(text_windows(train, length, shifted, 0, cut), text_windows(train, length, false, cut, bytes));
}

inline data_parts make_segmentation(configuration& settings, bool without_files, std::uint64_t seed) {
    const auto size = settings.get("data.size", std::vector<index_t>{48, 64, 48}, from_to(1, 4096));
    require(size.size() == 3, "data.size has ", size.size(), " extents; volumes have three, such as [48, 64, 48]");
    segmentation_config c{.size = {size[0], size[1], size[2]},
                          .classes = settings.get<index_t>("data.classes", 0, from_to(0, 256)),
                          .shift = settings.get<index_t>("data.shift", 0, from_to(0, 1024))};
    const index_t folds = settings.get<index_t>("data.folds", 5, from_to(2, 1e6)),
                  fold = settings.get<index_t>("data.fold", 0, from_to(0, static_cast<double>(folds - 1)));
    const auto split_seed = static_cast<std::uint64_t>(settings.get<std::int64_t>("data.split_seed", 0, any_number));
    if (without_files)
        return generated({size[0], size[1], size[2], 1}, segmentation_targets(c, std::max<index_t>(c.classes, 3)),
                         seed);
    const segmentation_volumes all(
        archive_in(data_path(settings, "hippocampus",
                             ", a folder or tar archive of images/NAME.nii.gz and labels/NAME.nii.gz; "
                             "benchmarks/fetch_data hippocampus fetches one")),
        c);
    const split_indices parts = fold_split(all.size(), folds, fold, split_seed);
    return parts_of(subset(all, parts.first), subset(all.unaugmented(), parts.second));
}

// A ring of nodes, each with two neighbours.
inline data_parts generated_graph(std::uint64_t seed) {
    constexpr index_t nodes = 512, features = 64;
    target_info info = numbered_classes(7);
    info.labels_each = nodes;
    info.labels = label_place::nodes;
    std::vector<std::pair<std::int32_t, std::int32_t>> edges;
    for (std::int32_t i = 0; i < nodes; ++i) {
        edges.emplace_back(i, (i + 1) % nodes);
        edges.emplace_back((i + 1) % nodes, i);
    }
    data_parts parts = parts_of(synthetic_data(1, {nodes, features}, std::move(info), seed), {});
    parts.graph = std::make_shared<const csr_matrix<float>>(csr_of_pairs<float>(nodes, nodes, std::move(edges)));
    return parts;
}

inline data_parts make_graph(configuration& settings, bool without_files, std::uint64_t seed) {
    const std::string name = settings.get("data.graph", std::string("cora"));
    const bool normalised = settings.get("data.normalise", true);
    const bool validate = settings.choice("data.test_part", {"test", "validation"}, "test") == "validation";
    const int hops = settings.get("data.propagate", 0, from_to(0, 100));
    const float scale = settings.get("data.scale", 1.0f, above(0));
    const auto split_seed = static_cast<std::uint64_t>(settings.get<std::int64_t>("data.split_seed", 0, any_number));
    if (without_files && hops > 0) return generated({64}, numbered_classes(7), seed);
    if (without_files) return generated_graph(seed);
    const auto folder = data_path(settings, "graph");
    const citation_graph g = std::filesystem::exists(folder / ("ind." + name + ".graph"))
                                 ? read_planetoid(folder, name)
                                 : read_graph_npz(folder / (name + ".npz"), split_seed);
    const std::vector<index_t>& tested = validate ? g.validation : g.test;
    auto features = graph_nodes::dense(g.features, normalised, g.name);
    for (float& x : *features) x *= scale;
    if (hops > 0) {
        propagate(*graph_operator::normalised(g.adjacency), hops, *features);
        const auto part_of = [&](const std::vector<index_t>& nodes) { return separate_nodes(g, *features, nodes); };
        return parts_of(part_of(g.train), part_of(tested));
    }
    const auto part_of = [&](const std::vector<index_t>& nodes) {
        return graph_nodes(g.name, features, g.labels, g.classes, nodes);
    };
    data_parts parts = parts_of(part_of(g.train), part_of(tested));
    parts.graph = std::make_shared<const csr_matrix<float>>(g.adjacency);
    return parts;
}

struct mnist_entry {
    static constexpr const char* name = "mnist";
    static constexpr auto make = &make_mnist;
};
struct cifar10_entry {
    static constexpr const char* name = "cifar10";
    static data_parts make(configuration& settings, bool without_files, std::uint64_t seed) {
        return make_cifar(settings, 10, without_files, seed);
    }
};
struct cifar100_entry {
    static constexpr const char* name = "cifar100";
    static data_parts make(configuration& settings, bool without_files, std::uint64_t seed) {
        return make_cifar(settings, 100, without_files, seed);
    }
};
struct folder_entry {
    static constexpr const char* name = "folder";
    static constexpr auto make = &make_folder;
};
struct quijote_entry {
    static constexpr const char* name = "quijote";
    static constexpr auto make = &make_quijote;
};
struct cosmology_entry {
    static constexpr const char* name = "cosmology";
    static constexpr auto make = &make_cosmology;
};
struct text_entry {
    static constexpr const char* name = "text";
    static constexpr auto make = &make_text;
};
struct graph_entry {
    static constexpr const char* name = "graph";
    static constexpr auto make = &make_graph;
};
struct segmentation_entry {
    static constexpr const char* name = "segmentation";
    static constexpr auto make = &make_segmentation;
};

static const register_data_format<mnist_entry> mnist_is_known;
static const register_data_format<cifar10_entry> cifar10_is_known;
static const register_data_format<cifar100_entry> cifar100_is_known;
static const register_data_format<folder_entry> folder_is_known;
static const register_data_format<quijote_entry> quijote_is_known;
static const register_data_format<cosmology_entry> cosmology_is_known;
static const register_data_format<text_entry> text_is_known;
static const register_data_format<segmentation_entry> segmentation_is_known;
static const register_data_format<graph_entry> graph_is_known;

}  // namespace detail

namespace detail {

// data.validation: so many of the training set are held out of it and tested on, without augmentation, in place of the
// test set, on which nothing should be chosen. data.train_samples: only so many are trained on.
inline data_parts with_validation(configuration& settings, data_parts all) {
    const index_t n = all.train.size(),
                  held = settings.get<index_t>("data.validation", 0, from_to(0, static_cast<double>(n - 1))),
                  used = settings.get<index_t>("data.train_samples", 0, from_to(0, static_cast<double>(n - held)));
    if (held == 0 && used == 0) return all;
    split_indices parts = held_out_split(n, used ? used : n - held, held, all.in_sequence);
    if (held) all.test = subset(all.train.unaugmented(), std::move(parts.second));
    all.train = subset(all.train, std::move(parts.first));
    return all;
}

}  // namespace detail

/// The data that the settings name; random samples of the same shape when `without_files`. Throws naming what is
/// missing.
inline data_parts make_data(configuration& settings, bool without_files, std::uint64_t seed) {
    const std::string format = settings.need<std::string>("data.format");
    data_parts all = data_formats::global().at("data.format", format)(settings, without_files, seed);
    require(all.train.size() > 0, "data.format = ", format, ": the training set is empty; give --data with samples");
    return detail::with_validation(settings, std::move(all));
}

/// Whether samples that cannot be read are left out of their batches.
inline bool data_may_skip(configuration& settings) {
    return settings.has("data.corrupt") && settings.get<std::string>("data.corrupt", "stop") == "skip";
}

}  // namespace cairn
