#pragma once
// Bytes of a file with bounds: every reader of a format goes through this, so that a short or lying file ends in an
// error that names the file, the byte, what was expected and what was found, and never in a read past the end.

#include <cairn/core/error.hpp>
#include <cairn/core/shape.hpp>

#include <array>
#include <bit>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include <unistd.h>

namespace cairn {

using byte_span = std::span<const std::uint8_t>;

/// A name as those are compared that some systems write in capitals.
inline std::string lower_case(std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

/// More than this of one file would leave no memory to train with.
inline std::uint64_t half_of_memory() {
    return static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) / 2 * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

/// All bytes of a file. Throws when it does not exist, is no regular file, or cannot be read to its end.
inline std::vector<std::uint8_t> read_bytes(const std::filesystem::path& path) {
    std::error_code failure;
    const auto status = std::filesystem::status(path, failure);
    require(std::filesystem::exists(status), path.string(), ": no such file");
    require(std::filesystem::is_regular_file(status), path.string(), ": not a regular file");
    const auto size = std::filesystem::file_size(path, failure);
    require(!failure, path.string(), ": ", failure.message());
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
    require(file != nullptr, path.string(), ": cannot be opened: ", std::strerror(errno));
    std::vector<std::uint8_t> bytes;
    try {
        bytes.resize(size);
    } catch (const std::exception&) {  // bad_alloc, length_error
        fail(path.string(), ": does not fit the memory: ", size, " bytes");
    }
    const std::size_t got = size ? std::fread(bytes.data(), 1, bytes.size(), file.get()) : 0;
    require(got == bytes.size(), path.string(), ": read error at byte ", got, " of ", size);
    return bytes;
}

/// A position in a span of bytes. `name` is the file (or archive member) that errors speak of.
class byte_reader {
public:
    byte_reader(byte_span bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {}

    std::size_t position() const { return at_; }
    std::size_t left() const { return bytes_.size() - at_; }

    /// The next n bytes. Throws naming `what` was expected.
    byte_span take(std::uint64_t n, const char* what) {
        if (n > left())
            fail(name_, ": truncated at byte ", bytes_.size(), ": ", what, " needs ", n, " bytes from byte ", at_, ", ",
                 left(), " are left");
        const byte_span taken = bytes_.subspan(at_, static_cast<std::size_t>(n));
        at_ += static_cast<std::size_t>(n);
        return taken;
    }

    /// The next number, stored in the byte order `order`.
    template <class T>
    T number(const char* what, std::endian order) {
        const byte_span raw = take(sizeof(T), what);
        std::array<std::uint8_t, sizeof(T)> ordered;
        for (std::size_t i = 0; i < sizeof(T); ++i)
            ordered[i] = order == std::endian::native ? raw[i] : raw[sizeof(T) - 1 - i];
        T value;
        std::memcpy(&value, ordered.data(), sizeof(T));
        return value;
    }

    /// Throws with the file's name and the current byte in front.
    template <class... Parts>
    [[noreturn]] void fail_here(const Parts&... parts) const {
        fail(name_, ": byte ", at_, ": ", parts...);
    }
    template <class... Parts>
    void require_here(bool condition, const Parts&... parts) const {
        if (!condition) [[unlikely]]
            fail_here(parts...);
    }
    const std::string& name() const { return name_; }

private:
    byte_span bytes_;
    std::string name_;
    std::size_t at_ = 0;
};

/// Element i of the array `name` as T. Throws where T does not hold it: whole numbers out of range, fractions and NaN
/// as whole numbers, finite numbers that would become infinite.
template <class T, class Stored>
T element_as(Stored value, index_t i, const std::string& name) {
    if constexpr (std::is_integral_v<T> && std::is_integral_v<Stored>)
        require(std::in_range<T>(value), name, ": element ", i, " is ", +value, ", too large for the ", sizeof(T),
                "-byte integers asked for");
    else if constexpr (std::is_integral_v<T>)
        require(value >= static_cast<Stored>(std::numeric_limits<T>::min()) &&
                    value < std::ldexp(Stored{1}, std::numeric_limits<T>::digits) && value == std::trunc(value),
                name, ": element ", i, " is ", value, ", which is no ", sizeof(T), "-byte integer");
    else if constexpr (sizeof(T) < sizeof(Stored) && std::is_floating_point_v<Stored>)
        require(std::isfinite(static_cast<T>(value)) || !std::isfinite(value), name, ": element ", i, " is ", value,
                ", too large for the ", sizeof(T), "-byte numbers asked for");
    return static_cast<T>(value);
}

/// Product of extents that a file claims. Throws when the product of those that are not 0 passes `limit`: a header of a
/// few bytes must neither overflow a count nor ask for all memory.
template <class Extents>
std::uint64_t checked_product(const Extents& extents, std::uint64_t limit, const std::string& name) {
    std::uint64_t product = 1;
    bool none = false;
    for (const auto raw : extents) {
        const auto extent = static_cast<std::uint64_t>(raw);
        none |= extent == 0;
        if (extent == 0) continue;
        require(product <= limit / extent, name, ": its header claims more than ", limit,
                " elements, which cannot be there: corrupt header?");
        product *= extent;
    }
    return none ? 0 : product;
}

/// More elements than any file holds, with room to multiply by a few bytes each.
inline constexpr std::uint64_t most_elements = std::uint64_t{1} << 56;

}  // namespace cairn
