#pragma once
// IDX, the format of MNIST (yann.lecun.com/exdb/mnist): a big-endian array of any rank.
//   byte 0, 1: zero   byte 2: element type   byte 3: rank   then `rank` extents of 4 bytes, then the elements
// Row-major. Read plain or packed by gzip.

#include <cairn/core/tensor.hpp>
#include <cairn/data/gzip.hpp>

namespace cairn {

/// Element types of IDX, by their code.
enum class idx_type : std::uint8_t { u8 = 0x08, i8 = 0x09, i16 = 0x0b, i32 = 0x0c, f32 = 0x0d, f64 = 0x0e };

inline std::size_t size_of(idx_type t) {
    switch (t) {
        case idx_type::u8:
        case idx_type::i8:
            return 1;
        case idx_type::i16:
            return 2;
        case idx_type::i32:
        case idx_type::f32:
            return 4;
        case idx_type::f64:
            return 8;
    }
    fail("idx: unknown element type ", static_cast<int>(t));
}

/// An array as it lies in the file.
struct idx_array {
    idx_type type = idx_type::u8;
    cairn::shape shape;
    std::vector<std::uint8_t> bytes;  // elements, big-endian
    std::string name;                 // of the file

    index_t size() const { return shape.size(); }

    /// Element i as a double, whatever its type.
    double operator[](index_t i) const {
        const auto at = static_cast<std::size_t>(i) * size_of(type);
        byte_reader in(byte_span(bytes).subspan(at, size_of(type)), name);
        constexpr auto big = std::endian::big;
        switch (type) {
            case idx_type::u8:
                return in.number<std::uint8_t>("element", big);
            case idx_type::i8:
                return in.number<std::int8_t>("element", big);
            case idx_type::i16:
                return in.number<std::int16_t>("element", big);
            case idx_type::i32:
                return in.number<std::int32_t>("element", big);
            case idx_type::f32:
                return static_cast<double>(in.number<float>("element", big));
            case idx_type::f64:
                return in.number<double>("element", big);
        }
        fail(name, ": unknown element type");
    }

    /// All elements as T. Throws when one does not fit (element_as).
    template <class T>
    tensor<T> to_tensor(memory_category use = memory_category::data) const {
        tensor<T> t(shape, use);
        if (type == idx_type::u8)
            std::copy(bytes.begin(), bytes.end(), t.data());
        else
            for (index_t i = 0; i < t.size(); ++i) t[i] = element_as<T>((*this)[i], i, name);
        return t;
    }
};

/// Takes an IDX file apart that is already in memory and unpacked; `name` is for errors. Throws unless the size is
/// exactly what the header says.
inline idx_array parse_idx(std::vector<std::uint8_t> bytes, const std::string& name) {
    byte_reader in(bytes, name);
    const byte_span magic = in.take(4, "the IDX magic number");
    require(magic[0] == 0 && magic[1] == 0, name, ": byte 0: not an IDX file (two zero bytes expected, found ",
            int{magic[0]}, " and ", int{magic[1]}, ")");
    const int code = magic[2], rank = magic[3];
    require(code == 0x08 || code == 0x09 || (code >= 0x0b && code <= 0x0e), name, ": byte 2: unknown IDX element type ",
            code, " (8 to 14 without 10 expected)");
    require(rank >= 1 && rank <= shape::max_rank, name, ": byte 3: rank ", rank, "; 1 to ", shape::max_rank,
            " are read");
    idx_array a;
    a.name = name;
    a.type = static_cast<idx_type>(code);
    std::vector<std::uint32_t> extents;
    for (int axis = 0; axis < rank; ++axis) extents.push_back(in.number<std::uint32_t>("an extent", std::endian::big));
    const std::uint64_t width = size_of(a.type), expected = checked_product(extents, most_elements, name) * width;
    for (std::uint32_t extent : extents) a.shape.push_back(extent);
    require(in.left() == expected, name, ": ", a.shape, " elements of ", width, " byte(s) take ", expected,
            " bytes from byte ", in.position(), ", ", in.left(), " are there: truncated or mixed-up file?");
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(in.position()));
    a.bytes = std::move(bytes);
    return a;
}

/// Reads an IDX file, plain or .gz.
inline idx_array read_idx(const std::filesystem::path& path) { return parse_idx(read_maybe_gzip(path), path.string()); }

}  // namespace cairn
