#pragma once
// Fields on a grid of two axes, from files: a variable of netCDF files (data/netcdf.hpp), or an array of .npy or
// .npy.gz files. Axes: (samples, height, width), or (samples, channels, height, width), such as levels. A * in a name
// stands for the variable: "train_*.npy" has x in train_x.npy. What netCDF marks as missing, and NaN, is NaN here.

#include <cairn/data/gzip.hpp>
#include <cairn/data/netcdf.hpp>
#include <cairn/data/npy.hpp>

#include <cmath>
#include <filesystem>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// The axes of a grid in degrees, or empty.
struct field_grid {
    std::vector<double> latitude, longitude;
    bool operator==(const field_grid&) const = default;

    /// Areas of the cells of `width` columns, of mean 1; empty where cells are alike.
    std::vector<double> areas(index_t width) const {
        std::vector<double> all;
        double sum = 0;
        for (const double degrees : latitude) sum += std::cos(degrees * std::numbers::pi / 180);
        for (const double degrees : latitude)
            all.insert(all.end(), static_cast<std::size_t>(width),
                       std::cos(degrees * std::numbers::pi / 180) * static_cast<double>(latitude.size()) / sum);
        return all;
    }
};

/// One variable of one or more files.
struct field_array {
    shape axes;                 // (samples, channels, height, width)
    std::vector<float> values;  // NaN: missing
    field_grid grid;

    index_t cells() const { return axes[2] * axes[3]; }
    const float* field(index_t sample, index_t channel) const {
        return values.data() + (sample * axes[1] + channel) * cells();
    }
};

namespace detail {

/// The coordinate variable of an axis, where its unit is degrees to `direction`; else empty.
inline std::vector<double> degrees_of_axis(const netcdf_file& file, std::size_t axis, const std::string& direction) {
    const std::string& name = file.dimensions()[axis].name;
    const auto& all = file.variables();
    const auto found = std::ranges::find_if(all, [&](const netcdf_variable& v) { return v.name == name; });
    if (found == all.end() || found->extents.size() != 1) return {};
    const netcdf_attribute* const units = found->attribute("units");
    if (!units || units->type != netcdf_type::text) return {};
    const std::string text = lower_case(units->text());
    if (!text.starts_with("degree") || text.find(direction) == text.npos) return {};
    const tensor<double> values = file.read_unpacked<double>(name).values;
    return {values.data(), values.data() + values.size()};
}

inline field_array with_axes(shape found, const std::string& context) {
    require(found.rank() == 3 || found.rank() == 4, context, ": shape ", found,
            "; (samples, height, width) or (samples, channels, height, width) is expected");
    require(found.size() > 0, context, ": shape ", found, " has no values");
    field_array out;
    out.axes = found.rank() == 4 ? found : shape{found[0], 1, found[1], found[2]};
    return out;
}

}  // namespace detail

/// Reads a variable. Throws naming the file and what does not fit.
inline field_array read_fields(const std::filesystem::path& path, const std::string& variable) {
    const std::string name = path.string();
    require(std::filesystem::exists(path), name, ": no such file (data.fields.files; * stands for the variable)");
    const bool packed = name.ends_with(".npy.gz");
    if (packed || name.ends_with(".npy")) {
        const npy_array array = packed ? parse_npy(gunzip(read_bytes(path), name), name) : read_npy(path);
        field_array out = detail::with_axes(array.shape, name);
        const tensor<float> values = array.to_tensor<float>();
        out.values.assign(values.data(), values.data() + values.size());
        for (const float v : out.values) require(!std::isinf(v), name, ": a value is infinite");
        return out;
    }
    const netcdf_file file(path);
    const std::string context = concat(name, ": variable '", variable, '\'');
    const netcdf_variable& described = file.variable(variable);
    field_array out = detail::with_axes(described.shape(name), context);
    const netcdf_field<float> field = file.read_unpacked<float>(variable);
    out.values.assign(field.values.data(), field.values.data() + field.values.size());
    for (std::size_t i = 0; i < out.values.size(); ++i) {
        if (field.missing[static_cast<index_t>(i)]) out.values[i] = std::numeric_limits<float>::quiet_NaN();
        require(!std::isinf(out.values[i]), context, ": element ", i, " is infinite");
    }
    const std::size_t last = described.dimensions.size() - 1;
    out.grid.latitude = detail::degrees_of_axis(file, described.dimensions[last - 1], "north");
    out.grid.longitude = detail::degrees_of_axis(file, described.dimensions[last], "east");
    if (out.grid.latitude.empty() || out.grid.longitude.empty()) out.grid = {};
    return out;
}

/// Several variables of several files, their samples one after another.
struct field_files {
    std::vector<std::string> names;      // of the files
    std::vector<std::size_t> file_of;    // of each sample
    std::vector<std::string> variables;  // as the arrays
    std::vector<field_array> arrays;

    index_t samples() const { return static_cast<index_t>(file_of.size()); }
    const field_array& at(const std::string& variable) const {
        return arrays[static_cast<std::size_t>(std::ranges::find(variables, variable) - variables.begin())];
    }

    /// Throws naming the file whose samples, grid or channels are not those of the others.
    static field_files read(const std::filesystem::path& folder, const std::vector<std::string>& files,
                            std::vector<std::string> variables) {
        field_files all;
        all.names = files;
        all.variables = std::move(variables);
        for (std::size_t f = 0; f < files.size(); ++f) {
            index_t samples = 0;
            for (std::size_t v = 0; v < all.variables.size(); ++v) {
                std::string file = files[f];
                if (const auto star = file.find('*'); star != file.npos) file.replace(star, 1, all.variables[v]);
                field_array one = read_fields(folder / file, all.variables[v]);
                if (v == 0) samples = one.axes[0];
                require(one.axes[0] == samples, file, ": variable '", all.variables[v], "' has ", one.axes[0],
                        " samples, '", all.variables[0], "' ", samples, "; each sample needs all variables");
                const field_array& first = v == 0 && f == 0 ? one : all.arrays.front();
                require(one.axes[2] == first.axes[2] && one.axes[3] == first.axes[3], file, ": variable '",
                        all.variables[v], "' has a grid of ", one.axes[2], " x ", one.axes[3],
                        ", the first field one of ", first.axes[2], " x ", first.axes[3], "; interpolate one of them");
                require(one.grid == first.grid, file, ": variable '", all.variables[v],
                        "' has other latitudes or longitudes than the first field; interpolate one of them");
                if (f == 0) {
                    all.arrays.push_back(std::move(one));
                    continue;
                }
                field_array& whole = all.arrays[v];
                require(one.axes[1] == whole.axes[1], file, ": variable '", all.variables[v], "' has ", one.axes[1],
                        " channels, ", whole.axes[1], " in ", files[0]);
                whole.axes = whole.axes.with(0, whole.axes[0] + samples);
                whole.values.insert(whole.values.end(), one.values.begin(), one.values.end());
            }
            all.file_of.insert(all.file_of.end(), static_cast<std::size_t>(samples), f);
        }
        return all;
    }
};

}  // namespace cairn
