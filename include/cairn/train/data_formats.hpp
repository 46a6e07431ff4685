#pragma once
// Data sets by their names in a workload file: [data] format = mnist | cifar10 | cifar100 | folder | packed |
// quijote | cosmology | text | segmentation | graph | table | fields, or what another header enters
// (register_data_format). A format and its settings, the table [data.FORMAT], stand in its reader's header
// (data/data_format.hpp).
// data.path is a folder, an archive or a file; without it $CAIRN_DATA/NAME is taken, then data/NAME, where
// benchmarks/fetch_data puts it. NAME: data.name, or the format's own.
// Every rank reads the data itself, by the same path: copies on the disks of nodes may differ. Compared once, before
// anything depends on the number of samples.

#include <cairn/comm/collectives/text.hpp>
#include <cairn/comm/require_equal.hpp>
#include <cairn/core/phantom.hpp>
#include <cairn/data/cifar.hpp>
#include <cairn/data/cosmology.hpp>
#include <cairn/data/fields/fields_format.hpp>
#include <cairn/data/image_folder.hpp>
#include <cairn/data/mnist.hpp>
#include <cairn/data/packed.hpp>
#include <cairn/data/quijote.hpp>
#include <cairn/data/segmentation_volumes.hpp>
#include <cairn/data/split.hpp>
#include <cairn/data/table/table_format.hpp>
#include <cairn/data/text.hpp>
#include <cairn/state/checksum.hpp>
#include <cairn/train/configuration.hpp>
#include <cairn/train/registry.hpp>
#include <cairn/train/separate_nodes.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <ios>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Makes the data of the settings; `without_files`: random samples of the same shape, drawn by `seed`.
using data_formats = registry<data_parts (*)(configuration&, bool without_files, std::uint64_t seed)>;

namespace detail {

inline std::filesystem::path data_path(configuration& settings, const data_source& source, const std::string& name) {
    std::filesystem::path fallback = std::filesystem::path("data") / name;
    if (const char* root = std::getenv("CAIRN_DATA")) fallback = std::filesystem::path(root) / name;
    const std::filesystem::path path = settings.get("data.path", fallback.string());
    require(std::filesystem::exists(path), "data ", path.string(), " not found; give --data DIR",
            source.hint ? source.hint : concat(", or run benchmarks/fetch_data ", name));
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
        if constexpr (requires { format.load(); }) {
            return without_files ? format.without_files(seed) : format.load();
        } else {
            const std::string name = settings.get("data.name", std::string(Format::source.folder));
            return without_files ? format.without_files(seed)
                                 : format.load(detail::data_path(settings, Format::source, name));
        }
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
static const register_data_format<packed_format, CAIRN_TARGETS> packed_is_known;
static const register_data_format<graph_format, CAIRN_TARGETS> graph_is_known;
static const register_data_format<table_format, CAIRN_TARGETS> table_is_known;
static const register_data_format<fields_format, CAIRN_TARGETS> fields_is_known;

// `tested` samples, without augmentation, are tested on in place of the test set, on which nothing should be chosen: of
// the data's own validation set, else held out of the training set. `used`: number of training samples. 0: all.
inline data_parts take_parts(data_parts all, index_t tested, index_t used) {
    const index_t n = all.train.size(), held = all.validation ? 0 : tested;
    if (tested > held)
        all.test = subset(all.validation, held_out_split(all.validation.size(), 0, tested, all.in_sequence).second);
    all.validation = {};
    if (all.resized)
        all.resized = [resized = all.resized, tested, used](const sample_size& to) {
            return take_parts(resized(to), tested, used);
        };
    if (held == 0 && used == 0) return all;
    split_indices parts = held_out_split(n, used ? used : n - held, held, all.in_sequence);
    if (held) all.test = subset(all.train.unaugmented(), std::move(parts.second));
    all.train = subset(all.train, std::move(parts.first));
    return all;
}

// By data.validation and data.train_samples.
inline data_parts with_validation(configuration& settings, data_parts all) {
    const index_t n = all.train.size(), most = all.validation ? all.validation.size() : n - 1,
                  tested = settings.get<index_t>("data.validation", 0, from_to(0, static_cast<double>(most))),
                  held = all.validation ? 0 : tested,
                  used = settings.get<index_t>("data.train_samples", 0, from_to(0, static_cast<double>(n - held)));
    require(held == 0 || !all.belong_together, "data.validation = ", held,
            " would part samples that belong together; set data.table.test_part = validation");
    return take_parts(std::move(all), tested, used);
}

}  // namespace detail

/// The data that the settings name; random samples of the same shape when `without_files`. Throws naming what is
/// missing.
inline data_parts make_data(configuration& settings, bool without_files, std::uint64_t seed) {
    const std::string format = settings.need<std::string>("data.format");
    data_parts all = data_formats::global().at("data.format", format)(settings, without_files, seed);
    require(all.train.size() > 0, "data.format = ", format, ": the training set is empty; give --data with samples");
    all.stream = settings.get("data.stream", false);
    require(!all.stream || all.in_sequence, "data.stream = true: samples of data.format = ", format,
            " do not follow each other; those of text do. Leave data.stream out");
    return detail::with_validation(settings, std::move(all));
}

namespace detail {

/// Continues `checksum` with the input and the targets of sample i, augmented in the same way wherever it is read; or
/// with why it cannot be read, which is an error when training comes to it.
inline std::uint32_t checksum_of_sample(const any_dataset& data, index_t i, std::uint32_t checksum) {
    const target_info info = data.targets();
    const bool classes = info.kind == target_kind::classes;
    std::vector<float> x(static_cast<std::size_t>(data.sample_shape().size())),
        values(static_cast<std::size_t>(classes ? 0 : info.values_each()));
    std::vector<std::int32_t> labels(static_cast<std::size_t>(classes ? info.labels_each : 0));
    try {
        if (!data.read(i, {}, {x.data(), classes ? labels.data() : nullptr, classes ? nullptr : values.data()}))
            return crc32c("skipped", 7, checksum);
    } catch (const std::exception& e) {
        const std::string why = e.what();
        return crc32c(why.data(), why.size(), checksum);
    }
    checksum = crc32c(x.data(), x.size() * sizeof(float), checksum);
    checksum = crc32c(labels.data(), labels.size() * sizeof(std::int32_t), checksum);
    return crc32c(values.data(), values.size() * sizeof(float), checksum);
}

/// "60000 training and 10000 test samples of (28, 28, 1), 10 targets, checksum 1f0c24a7": of the names of the targets
/// and of a few samples at equal distances, which phantom ranks do not read.
inline std::string summary_of(const data_parts& data) {
    std::uint32_t checksum = 0;
    for (const std::string& name : data.info.names) checksum = crc32c(name.c_str(), name.size() + 1, checksum);
    for (const any_dataset* part : {&data.train, &data.test}) {
        const index_t read = *part && !on_phantom_rank() ? std::min<index_t>(4, part->size()) : 0;
        for (index_t k = 0; k < read; ++k)
            checksum = checksum_of_sample(*part, k * (part->size() - 1) / std::max<index_t>(1, read - 1), checksum);
    }
    std::ostringstream text;
    text << data.train.size() << " training and " << (data.test ? data.test.size() : 0) << " test samples of "
         << data.sample << ", " << data.info.count() << " targets, checksum " << std::hex << checksum;
    return text.str();
}

}  // namespace detail

/// Collective. Throws on every rank, naming the first whose data differ from rank 0's: in number, shape, targets, or in
/// one of a few samples.
template <Communicator C>
void require_same_data(C& world, const data_parts& data) {
    if (world.size() == 1) return;
    const std::string mine = detail::summary_of(data);
    const std::vector<std::uint64_t> all = values_of_ranks(world, hash_of(mine));
    const auto other = std::ranges::find_if(all, [&](std::uint64_t hash) { return hash != all[0]; });
    if (other == all.end()) return;
    const int r = static_cast<int>(other - all.begin());
    const std::string of_first = broadcast_text(world, mine), of_other = broadcast_text(world, mine, r);
    fail("ranks have different data: rank 0 ", of_first, "; rank ", r, ' ', of_other,
         ". Give every rank the same files and the same [data] settings; each reads data.path by itself");
}

}  // namespace cairn
