#pragma once
// Volumes of matter with the parameters of their universe, made on the spot: the data of a CosmoFlow-style regression
// without a download. Volume i of a seed is a pure function of (seed, i): parameters uniform in their ranges, then a
// Zel'dovich box (zeldovich.hpp).
//   input    x = (ln(1 + δ + ε) − mean) / std,  ε = 0.1 (empty cells)     (n, n, n, C), a channel for each redshift
//            δ averaged over cubes of cells where volumes are reduced: the same universe seen less sharply
//   targets  (Ω_m, σ_8, n_s), each with mean 0 and variance 1 over its range: the mean predictor's squared error is 1
// Mathuriya et al., CosmoFlow, SC18; parameter ranges of the Quijote Latin hypercube.

#include <cairn/core/parallel.hpp>
#include <cairn/data/data_format.hpp>
#include <cairn/data/zeldovich.hpp>

namespace cairn {

struct cosmology_config {
    index_t count = 512;  // volumes
    index_t first = 0;    // number of the first one: give a test set other numbers of the same seed
    index_t grid = 32;    // cells an edge, as simulated
    index_t reduce = 1;   // cells along each edge that are averaged into one; divides grid
    double box = 256;     // edge in Mpc/h
    std::uint64_t seed = 0;
    bool augment = false;  // random translations (the box is periodic) and the 48 symmetries of the cube
    std::array<double, 2> omega_m{0.1, 0.5}, sigma_8{0.6, 1.0}, n_s{0.8, 1.2};
    double h = 0.67, omega_b = 0.049;
    std::vector<double> redshifts{0};  // of the same box at different times: one channel each
};

/// The redshifts of CosmoFlow's four channels.
inline constexpr std::array<double, 4> cosmoflow_redshifts{0, 0.5, 1.5, 3};

class cosmology_volumes {
public:
    /// Makes all volumes, on all threads (about 2 ms each at 32³). Throws on empty ranges or sizes.
    explicit cosmology_volumes(cosmology_config config) : config_(config) {
        require(config.count >= 1 && config.first >= 0 && config.grid >= 2 && config.box > 0,
                "cosmology: ", config.count, " volumes from ", config.first, " on, grid ", config.grid, ", box ",
                config.box, " Mpc/h: all must be positive (grid at least 2)");
        for (const auto& range : {config.omega_m, config.sigma_8, config.n_s})
            require(range[1] > range[0], "cosmology: empty parameter range ", range[0], " to ", range[1]);
        require(config.reduce >= 1 && config.grid % config.reduce == 0 && config.grid / config.reduce >= 2,
                "cosmology: ", config.reduce, " cells of an edge of ", config.grid,
                " averaged into one; it must divide the edge, and leave two");
        require(!config.redshifts.empty() && std::ranges::min(config.redshifts) >= 0,
                "cosmology: redshifts must be given, and none negative");
        const cube_transform fft(config.grid);
        const index_t n = edge(), cells = n * n * n, channels = channel_count();
        // What is taken out of the input must not depend on seed, count or first: 8 boxes of the middle of the ranges.
        struct moments {
            double sum = 0, square = 0;
        };
        std::vector<moments> of(static_cast<std::size_t>(channels));
        for (std::uint32_t i = 0; i < 8; ++i) {
            const auto fields =
                log_densities(fft, parameters_at({0.5, 0.5, 0.5}), {0, stream_of("cosmology reference"), i});
            for (std::size_t c = 0; c < of.size(); ++c)
                for (float value : fields[c].span()) {
                    of[c].sum += static_cast<double>(value);
                    of[c].square += static_cast<double>(value) * static_cast<double>(value);
                }
        }
        auto voxels = std::make_shared<tensor<float>>(shape{config.count, n, n, n, channels}, memory_category::data);
        float* out = voxels->data();
        parallel_for(config.count, 1, [&](index_t begin, index_t end) {
            for (index_t i = begin; i < end; ++i) {
                const auto step = static_cast<std::uint32_t>(config.first + i);
                const auto fields =
                    log_densities(fft, parameters(i), {config.seed, stream_of("cosmology field"), step});
                for (index_t c = 0; c < channels; ++c) {
                    const auto& [sum, square] = of[static_cast<std::size_t>(c)];
                    const double values = 8.0 * static_cast<double>(cells), mean = sum / values;
                    const double deviation = std::sqrt(square / values - mean * mean);
                    const tensor<float>& field = fields[static_cast<std::size_t>(c)];
                    for (index_t v = 0; v < cells; ++v)
                        out[(i * cells + v) * channels + c] =
                            static_cast<float>((static_cast<double>(field[v]) - mean) / deviation);
                }
            }
        });
        voxels_ = std::move(voxels);
    }

    index_t size() const { return config_.count; }
    shape sample_shape() const { return {edge(), edge(), edge(), channel_count()}; }
    std::string sample_name(index_t i) const {
        return concat("cosmology volume ", config_.first + i, " of seed ", config_.seed);
    }
    const cosmology_config& config() const { return config_; }

    target_info targets() const {
        target_info t{target_kind::values, {"Omega_m", "sigma_8", "n_s"}, {}, {}};
        for (const auto& range : {config_.omega_m, config_.sigma_8, config_.n_s}) {
            t.mean.push_back(static_cast<float>((range[0] + range[1]) / 2));
            t.scale.push_back(static_cast<float>((range[1] - range[0]) / std::sqrt(12.0)));
        }
        return t;
    }

    /// The universe of volume i.
    cosmology parameters(index_t i) const {
        const random_stream random{config_.seed, stream_of("cosmology parameters"), 0};
        std::array<double, 3> u;
        for (std::uint64_t j = 0; j < 3; ++j)
            u[j] = static_cast<double>(random.uniform(static_cast<std::uint64_t>(config_.first + i) * 3 + j));
        return parameters_at(u);
    }

    cosmology_volumes unaugmented() const {
        cosmology_volumes other = *this;
        other.config_.augment = false;
        return other;
    }

    bool read(index_t i, augment_key key, sample_slot slot) const {
        const index_t n = edge(), channels = channel_count();
        const float* volume = voxels_->data() + i * n * n * n * channels;
        const cosmology c = parameters(i);
        const std::array<double, 3> theta{c.omega_m, c.sigma_8, c.n_s};
        const std::array<std::array<double, 2>, 3> ranges{config_.omega_m, config_.sigma_8, config_.n_s};
        for (std::size_t j = 0; j < 3; ++j)
            slot.values[j] = static_cast<float>((theta[j] - (ranges[j][0] + ranges[j][1]) / 2) /
                                                (ranges[j][1] - ranges[j][0]) * std::sqrt(12.0));
        if (!config_.augment) {
            std::copy_n(volume, n * n * n * channels, slot.x);
            return true;
        }
        // Axis a of the output walks along axis order[a] of the volume, forwards or backwards, from a random cell.
        sample_random random(key, i);
        std::array<index_t, 3> stride{n * n, n, 1};
        for (index_t a = 2; a > 0; --a)
            std::swap(stride[static_cast<std::size_t>(a)], stride[static_cast<std::size_t>(random.below(a + 1))]);
        std::array<std::vector<index_t>, 3> offsets;
        for (std::size_t a = 0; a < 3; ++a) {
            const index_t start = random.below(n);
            const bool backwards = random.coin();
            for (index_t p = 0; p < n; ++p) offsets[a].push_back((start + (backwards ? n - p : p)) % n * stride[a]);
        }
        float* out = slot.x;
        for (index_t u : offsets[0])
            for (index_t v : offsets[1])
                for (index_t w : offsets[2]) {
                    const float* const voxel = volume + (u + v + w) * channels;
                    *out++ = voxel[0];
                    for (index_t k = 1; k < channels; ++k) *out++ = voxel[k];
                }
        return true;
    }

private:
    cosmology parameters_at(const std::array<double, 3>& u) const {
        const auto in = [](const std::array<double, 2>& range, double at) {
            return range[0] + (range[1] - range[0]) * at;
        };
        return {in(config_.omega_m, u[0]), in(config_.sigma_8, u[1]), in(config_.n_s, u[2]), config_.h,
                config_.omega_b};
    }

    index_t edge() const { return config_.grid / config_.reduce; }
    index_t channel_count() const { return static_cast<index_t>(config_.redshifts.size()); }

    // ln(1 + δ + ε) at each redshift.
    std::vector<tensor<float>> log_densities(const cube_transform& fft, const cosmology& c,
                                             random_stream random) const {
        std::vector<double> growth;
        for (const double z : config_.redshifts) growth.push_back(growth_factor(c, z));
        auto fields = zeldovich_snapshots(fft, power_spectrum(c), config_.box, random, growth);
        for (tensor<float>& field : fields) {
            if (config_.reduce > 1) field = averaged(field);
            for (float& value : field.span()) value = std::log(value + 0.1f);
        }
        return fields;
    }

    // Means over cubes of reduce³ cells.
    tensor<float> averaged(const tensor<float>& field) const {
        const index_t from = config_.grid, r = config_.reduce, n = edge();
        tensor<float> out = tensor<float>::zeros({n, n, n}, memory_category::data);
        for (index_t i = 0; i < from; ++i)
            for (index_t j = 0; j < from; ++j)
                for (index_t k = 0; k < from; ++k)
                    out[((i / r) * n + j / r) * n + k / r] += field[(i * from + j) * from + k];
        for (float& value : out.span()) value /= static_cast<float>(r * r * r);
        return out;
    }

    cosmology_config config_;
    std::shared_ptr<const tensor<float>> voxels_;
};

static_assert(Augmented<cosmology_volumes>);

/// data.format = "cosmology". Test volumes have other numbers of the same seed.
struct cosmology_format {
    static constexpr const char* name = "cosmology";
    cosmology_config config{.augment = true};
    index_t test_volumes = 64, channels = 1;  // a channel for each of the first redshifts of CosmoFlow

    template <class Table>
    void read(Table& table) {
        constexpr double most_volumes = 1 << 24;
        table("volumes", config.count, from_to(1, most_volumes));
        table("test_volumes", test_volumes, from_to(1, most_volumes));
        table("size", config.grid, from_to(2, 1024));
        table("reduce", config.reduce, from_to(1, 512));
        table("box", config.box, above_to(0, 1e5));
        table("seed", config.seed, at_least(0));
        table("augment", config.augment);
        table("channels", channels, from_to(1, std::size(cosmoflow_redshifts)));
        config.redshifts.assign(cosmoflow_redshifts.begin(), cosmoflow_redshifts.begin() + channels);
    }
    data_parts without_files(std::uint64_t seed) const {
        const index_t edge = std::max<index_t>(config.grid / config.reduce, 1);
        return synthetic_parts({edge, edge, edge, channels},
                               {target_kind::values, {"Omega_m", "sigma_8", "n_s"}, {0, 0, 0}, {1, 1, 1}}, seed);
    }
    data_parts load() const {
        cosmology_config testing = config;
        testing.first = config.count;
        testing.count = test_volumes;
        testing.augment = false;
        return make_data_parts(cosmology_volumes(config), cosmology_volumes(testing));
    }
};

}  // namespace cairn
