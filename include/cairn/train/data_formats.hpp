#pragma once
// Data sets by their names in a workload file: [data] format = mnist | cifar10 | cifar100 | folder | quijote |
// cosmology | text | segmentation | graph, or what another header enters (register_data_format). A format and its
// settings, the table [data.FORMAT], stand in its reader's header (data/data_format.hpp).
// data.path is a folder or archive; without it $CAIRN_DATA/FORMAT is taken, then data/FORMAT, where
// benchmarks/fetch_data puts it.

#include <cairn/data/cifar.hpp>
#include <cairn/data/cosmology.hpp>
#include <cairn/data/image_folder.hpp>
#include <cairn/data/mnist.hpp>
#include <cairn/data/quijote.hpp>
#include <cairn/data/segmentation_volumes.hpp>
#include <cairn/data/split.hpp>
#include <cairn/data/text.hpp>
#include <cairn/train/configuration.hpp>
#include <cairn/train/registry.hpp>
#include <cairn/train/separate_nodes.hpp>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

namespace cairn {

/// Makes the data of the settings; `without_files`: random samples of the same shape, drawn by `seed`.
using data_formats = registry<data_parts (*)(configuration&, bool without_files, std::uint64_t seed)>;

namespace detail {

inline std::filesystem::path data_path(configuration& settings, const data_source& source) {
    std::filesystem::path fallback = std::filesystem::path("data") / source.folder;
    if (const char* root = std::getenv("CAIRN_DATA")) fallback = std::filesystem::path(root) / source.folder;
    const std::filesystem::path path = settings.get("data.path", fallback.string());
    require(std::filesystem::exists(path), "data ", path.string(), " not found; give --data DIR",
            source.hint ? source.hint : concat(", or run benchmarks/fetch_data ", source.folder));
    return path;
}

}  // namespace detail

/// Enters a data format (data/data_format.hpp).
template <class Format, class... Targets>
struct register_data_format {
    register_data_format() { data_formats::global().add(Format::name, typeid(Format), &make); }

private:
    static data_parts make(configuration& settings, bool without_files, std::uint64_t seed) {
        Format format;
        settings_table table(settings, concat("data.", Format::name));
        format.read(table);
        if (without_files) return format.without_files(seed);
        if constexpr (requires { format.load(); })
            return format.load();
        else
            return format.load(detail::data_path(settings, Format::source));
    }
};
template <class Format>
struct register_data_format<Format, entered_elsewhere> {};

namespace detail {

static const register_data_format<mnist_format, CAIRN_TARGETS> mnist_is_known;
static const register_data_format<cifar_format<10>, CAIRN_TARGETS> cifar10_is_known;
static const register_data_format<cifar_format<100>, CAIRN_TARGETS> cifar100_is_known;
static const register_data_format<folder_format, CAIRN_TARGETS> folder_is_known;
static const register_data_format<quijote_format, CAIRN_TARGETS> quijote_is_known;
static const register_data_format<cosmology_format, CAIRN_TARGETS> cosmology_is_known;
static const register_data_format<text_format, CAIRN_TARGETS> text_is_known;
static const register_data_format<segmentation_format, CAIRN_TARGETS> segmentation_is_known;
static const register_data_format<graph_format, CAIRN_TARGETS> graph_is_known;

// data.validation: number of samples, without augmentation, that are tested on in place of the test set, on which
// nothing should be chosen: of the data's own validation set, else held out of the training set. data.train_samples:
// number of training samples.
inline data_parts with_validation(configuration& settings, data_parts all) {
    const index_t n = all.train.size(), most = all.validation ? all.validation.size() : n - 1,
                  tested = settings.get<index_t>("data.validation", 0, from_to(0, static_cast<double>(most))),
                  held = all.validation ? 0 : tested,
                  used = settings.get<index_t>("data.train_samples", 0, from_to(0, static_cast<double>(n - held)));
    if (tested > held) all.test = subset(all.validation, held_out_split(most, 0, tested, all.in_sequence).second);
    all.validation = {};
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

}  // namespace cairn
