#pragma once
// Data sets from array files. An array is named by its file, and inside .npz and HDF5 files by a name after a colon:
//   x.npy      data.npz:x      data.h5:group/x
// Targets of integers in one axis are classes 0 … max, anything else is values.

#include <cairn/data/array_dataset.hpp>
#include <cairn/data/hdf5.hpp>
#include <cairn/data/npz.hpp>

namespace cairn {

namespace detail {

struct array_place {
    std::filesystem::path file;
    std::string name;  // inside the file
    enum { npy, npz, hdf5 } format;
};

inline array_place place_of(const std::string& where) {
    array_place p{where, "", array_place::npy};
    const auto colon = where.rfind(':');
    if (colon != std::string::npos && !std::filesystem::exists(where)) {
        p.file = where.substr(0, colon);
        p.name = where.substr(colon + 1);
    }
    const std::string ending = p.file.extension().string();
    if (ending == ".npz")
        p.format = array_place::npz;
    else if (ending == ".h5" || ending == ".hdf5" || ending == ".hdf")
        p.format = array_place::hdf5;
    else
        require(ending == ".npy", where,
                ": unknown kind of array file; FILE.npy, FILE.npz:NAME and FILE.h5:NAME are read");
    require(p.format == array_place::npy || !p.name.empty(), where, ": say which array of the file is meant: ", where,
            ":NAME");
    return p;
}

inline npy_array read_numpy(const array_place& p) {
    return p.format == array_place::npz ? npz_file(p.file).read(p.name) : read_npy(p.file);
}

}  // namespace detail

/// One array, as T. Throws when the file or the array is missing or damaged, or its elements do not fit T.
template <class T>
tensor<T> read_array(const std::string& where, memory_category use = memory_category::data) {
    const detail::array_place p = detail::place_of(where);
    return p.format == detail::array_place::hdf5 ? hdf5_file(p.file).read<T>(p.name, use)
                                                 : detail::read_numpy(p).to_tensor<T>(use);
}

/// Inputs and targets from two arrays. Real targets are normalised, see array_dataset.
inline array_dataset read_array_dataset(const std::string& x, const std::string& targets,
                                        std::vector<std::string> names = {}) {
    const detail::array_place p = detail::place_of(targets);
    bool classes = false;
    if (p.format == detail::array_place::hdf5) {
        const hdf5_file file(p.file);
        classes = file.holds_integers(p.name) && file.shape(p.name).rank() == 1;
    } else {
        const npy_array a = detail::read_numpy(p);
        classes = a.kind != 'f' && a.shape.rank() == 1;
    }
    if (!classes) return {read_array<float>(x), read_array<float>(targets), std::move(names), true, x};
    auto labels = read_array<std::int32_t>(targets);
    std::int32_t highest = 0;
    for (std::int32_t label : labels.span()) highest = std::max(highest, label);
    // A mistaken array (years, identifiers) would make a model of as many outputs.
    require(highest < std::max<index_t>(1000, labels.size()), targets, ": a label of ", highest, " among ",
            labels.size(), " samples: are these classes? Save real targets as floating-point numbers");
    for (auto c = static_cast<std::int32_t>(names.size()); c <= highest; ++c) names.push_back(std::to_string(c));
    return {read_array<float>(x), std::move(labels), std::move(names), x};
}

}  // namespace cairn
