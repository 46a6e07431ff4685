#pragma once
// Saves and restores a state_view, synchronously and whole.
//   save_state   leaves the old or the new file, never a mixture (atomic_file.hpp)
//   load_state   checks names, types, shapes and every checksum before it changes anything in memory
// The format is state_format.hpp's. Tested by failing and by dying at every system call, by killing at random times,
// and by changing every byte of a file.

#include <cairn/core/atomic_file.hpp>
#include <cairn/state/state_format.hpp>

#include <map>

namespace cairn {

namespace detail {

/// Throws one error that lists how the file and the program differ.
inline void require_same_entries(const std::string& file, const std::vector<stored_entry>& stored,
                                 const state_view& state) {
    std::map<std::string, const stored_entry*> by_name;
    for (const stored_entry& e : stored)
        require(by_name.emplace(e.name, &e).second, file, ": two entries are called ", e.name);
    state_differences differences;
    for (const auto& e : state.entries()) {
        const auto found = by_name.find(e.name);
        if (found == by_name.end()) {
            differences.add(e.name, " (", type_text(e.type, e.where.global), ") is not in the file");
            continue;
        }
        if (found->second->type != e.type || found->second->shape != e.where.global)
            differences.add(e.name, " is ", type_text(found->second->type, found->second->shape), " in the file, ",
                            type_text(e.type, e.where.global), " in the program");
        by_name.erase(found);
    }
    for (const stored_entry& e : stored)
        if (by_name.count(e.name)) differences.add(e.name, " (", type_text(e.type, e.shape), ") is only in the file");
    require(differences.none(), file, ": saved by another model or set-up: ", differences.text());
}

}  // namespace detail

/// Writes all entries of `state` to `path` and returns when they are on disk. Throws when that fails; what was at
/// `path` is then untouched. Costs a pass over the data for checksums and the writing.
template <class System = posix_system>
void save_state(const std::filesystem::path& path, const state_view& state, System system = {}) {
    using namespace detail;
    for (const auto& e : state.entries())
        require(e.where.is_whole(), path.string(), ": ", e.name, " is to be ", e.where,
                "; a file of its own has whole tensors (state/pack.hpp has pieces)");
    const std::string directory = state_directory(state);
    state_header header{{}, state_order, state_version, directory.size(), crc32c(directory.data(), directory.size()),
                        0};
    std::memcpy(header.magic, state_magic, 8);
    header.header_checksum = crc32c(&header, sizeof header - 4);

    atomic_file<System> file(path, std::move(system));
    file.write(&header, sizeof header);
    file.write(directory.data(), directory.size());
    const char zeros[state_alignment] = {};
    for (const auto& e : state.entries()) {
        file.write(zeros, state_aligned(file.written()) - file.written());
        file.write(e.bytes_begin(), e.bytes());
    }
    file.commit();
}

/// Directory of a saved state. Throws on a file that is absent, truncated or corrupt; reads header and directory alone.
inline std::vector<stored_entry> list_state(const std::filesystem::path& path) {
    return detail::read_directory(detail::state_reader(path));
}

/// Restores all entries of `state` from `path`, bit by bit. Throws when the file is absent, truncated or corrupt
/// (naming entry and byte), or holds other names, types or shapes (naming them); memory is then as it was, unless the
/// disk fails between the pass that checks and the pass that reads.
inline void load_state(const std::filesystem::path& path, const state_view& state) {
    const detail::state_reader file(path);
    const auto stored = detail::read_directory(file);
    detail::require_same_entries(file.name(), stored, state);

    std::string buffer;
    for (const stored_entry& e : stored) {
        std::uint32_t checksum = 0;
        for (std::uint64_t done = 0; done < e.bytes; done += buffer.size()) {
            buffer.resize(std::min<std::uint64_t>(e.bytes - done, 1 << 20));
            file.read(e.position + done, buffer.data(), buffer.size(), e.name);
            checksum = crc32c(buffer.data(), buffer.size(), checksum);
        }
        require(checksum == e.checksum, file.name(), ": entry ", e.name, ", bytes ", e.position, " to ",
                e.position + e.bytes, ": the checksum is wrong: corrupt file");
    }
    std::map<std::string, const state_view::entry*> places;
    for (const auto& e : state.entries()) places.emplace(e.name, &e);
    for (const stored_entry& e : stored) {
        const state_view::entry& place = *places.at(e.name);
        if (e.type == element_type::text) place.text().resize(e.bytes);
        file.read(e.position, e.type == element_type::text ? place.text().data() : place.data, e.bytes, e.name);
    }
}

}  // namespace cairn
