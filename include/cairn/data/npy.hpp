#pragma once
// NumPy's .npy (format versions 1 to 3).
//   npy: "\x93NUMPY" major minor, header length (2 bytes, from version 2 on 4, little-endian), header, elements
//   header: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
// Read: f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 and bool, either byte order, C and Fortran order. Object arrays, which run code,
// are refused. Specification: numpy/lib/format.py.

#include <cairn/core/tensor.hpp>
#include <cairn/data/bytes.hpp>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

namespace cairn {

/// An array as it lies in the file.
struct npy_array {
    char kind = 'f';  // f float, i signed, u unsigned, b bool
    int width = 4;    // bytes an element
    std::endian order = std::endian::little;
    bool fortran = false;  // first axis fastest
    cairn::shape shape;
    std::vector<std::uint8_t> bytes;
    std::string name;  // of the file, for errors

    /// All elements as T, row-major. Throws when one does not fit (element_as).
    template <class T>
    tensor<T> to_tensor(memory_category use = memory_category::data) const {
        tensor<T> t(shape, use);
        visit_elements([&](auto example) {
            using Stored = decltype(example);
            std::array<index_t, cairn::shape::max_rank> at{};
            for (index_t i = 0; i < t.size(); ++i) {
                index_t from = i;
                if (fortran) {
                    from = 0;
                    for (int axis = shape.rank(); axis-- > 0;)
                        from = from * shape[axis] + at[static_cast<std::size_t>(axis)];
                    for (int axis = shape.rank(); axis-- > 0;) {
                        if (++at[static_cast<std::size_t>(axis)] < shape[axis]) break;
                        at[static_cast<std::size_t>(axis)] = 0;
                    }
                }
                t[i] = element_as<T>(element<Stored>(from), from, name);
            }
        });
        return t;
    }

private:
    template <class Visitor>
    void visit_elements(Visitor&& visit) const {
        if (kind == 'f') return width == 4 ? visit(float{}) : visit(double{});
        const bool is_signed = kind == 'i';
        switch (width) {
            case 1:
                return is_signed ? visit(std::int8_t{}) : visit(std::uint8_t{});
            case 2:
                return is_signed ? visit(std::int16_t{}) : visit(std::uint16_t{});
            case 4:
                return is_signed ? visit(std::int32_t{}) : visit(std::uint32_t{});
            default:
                return is_signed ? visit(std::int64_t{}) : visit(std::uint64_t{});
        }
    }

    template <class Stored>
    Stored element(index_t i) const {
        std::array<std::uint8_t, sizeof(Stored)> raw;
        std::memcpy(raw.data(), bytes.data() + static_cast<std::size_t>(i) * sizeof(Stored), sizeof(Stored));
        if (order != std::endian::native) std::reverse(raw.begin(), raw.end());
        return std::bit_cast<Stored>(raw);
    }
};

namespace detail {

// The header is a Python dictionary of three known keys.
class npy_header {
public:
    npy_header(std::string_view text, byte_reader& in) : text_(text), in_(in) {}

    void parse(npy_array& a) {
        expect('{');
        bool descr = false, fortran = false, extents = false;
        while (!accept('}')) {
            const std::string key = quoted();
            expect(':');
            if (key == "descr") {
                parse_descr(a);
                descr = true;
            } else if (key == "fortran_order") {
                fortran = true;
                a.fortran = word("True");
                if (!a.fortran && !word("False")) bad("True or False expected after 'fortran_order'");
            } else if (key == "shape") {
                extents = true;
                parse_shape(a);
            } else
                bad(concat("unknown key '", key, "'"));
            if (!accept(',')) {
                expect('}');
                break;
            }
        }
        if (!descr || !fortran || !extents) bad("'descr', 'fortran_order' and 'shape' expected");
    }

private:
    void parse_descr(npy_array& a) {
        skip_space();
        if (at_ < text_.size() && text_[at_] == '[')
            bad("structured arrays are not read: save each field as its own array");
        const std::string descr = quoted();
        if (descr.size() < 3 || std::string_view("<>|=").find(descr[0]) == std::string_view::npos)
            bad(concat("element type '", descr, "'"));
        a.kind = descr[1];
        if (a.kind == 'O') bad("object arrays are not read (they may run code): save numbers");
        const auto [end, failure] = std::from_chars(descr.data() + 2, descr.data() + descr.size(), a.width);
        const int w = a.width;
        const bool known = failure == std::errc{} && end == descr.data() + descr.size() &&
                           ((a.kind == 'f' && (w == 4 || w == 8)) || (a.kind == 'b' && w == 1) ||
                            ((a.kind == 'i' || a.kind == 'u') && (w == 1 || w == 2 || w == 4 || w == 8)));
        if (!known) bad(concat("element type '", descr, "'; f4 f8 i1 i2 i4 i8 u1 u2 u4 u8 b1 are read"));
        a.order = descr[0] == '>' ? std::endian::big : descr[0] == '<' ? std::endian::little : std::endian::native;
    }

    void parse_shape(npy_array& a) {
        expect('(');
        std::vector<std::int64_t> extents;
        while (!accept(')')) {
            skip_space();
            std::int64_t extent = 0;
            const char* first = text_.data() + at_;
            const auto [end, failure] = std::from_chars(first, text_.data() + text_.size(), extent);
            if (failure != std::errc{} || extent < 0) bad("an extent expected in 'shape'");
            at_ += static_cast<std::size_t>(end - first);
            accept('L');  // of Python 2's long integers
            if (extents.size() == shape::max_rank) bad(concat("more than ", shape::max_rank, " axes"));
            extents.push_back(extent);
            if (!accept(',')) {
                expect(')');
                break;
            }
        }
        checked_product(extents, most_elements, in_.name());
        a.shape = shape(extents);
    }

    [[noreturn]] void bad(const std::string& what) const { in_.fail_here("in the npy header: ", what); }
    void skip_space() {
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
    }
    bool accept(char c) {
        skip_space();
        if (at_ >= text_.size() || text_[at_] != c) return false;
        ++at_;
        return true;
    }
    void expect(char c) {
        if (!accept(c)) bad(concat('\'', c, "' expected at character ", at_));
    }
    bool word(std::string_view w) {
        skip_space();
        if (text_.substr(at_, w.size()) != w) return false;
        at_ += w.size();
        return true;
    }
    std::string quoted() {
        skip_space();
        if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"'))
            bad(concat("a quoted string expected at character ", at_));
        const auto end = text_.find(text_[at_], at_ + 1);
        if (end == std::string_view::npos) bad("a string without end");
        const std::string s(text_.substr(at_ + 1, end - at_ - 1));
        at_ = end + 1;
        return s;
    }

    std::string_view text_;
    byte_reader& in_;
    std::size_t at_ = 0;
};

}  // namespace detail

namespace detail {

/// Everything up to the elements: what they are, without their bytes.
inline npy_array parse_npy_header(byte_reader& in, const std::string& name) {
    const byte_span magic = in.take(6, "the npy magic string");
    require(std::memcmp(magic.data(), "\x93NUMPY", 6) == 0, name, ": byte 0: not an npy file (\\x93NUMPY expected)");
    const int version = in.number<std::uint8_t>("the version", std::endian::little);
    in.take(1, "the version");
    require(version >= 1 && version <= 3, name, ": byte 6: npy version ", version, ", 1 to 3 are read");
    const std::uint64_t length = version == 1 ? in.number<std::uint16_t>("the header length", std::endian::little)
                                              : in.number<std::uint32_t>("the header length", std::endian::little);
    npy_array a;
    a.name = name;
    const byte_span header = in.take(length, "the header");
    npy_header(std::string_view(reinterpret_cast<const char*>(header.data()), header.size()), in).parse(a);
    return a;
}

/// Throws unless `left` bytes behind the header at byte `at` are the elements.
inline std::uint64_t checked_npy_bytes(const npy_array& a, std::uint64_t at, std::uint64_t left) {
    const std::uint64_t expected =
        checked_product(a.shape, most_elements, a.name) * static_cast<std::uint64_t>(a.width);
    require(left == expected, a.name, ": an array of shape ", a.shape, " takes ", expected, " bytes from byte ", at,
            ", ", left, " are there");
    return expected;
}

}  // namespace detail

/// Takes an .npy file apart that is already in memory. Throws on anything that is not one, or whose size is not what
/// its header says.
inline npy_array parse_npy(byte_span bytes, const std::string& name) {
    byte_reader in(bytes, name);
    npy_array a = detail::parse_npy_header(in, name);
    const byte_span elements = in.take(detail::checked_npy_bytes(a, in.position(), in.left()), "the elements");
    a.bytes.assign(elements.begin(), elements.end());
    return a;
}

/// Reads an .npy file.
inline npy_array read_npy(const std::filesystem::path& path) { return parse_npy(read_bytes(path), path.string()); }

}  // namespace cairn
