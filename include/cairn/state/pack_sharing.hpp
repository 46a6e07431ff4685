#pragma once
// A piece whose bytes are those of an earlier version is not written again: the pack that holds it is linked beside the
// new one, which refers to it. That is so at the first version of a branch and with frozen layers. Two checksums and a
// digest say that bytes are equal (XXH3-64 and digest.hpp), so that nothing is read but the earlier pack's directory.
// A linked pack stays on disk whole for as long as a version refers to it, hence none is linked for less than 2 % of
// the bytes.

#include <cairn/state/version.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

namespace detail {

inline bool same_content(const packed_piece& a, const packed_piece& b) {
    return a.bytes == b.bytes && a.checksum == b.checksum && a.digest == b.digest && a.type == b.type &&
           a.where == b.where && a.name == b.name;
}

/// For each piece that is to be left out, the same one in `earlier`; else null.
inline std::vector<const packed_piece*> shared_pieces(pack_layout& layout, const pack_directory& earlier) {
    std::multimap<std::string_view, const packed_piece*> by_name;
    for (const packed_piece& p : earlier.pieces) by_name.emplace(p.name, &p);
    std::vector<const packed_piece*> shared;
    std::map<std::string, std::uint64_t> bytes;  // by the version whose pack holds them
    for (const packed_piece& p : layout.pieces()) {
        shared.push_back(nullptr);
        if (p.bytes < pack_block) continue;
        for (auto [at, end] = by_name.equal_range(p.name); at != end && !shared.back(); ++at)
            if (same_content(p, *at->second)) shared.back() = at->second;
        if (shared.back()) bytes[shared.back()->holder.name()] += p.bytes;
    }
    for (const packed_piece*& p : shared)
        if (p && bytes[p->holder.name()] < layout.bytes() / 50) p = nullptr;
    return shared;
}

}  // namespace detail

/// Takes the pieces out of a sealed image that this rank's pack in `earlier`, the directory of a version, has or refers
/// to, and links the packs that hold them into `directory`. Returns the bytes that need not be written; 0 where nothing
/// is equal, or where the earlier version is gone, damaged or of other pieces: the image is then as it was.
template <class System = posix_system>
std::uint64_t share_with_earlier(pack_layout& layout, std::byte* image, const std::filesystem::path& earlier,
                                 const std::filesystem::path& directory, System system = {}) {
    const std::uint64_t before = layout.bytes();
    std::vector<std::filesystem::path> linked;
    try {
        const pack_directory there = read_pack_directory(earlier / layout.id().file());
        if (there.id.version == layout.id().version) return 0;
        const std::vector<const packed_piece*> shared = detail::shared_pieces(layout, there);
        for (const packed_piece* p : shared) {
            if (!p) continue;
            const std::filesystem::path to = directory / layout.id().file_of(p->holder);
            if (std::find(linked.begin(), linked.end(), to) != linked.end()) continue;
            share_pack(earlier / there.id.file_of(p->holder), to, system);
            linked.push_back(to);
        }
        if (!linked.empty()) layout.leave_out(image, [&](std::size_t i) { return shared[i]; });
    } catch (const error&) {
        for (const std::filesystem::path& path : linked) system.unlink(path.c_str());
    }
    return before - layout.bytes();
}

}  // namespace cairn
