#pragma once
// Data sets and folders that tests make themselves.
#include "messages.hpp"

#include <cairn/data/bytes.hpp>
#include <cairn/data/dataset.hpp>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <set>

#include <unistd.h>

namespace cairn::test {

/// Sample i is (i, i + 0.5·u, epoch) with u the first random number of its key; label i mod 7 or values (i, −i).
struct counting_dataset {
    index_t n = 100;
    target_kind kind = target_kind::classes;
    std::set<index_t> corrupt{};   // read() returns false
    std::set<index_t> throwing{};  // read() throws

    index_t size() const { return n; }
    shape sample_shape() const { return {3}; }
    target_info targets() const {
        if (kind == target_kind::classes) return {kind, {"a", "b", "c", "d", "e", "f", "g"}, {}, {}};
        return {kind, {"plus", "minus"}, {0, 0}, {1, 1}};
    }
    std::string sample_name(index_t i) const { return concat("count #", i); }
    bool read(index_t i, augment_key key, sample_slot slot) const {
        require(!throwing.contains(i), "byte 17: broken on purpose");
        if (corrupt.contains(i)) return false;
        slot.x[0] = static_cast<float>(i);
        slot.x[1] = static_cast<float>(i) + 0.5f * sample_random(key, i).uniform();
        slot.x[2] = static_cast<float>(key.epoch);
        if (slot.label) *slot.label = static_cast<std::int32_t>(i % 7);
        if (slot.values) {
            slot.values[0] = static_cast<float>(i);
            slot.values[1] = -static_cast<float>(i);
        }
        return true;
    }
};

/// A folder that goes away with the object.
class temporary_folder {
public:
    temporary_folder() {
        static std::atomic<int> number{0};
        path_ = std::filesystem::temp_directory_path() / concat("cairn-test-", getpid(), '-', number++);
        std::filesystem::create_directories(path_);
    }
    ~temporary_folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    temporary_folder(const temporary_folder&) = delete;
    temporary_folder& operator=(const temporary_folder&) = delete;

    const std::filesystem::path& path() const { return path_; }
    /// Writes a file, with its folders, and returns its path.
    std::filesystem::path write(const std::string& name, std::span<const std::uint8_t> bytes) const {
        const auto file = path_ / name;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file, std::ios::binary)
            .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        return file;
    }
    std::filesystem::path write(const std::string& name, const std::string& text) const {
        return write(name, std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
    }

private:
    std::filesystem::path path_;
};

/// Folder of real data: $CAIRN_DATA, else ../shared/data seen from the repository; empty when there is none.
inline std::filesystem::path real_data() {
    if (const char* folder = std::getenv("CAIRN_DATA")) return folder;
    for (auto at = std::filesystem::path(__FILE__).parent_path(); at.has_relative_path(); at = at.parent_path())
        if (std::filesystem::exists(at / "shared" / "data" / "README.md")) return at / "shared" / "data";
    return {};
}

}  // namespace cairn::test
