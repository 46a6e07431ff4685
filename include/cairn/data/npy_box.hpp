#pragma once
// A box of an .npy file without the rest of it: ranks of spatial parallelism read their part of a volume alone.
// The header is read, then each contiguous run of the box (core/box.hpp), in C and in Fortran order.
// Bytes read: those of the box, in runs as long as its trailing whole axes allow; cut the leading axes for long ones.

#include <cairn/core/box.hpp>
#include <cairn/data/npy.hpp>

#include <algorithm>
#include <memory>
#include <vector>

namespace cairn {

inline constexpr std::uint64_t longest_npy_header = 16384;  // NumPy writes 128 bytes and reads up to 10,000

/// The box of shape `count` that begins at `begin`. Throws as read_npy does, and where the box is not within the array.
inline npy_array read_npy_box(const std::filesystem::path& path, std::span<const index_t> begin, const shape& count) {
    std::error_code failure;
    require(std::filesystem::is_regular_file(path, failure), path.string(), ": no such file");
    const std::uint64_t size = std::filesystem::file_size(path, failure);
    require(!failure, path.string(), ": ", failure.message());
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
    require(file != nullptr, path.string(), ": cannot be opened: ", std::strerror(errno));
    const auto read_at = [&](std::uint64_t at, std::uint8_t* to, std::size_t bytes) {
        require(::fseeko(file.get(), static_cast<off_t>(at), SEEK_SET) == 0 &&
                    std::fread(to, 1, bytes, file.get()) == bytes,
                path.string(), ": read error at byte ", at, " of ", size);
    };

    std::vector<std::uint8_t> head(static_cast<std::size_t>(std::min<std::uint64_t>(size, longest_npy_header)));
    read_at(0, head.data(), head.size());
    byte_reader in(head, path.string());
    npy_array a = detail::parse_npy_header(in, path.string());
    const std::uint64_t first = in.position();
    detail::checked_npy_bytes(a, first, size - first);
    with_context(a.name, [&] { check_box(a.shape, begin, count); });

    // Fortran order is C order of the axes reversed.
    shape whole, box;
    std::vector<index_t> from;
    for (int i = 0; i < count.rank(); ++i) {
        const int axis = a.fortran ? count.rank() - 1 - i : i;
        whole.push_back(a.shape[axis]);
        box.push_back(count[axis]);
        from.push_back(begin[static_cast<std::size_t>(axis)]);
    }
    const auto width = static_cast<std::size_t>(a.width);
    a.shape = count;
    a.bytes.resize(static_cast<std::size_t>(count.size()) * width);
    for_runs(whole, from, box, [&](index_t in_whole, index_t in_box, index_t n) {
        read_at(first + static_cast<std::size_t>(in_whole) * width,
                a.bytes.data() + static_cast<std::size_t>(in_box) * width, static_cast<std::size_t>(n) * width);
    });
    return a;
}

}  // namespace cairn
