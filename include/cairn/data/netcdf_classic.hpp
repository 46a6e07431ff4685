#pragma once
// netCDF before HDF5: classic (CDF-1), 64-bit offset (CDF-2) and 64-bit data (CDF-5).
//   "CDF" version, number of records, dimensions, attributes of the file, variables, then the elements; all big-endian
//   list: tag and count, or two zeros   name: length and UTF-8, padded to 4 bytes   counts: 4 bytes, in CDF-5 8
//   variable: name, dimensions, attributes, type, size (not relied on: it is too small for large ones), first byte
// Variables without the unlimited dimension lie one after another, each padded to 4 bytes. Then come the records: one
// row of each variable whose first dimension is the unlimited one, padded too, unless there is only one such variable.
// Specification: "The NetCDF Classic Format Specification" (Unidata). data/netcdf.hpp reads these and netCDF-4.

#include <cairn/core/tensor.hpp>
#include <cairn/data/bytes.hpp>

#include <set>
#include <string_view>
#include <utility>

namespace cairn {

/// Elements of a netCDF file, by their codes there. Those from u8 on are in CDF-5 alone.
enum class netcdf_type : std::uint32_t { i8 = 1, text, i16, i32, f32, f64, u8, u16, u32, i64, u64 };

/// visit(example of the stored type); of text a std::uint8_t, one byte of it. Throws on no type.
template <class Visitor>
decltype(auto) visit_netcdf(netcdf_type type, Visitor&& visit) {
    switch (type) {
        case netcdf_type::i8:
            return visit(std::int8_t{});
        case netcdf_type::text:
        case netcdf_type::u8:
            return visit(std::uint8_t{});
        case netcdf_type::i16:
            return visit(std::int16_t{});
        case netcdf_type::i32:
            return visit(std::int32_t{});
        case netcdf_type::f32:
            return visit(float{});
        case netcdf_type::f64:
            return visit(double{});
        case netcdf_type::u16:
            return visit(std::uint16_t{});
        case netcdf_type::u32:
            return visit(std::uint32_t{});
        case netcdf_type::i64:
            return visit(std::int64_t{});
        case netcdf_type::u64:
            return visit(std::uint64_t{});
    }
    fail("netcdf: unknown element type ", static_cast<std::uint32_t>(type));
}

inline std::size_t size_of(netcdf_type type) {
    return visit_netcdf(type, [](auto example) { return sizeof(example); });
}

struct netcdf_dimension {
    std::string name;
    index_t length = 0;
    bool unlimited = false;  // its length is the number of records
};

struct netcdf_attribute {
    std::string name;
    netcdf_type type = netcdf_type::text;
    std::vector<std::uint8_t> bytes = {};  // of its values, big-endian

    std::string text() const { return {bytes.begin(), bytes.end()}; }

    /// visit(value) of each number, as its stored type.
    template <class Visitor>
    void visit_numbers(Visitor&& visit) const {
        visit_netcdf(type, [&](auto example) {
            byte_reader in(bytes, name);
            while (in.left() > 0) visit(in.number<decltype(example)>("a value", std::endian::big));
        });
    }
};

struct netcdf_variable {
    std::string name;
    netcdf_type type = netcdf_type::f32;
    std::vector<std::size_t> dimensions = {};  // numbers of those of the file, slowest first
    std::vector<index_t> extents = {};         // their lengths
    std::vector<netcdf_attribute> attributes = {};

    /// The attribute called so, or none.
    const netcdf_attribute* attribute(std::string_view wanted) const {
        for (const netcdf_attribute& a : attributes)
            if (a.name == wanted) return &a;
        return nullptr;
    }
    /// Its extents as a shape. Throws on more axes than that has; `file` is for errors.
    cairn::shape shape(const std::string& file) const {
        const std::string context = concat(file, ": variable '", name, "'");
        require(extents.size() <= cairn::shape::max_rank, context, ": ", extents.size(), " axes; up to ",
                cairn::shape::max_rank, " are read");
        checked_product(extents, most_elements, context);
        return cairn::shape(extents);
    }
};

namespace detail {

/// Whether every character is one of UTF-8 (RFC 3629), and none is 0.
inline bool is_utf8(std::string_view text) {
    for (std::size_t i = 0; i < text.size();) {
        const auto lead = static_cast<std::uint8_t>(text[i++]);
        const int more = lead < 0x80 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
        if (lead == 0 || (lead >= 0x80 && lead < 0xc2) || lead > 0xf4) return false;
        std::uint32_t character = more == 0 ? lead : lead & (0x3fu >> more);
        for (int k = 0; k < more; ++k, ++i) {
            const std::uint8_t next = i < text.size() ? static_cast<std::uint8_t>(text[i]) : std::uint8_t{0};
            if ((next & 0xc0) != 0x80) return false;
            character = character << 6 | (next & 0x3fu);
        }
        if ((more == 2 && character < 0x800) || (more == 3 && character < 0x10000) || character > 0x10ffff ||
            (character >= 0xd800 && character < 0xe000))
            return false;
    }
    return true;
}

}  // namespace detail

/// What a file holds.
struct netcdf_description {
    std::vector<netcdf_dimension> dimensions;
    std::vector<netcdf_attribute> attributes;  // of the file as a whole
    std::vector<netcdf_variable> variables;
};

class netcdf_classic_file {
public:
    /// Reads a file and checks that all of its variables are there. Throws on anything else, naming the byte.
    explicit netcdf_classic_file(const std::filesystem::path& path)
        : netcdf_classic_file(read_bytes(path), path.string()) {}
    /// The same of a file in memory, called `name`.
    netcdf_classic_file(std::vector<std::uint8_t> bytes, std::string name)
        : bytes_(std::move(bytes)), name_(std::move(name)) {
        read_header();
    }

    const netcdf_description& description() const { return all_; }

    /// All elements of variable `number`, as they are stored, row-major, as T; of text its bytes. Throws when one does
    /// not fit (element_as), and on more than six axes.
    template <class T>
    tensor<T> read(std::size_t number, memory_category use = memory_category::data) const {
        const netcdf_variable& v = all_.variables[number];
        const place& at = places_[number];
        const std::string context = concat(name_, ": variable '", v.name, "'");
        tensor<T> t(v.shape(name_), use);
        visit_netcdf(v.type, [&](auto example) {
            using Stored = decltype(example);
            const index_t row = static_cast<index_t>(at.bytes / sizeof(Stored));
            for (index_t begin = 0; begin < t.size(); begin += row) {
                const auto first = at.begin + static_cast<std::uint64_t>(begin / row) * record_bytes_;
                byte_reader in(byte_span(bytes_).subspan(static_cast<std::size_t>(first), at.bytes), name_);
                for (index_t i = begin; i < begin + row; ++i)
                    t[i] = element_as<T>(in.number<Stored>("an element", std::endian::big), i, context);
            }
        });
        return t;
    }

private:
    // Where the elements of a variable lie: all of them, or those of the first record.
    struct place {
        std::uint64_t begin = 0, bytes = 0, padded = 0;
        bool record = false;
    };
    static constexpr auto big = std::endian::big;

    std::string where(const std::string& variable) const { return concat(name_, ": variable '", variable, "': "); }

    void read_header();
    void read_variable(byte_reader& in, std::set<std::string>& names);
    void place_variables(std::uint64_t header_end, std::uint64_t records);

    // A number of 4 bytes, in CDF-5 of 8, that is not negative.
    std::uint64_t count(byte_reader& in, const char* what) const {
        const std::size_t at = in.position();
        const std::int64_t n =
            version_ == 5 ? in.number<std::int64_t>(what, big) : std::int64_t{in.number<std::int32_t>(what, big)};
        require(n >= 0, name_, ": byte ", at, ": ", what, " is ", n, ": damaged header?");
        return static_cast<std::uint64_t>(n);
    }

    // The number of entries of a list whose tag is `tag`; 0 of one that is absent.
    std::uint64_t entries(byte_reader& in, std::uint32_t tag, const char* what) const {
        const std::size_t at = in.position();
        const auto found = in.number<std::uint32_t>(what, big);
        const std::uint64_t n = count(in, what);
        require(found == tag || (found == 0 && n == 0), name_, ": byte ", at, ": tag ", found, " before ", what, ", ",
                n, "; ", tag, " is due, or two zeros: damaged header?");
        return n;
    }

    // The next n bytes and those that pad them.
    static byte_span padded(byte_reader& in, std::uint64_t n, const char* what) {
        const byte_span taken = in.take(n, what);
        in.take((4 - n % 4) % 4, what);
        return taken;
    }

    // A name that is not among those `taken`.
    std::string new_name(byte_reader& in, std::set<std::string>& taken, const char* what) const {
        constexpr std::uint64_t longest = 256;  // the library's NC_MAX_NAME
        const std::size_t at = in.position();
        const std::uint64_t n = count(in, "the length of a name");
        require(n >= 1 && n <= longest, name_, ": byte ", at, ": ", what, " of ", n, " bytes; 1 to ", longest,
                " are possible: damaged header?");
        const byte_span raw = padded(in, n, what);
        std::string name(raw.begin(), raw.end());
        require(detail::is_utf8(name), name_, ": byte ", at, ": ", what, " is not UTF-8: damaged header?");
        require(taken.insert(name).second, name_, ": byte ", at, ": ", what, " '", name,
                "' is there twice: damaged header?");
        return name;
    }

    netcdf_type type(byte_reader& in) const;
    std::vector<netcdf_attribute> read_attributes(byte_reader& in) const;

    std::vector<std::uint8_t> bytes_;
    std::string name_;
    int version_ = 1;
    netcdf_description all_;
    std::vector<place> places_;  // of each variable
    std::uint64_t record_bytes_ = 0;
};

inline void netcdf_classic_file::read_header() {
    byte_reader in(bytes_, name_);
    const byte_span magic = in.take(4, "the netCDF signature");
    require(std::memcmp(magic.data(), "\x89HDF", 4) != 0, name_,
            ": byte 0: a netCDF-4 file, which is HDF5: netcdf_file reads it from its path");
    require(std::memcmp(magic.data(), "CDF", 3) == 0, name_, ": byte 0: not a netCDF file (\"CDF\" expected)");
    version_ = magic[3];
    require(version_ == 1 || version_ == 2 || version_ == 5, name_, ": byte 3: netCDF version ", version_,
            "; 1 (classic), 2 (64-bit offset) and 5 (64-bit data) are read: convert it (nccopy -k classic)");
    // All ones: a file that was written as a stream; the number follows from its length.
    constexpr std::uint64_t streaming = ~std::uint64_t{0};
    const std::size_t records_at = in.position();
    std::uint64_t records = version_ == 5 ? in.number<std::uint64_t>("the number of records", big)
                                          : in.number<std::uint32_t>("the number of records", big);
    if (version_ != 5 && records == 0xffffffff) records = streaming;
    const std::uint64_t most = version_ == 5 ? INT64_MAX : INT32_MAX;
    require(records == streaming || records <= most, name_, ": byte ", records_at,
            ": the number of records is negative: damaged header?");

    std::set<std::string> names;
    int unlimited = 0;
    for (std::uint64_t left = entries(in, 10, "the number of dimensions"); left > 0; --left) {
        netcdf_dimension d{.name = new_name(in, names, "a dimension's name")};
        const std::size_t at = in.position();
        const std::uint64_t length =  // of CDF-2 it may pass 2^31
            version_ == 2 ? in.number<std::uint32_t>("a dimension's length", big) : count(in, "a dimension's length");
        d.length = static_cast<index_t>(length);
        d.unlimited = length == 0;
        require(!d.unlimited || unlimited++ == 0, name_, ": byte ", at, ": '", d.name,
                "' is a second unlimited dimension: damaged header?");
        all_.dimensions.push_back(std::move(d));
    }
    all_.attributes = read_attributes(in);
    names.clear();
    for (std::uint64_t left = entries(in, 11, "the number of variables"); left > 0; --left) read_variable(in, names);
    place_variables(in.position(), records);
}

inline netcdf_type netcdf_classic_file::type(byte_reader& in) const {
    const std::size_t at = in.position();
    const auto code = in.number<std::uint32_t>("an element type", big);
    const std::uint32_t last = version_ == 5 ? 11 : 6;
    require(code >= 1 && code <= last, name_, ": byte ", at, ": unknown element type ", code, "; 1 to ", last,
            " are possible: damaged header?");
    return static_cast<netcdf_type>(code);
}

inline std::vector<netcdf_attribute> netcdf_classic_file::read_attributes(byte_reader& in) const {
    std::vector<netcdf_attribute> out;
    std::set<std::string> names;
    for (std::uint64_t left = entries(in, 12, "the number of attributes"); left > 0; --left) {
        netcdf_attribute a{.name = new_name(in, names, "an attribute's name")};
        a.type = type(in);
        const std::uint64_t n = count(in, "the number of an attribute's values");
        in.require_here(n <= in.left() / size_of(a.type), "truncated: attribute '", a.name, "' has ", n, " values of ",
                        size_of(a.type), " byte(s), ", in.left(), " bytes are left");
        const byte_span values = padded(in, n * size_of(a.type), "an attribute's values");
        a.bytes.assign(values.begin(), values.end());
        out.push_back(std::move(a));
    }
    return out;
}

inline void netcdf_classic_file::read_variable(byte_reader& in, std::set<std::string>& names) {
    netcdf_variable v{.name = new_name(in, names, "a variable's name")};
    place p;
    for (std::uint64_t left = count(in, "a variable's number of dimensions"); left > 0; --left) {
        const std::uint64_t number = count(in, "a variable's dimension");
        in.require_here(number < all_.dimensions.size(), "variable '", v.name, "' has dimension number ", number,
                        " of ", all_.dimensions.size(), ": damaged header?");
        const netcdf_dimension& d = all_.dimensions[static_cast<std::size_t>(number)];
        in.require_here(!d.unlimited || v.dimensions.empty(), "variable '", v.name, "': the unlimited dimension '",
                        d.name, "' is not its first: damaged header?");
        p.record |= d.unlimited;
        v.dimensions.push_back(static_cast<std::size_t>(number));
        v.extents.push_back(d.length);
    }
    v.attributes = read_attributes(in);
    v.type = type(in);
    in.take(version_ == 5 ? 8 : 4, "a variable's size");
    p.begin = version_ == 1 ? count(in, "a variable's first byte")
                            : static_cast<std::uint64_t>(in.number<std::int64_t>("a variable's first byte", big));
    const std::string name = concat(name_, ": variable '", v.name, "'");
    require(p.begin <= INT64_MAX, name, ": its first byte is negative: damaged header?");
    const std::span row = std::span(v.extents).subspan(p.record ? 1 : 0);
    p.bytes = checked_product(row, most_elements, name) * size_of(v.type);
    p.padded = (p.bytes + 3) / 4 * 4;
    all_.variables.push_back(std::move(v));
    places_.push_back(p);
}

// Sizes are below 2^60 and first bytes below 2^63, so that no sum below passes 2^64.
inline void netcdf_classic_file::place_variables(std::uint64_t header_end, std::uint64_t records) {
    const std::uint64_t size = bytes_.size();
    std::uint64_t end = header_end;
    const auto require_begin = [&](std::size_t i, bool possible) {
        require(possible, where(all_.variables[i].name), "begins at byte ", places_[i].begin,
                ", what precedes it ends at byte ", end, ": damaged header?");
    };
    const auto require_end = [&](std::size_t i, std::uint64_t more) {  // and `more` records
        const place& p = places_[i];
        const bool there = p.begin <= size && p.bytes <= size - p.begin &&
                           (more == 0 || more <= (size - p.begin - p.bytes) / record_bytes_);
        require(there, where(all_.variables[i].name), "truncated, or a damaged header: ", p.bytes, " bytes from byte ",
                p.begin, p.record ? concat(" in each of ", more + 1, " records") : "", ", the file has ", size,
                ": fetch it again");
    };
    std::vector<std::size_t> of_records;
    for (std::size_t i = 0; i < places_.size(); ++i) {
        if (places_[i].record) {
            of_records.push_back(i);
            continue;
        }
        require_begin(i, places_[i].begin >= end);
        require_end(i, 0);
        end = places_[i].begin + places_[i].padded;
    }
    if (of_records.size() == 1) places_[of_records[0]].padded = places_[of_records[0]].bytes;
    for (const std::size_t i : of_records) {
        require_begin(i, record_bytes_ == 0 ? places_[i].begin >= end : places_[i].begin == end);
        record_bytes_ += places_[i].padded;
        require(record_bytes_ <= most_elements * 8, name_, ": records of ", record_bytes_,
                " bytes cannot be there: damaged header?");
        end = places_[i].begin + places_[i].padded;
    }
    if (records == ~std::uint64_t{0}) {  // whole records; the last may lack its padding
        records = 0;
        if (!of_records.empty()) {
            const place& last = places_[of_records.back()];
            const std::uint64_t begin = places_[of_records[0]].begin, length = size + last.padded - last.bytes;
            records = length > begin ? (length - begin) / record_bytes_ : 0;
        }
    }
    for (const std::size_t i : of_records) {
        if (records > 0) require_end(i, records - 1);
        all_.variables[i].extents[0] = static_cast<index_t>(records);
    }
    for (netcdf_dimension& d : all_.dimensions)
        if (d.unlimited) d.length = static_cast<index_t>(records);
}

}  // namespace cairn
