#pragma once
// NumPy's .npz, a zip archive (data/zip.hpp) of .npy files (data/npy.hpp).

#include <cairn/data/npy.hpp>
#include <cairn/data/zip.hpp>

#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// The arrays of an .npz file.
class npz_file {
public:
    /// Reads the file and its directory. Throws when it is no zip file or its directory lies.
    explicit npz_file(const std::filesystem::path& path) : npz_file(read_bytes(path), path.string()) {}
    npz_file(std::vector<std::uint8_t> bytes, std::string name) : members_(std::move(bytes), std::move(name)) {}

    /// Names of the arrays, without ".npy", in the order of the file.
    std::vector<std::string> names() const {
        std::vector<std::string> out = members_.names();
        for (std::string& name : out)
            if (name.ends_with(".npy")) name.resize(name.size() - 4);
        return out;
    }

    /// One array. Throws naming the arrays that are there when it is missing, and on corrupt data.
    npy_array read(const std::string& array) const {
        const std::vector<std::string> there = names();
        for (std::size_t i = 0; i < there.size(); ++i)
            if (there[i] == array) return parse_npy(members_.read(i), concat(members_.name(), '[', array, ']'));
        fail(members_.name(), ": no array '", array, "'; there are: ", there.empty() ? "none" : listed(there));
    }

private:
    zip_archive members_;
};

}  // namespace cairn
