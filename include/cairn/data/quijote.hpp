#pragma once
// Density slices of the Quijote N-body simulations with their cosmological parameters (Villaescusa-Navarro et al.
// 2020): a regression from real simulation output. A folder with
//   *-idx3-ubyte[.gz]  (N, H, W) bytes v, the logarithm of the overdensity: ρ/ρ_mean = 0.5 · 2000^(v/255)
//   *.csv              one row a slice: sim_id, Omega_m, Omega_b, h, n_s, sigma_8
// Input: (v − mean) / std over all slices, (S, S, 1). Targets: by the centre and the deviation of the Latin hypercube's
// ranges. A slice is 500 of a box of 1,000 Mpc/h: it is not periodic, so translations are made by cropping.

#include <cairn/data/csv.hpp>
#include <cairn/data/dataset.hpp>
#include <cairn/data/idx.hpp>
#include <cairn/data/split.hpp>

#include <algorithm>
#include <cmath>
#include <map>

namespace cairn {

struct quijote_config {
    std::vector<std::string> targets{"Omega_m", "sigma_8"};
    index_t reduce = 1;  // means of reduce × reduce pixels first
    // edge, after reduction, of the window given out: at a random place if augmented, else the middle; 0: all
    index_t crop = 0;
    bool augment = false;  // the eight symmetries of the square, and the crop's place
};

class quijote_slices {
public:
    /// Reads the folder. Throws when a file is missing or damaged, counts differ, or a target is unknown.
    quijote_slices(const std::filesystem::path& folder, quijote_config config) : config_(std::move(config)) {
        const idx_array images = read_idx(only_file(folder, {"-idx3-ubyte.gz", "-idx3-ubyte"}));
        const csv_table table = read_csv(only_file(folder, {".csv"}));
        require(images.type == idx_type::u8 && images.shape.rank() == 3, images.name,
                ": bytes of rank 3 expected, found shape ", images.shape);
        require(images.shape[0] == table.rows() && table.rows() > 0, images.name, " holds ", images.shape[0],
                " slices, ", table.name, ' ', table.rows(), " rows");
        require(config_.reduce >= 1 && images.shape[1] % config_.reduce == 0 && images.shape[1] == images.shape[2],
                images.name, ": slices of ", images.shape[1], " × ", images.shape[2],
                " pixels; square ones, divisible by reduce = ", config_.reduce, ", are expected");
        edge_ = images.shape[1] / config_.reduce;
        if (config_.crop == 0) config_.crop = edge_;
        require(config_.crop >= 1 && config_.crop <= edge_, "quijote: crop ", config_.crop, " of slices of ", edge_,
                " pixels");
        reduce(images);
        // Centre and width of the Latin hypercube: known beforehand, so that no test slice has a say in the
        // normalisation.
        const std::map<std::string, std::array<double, 2>> ranges{{"Omega_m", {0.1, 0.5}},
                                                                  {"Omega_b", {0.03, 0.07}},
                                                                  {"h", {0.5, 0.9}},
                                                                  {"n_s", {0.8, 1.2}},
                                                                  {"sigma_8", {0.6, 1.0}}};
        info_ = {target_kind::values, config_.targets, {}, {}};
        require(!config_.targets.empty(), "quijote: no target chosen");
        auto values = std::make_shared<std::vector<float>>(static_cast<std::size_t>(size_ * info_.count()));
        for (std::size_t k = 0; k < config_.targets.size(); ++k) {
            const auto range = ranges.find(config_.targets[k]);
            require(range != ranges.end(), "quijote: unknown target '", config_.targets[k],
                    "'; there are: Omega_m, Omega_b, h, n_s, sigma_8");
            const double mean = (range->second[0] + range->second[1]) / 2,
                         scale = (range->second[1] - range->second[0]) / std::sqrt(12.0);
            info_.mean.push_back(static_cast<float>(mean));
            info_.scale.push_back(static_cast<float>(scale));
            const std::vector<double>& column = table.numbers(config_.targets[k]);
            for (index_t i = 0; i < size_; ++i)
                (*values)[static_cast<std::size_t>(i) * config_.targets.size() + k] =
                    static_cast<float>((column[static_cast<std::size_t>(i)] - mean) / scale);
        }
        values_ = std::move(values);
        const csv_column& first = table.columns.front();
        const bool ids = first.name == "sim_id" && first.no_number.empty();
        for (index_t i = 0; i < size_; ++i)
            names_.push_back(concat(images.name, " #", i, ids ? concat(" (simulation ", first.number(i), ')') : ""));
    }

    index_t size() const { return size_; }
    shape sample_shape() const { return {config_.crop, config_.crop, 1}; }
    target_info targets() const { return info_; }
    std::string sample_name(index_t i) const { return names_[static_cast<std::size_t>(i)]; }

    /// The same slices with another crop or augmentation; `reduce` and `targets` stay.
    quijote_slices with(index_t crop, bool augment) const {
        quijote_slices other = *this;
        other.config_.crop = crop ? crop : edge_;
        other.config_.augment = augment;
        require(other.config_.crop <= edge_, "quijote: crop ", crop, " of slices of ", edge_, " pixels");
        return other;
    }
    quijote_slices unaugmented() const { return with(config_.crop, false); }

    bool read(index_t i, augment_key key, sample_slot slot) const {
        std::copy_n(values_->data() + i * info_.count(), info_.count(), slot.values);
        const index_t n = config_.crop, room = edge_ - n;
        index_t top = room / 2, left = room / 2;
        bool transposed = false, down = false, across = false;
        if (config_.augment) {
            sample_random random(key, i);
            top = random.below(room + 1);
            left = random.below(room + 1);
            transposed = random.coin();
            down = random.coin();
            across = random.coin();
        }
        const float* window = pixels_->data() + i * edge_ * edge_ + top * edge_ + left;
        for (index_t y = 0; y < n; ++y)
            for (index_t x = 0; x < n; ++x) {
                const index_t v = down ? n - 1 - y : y, u = across ? n - 1 - x : x;
                slot.x[y * n + x] = transposed ? window[u * edge_ + v] : window[v * edge_ + u];
            }
        return true;
    }

private:
    static std::filesystem::path only_file(const std::filesystem::path& folder,
                                           std::initializer_list<const char*> endings) {
        std::vector<std::filesystem::path> found;
        std::error_code failure;
        for (const auto& file : std::filesystem::directory_iterator(folder, failure))
            for (const char* ending : endings)
                if (file.path().filename().string().ends_with(ending)) found.push_back(file.path());
        require(!failure, folder.string(), ": ", failure.message());
        require(found.size() == 1, folder.string(), ": ", found.size(), " files end in ", *endings.begin(),
                "; exactly one is expected");
        return found.front();
    }

    void reduce(const idx_array& images) {
        size_ = images.shape[0];
        const index_t r = config_.reduce, in = images.shape[1];
        auto pixels = std::make_shared<std::vector<float>>(static_cast<std::size_t>(size_ * edge_ * edge_), 0.0f);
        float* out = pixels->data();
        const std::uint8_t* from = images.bytes.data();
        for (index_t row = 0; row < size_ * in; ++row)
            for (index_t x = 0; x < in; ++x) out[row / r * edge_ + x / r] += static_cast<float>(*from++);
        double sum = 0, squares = 0;
        for (float& value : *pixels) {
            value /= static_cast<float>(r * r);
            sum += static_cast<double>(value);
            squares += static_cast<double>(value) * static_cast<double>(value);
        }
        const double count = static_cast<double>(pixels->size()), mean = sum / count,
                     variance = squares / count - mean * mean;
        require(variance > 0, images.name, ": all pixels are equal");
        for (float& value : *pixels)
            value = static_cast<float>((static_cast<double>(value) - mean) / std::sqrt(variance));
        pixels_ = std::move(pixels);
    }

    quijote_config config_;
    index_t size_ = 0, edge_ = 0;
    std::shared_ptr<const std::vector<float>> pixels_, values_;
    std::vector<std::string> names_;
    target_info info_;
};

static_assert(Augmented<quijote_slices>);

/// data.format = "quijote".
struct quijote_format {
    static constexpr const char* name = "quijote";
    static constexpr data_source source{"quijote",
                                        ", a folder of slices of the Quijote simulations (see "
                                        "include/cairn/data/quijote.hpp)"};
    quijote_config config{.augment = true};
    fold_choice folds;

    template <class Table>
    void read(Table& table) {
        table("targets", config.targets);
        table("reduce", config.reduce, from_to(1, most_pixels));
        table("crop", config.crop, from_to(0, most_pixels));
        table("augment", config.augment);
        folds.read(table);
    }
    data_parts without_files(std::uint64_t seed) const {
        const index_t edge = config.crop ? config.crop : std::max<index_t>(352 / config.reduce, 1);
        const std::size_t n = config.targets.size();
        return synthetic_parts(
            {edge, edge, 1}, {target_kind::values, config.targets, std::vector<float>(n, 0), std::vector<float>(n, 1)},
            seed);
    }
    data_parts load(const std::filesystem::path& folder) const {
        return folds.parts_of(quijote_slices(folder, config));
    }
};

}  // namespace cairn
