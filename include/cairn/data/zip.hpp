#pragma once
// Zip archives, stored or deflated, held in memory. Found from its end: end record → central directory → local header →
// data; zip64 where sizes need it. Specification: PKWARE APPNOTE 6.3.

#include <cairn/data/gzip.hpp>

#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Whether the bytes start like a zip file with a member.
inline bool is_zip(byte_span bytes) {
    return bytes.size() >= 4 && bytes[0] == 'P' && bytes[1] == 'K' && bytes[2] == 3 && bytes[3] == 4;
}

/// The members of a zip archive.
class zip_archive {
public:
    /// Reads the directory. Throws when it is no zip file or its directory lies. `name`: of the file, for errors.
    zip_archive(std::vector<std::uint8_t> bytes, std::string name) : bytes_(std::move(bytes)), name_(std::move(name)) {
        read_directory();
    }

    const std::string& name() const { return name_; }
    /// Paths within the archive, in the order of its directory; those of folders end with '/'.
    std::vector<std::string> names() const {
        std::vector<std::string> out;
        for (const member& m : members_) out.push_back(m.name);
        return out;
    }

    /// The bytes of member `index` of names(). Throws on corrupt data.
    std::vector<std::uint8_t> read(std::size_t index) const { return unpack(members_.at(index)); }

private:
    struct member {
        std::string name;
        int method = 0;  // 0 stored, 8 deflated
        std::uint32_t crc = 0;
        std::uint64_t packed = 0, size = 0, header = 0;
    };
    static constexpr auto little = std::endian::little;

    void read_directory() {
        // The end record is the last 22 bytes plus a comment of at most 65,535.
        constexpr std::size_t end_size = 22;
        require(bytes_.size() >= end_size, name_, ": ", bytes_.size(), " bytes are no zip file: truncated?");
        std::size_t at = bytes_.size() - end_size;
        const std::size_t lowest = at > 0xffff ? at - 0xffff : 0;
        while (!has(at, 0x06054b50)) {
            require(at > lowest, name_, ": not a zip file, or truncated: no end record in the last ",
                    bytes_.size() - lowest, " bytes");
            --at;
        }
        byte_reader end = reader(at + 10);
        std::uint64_t count = end.number<std::uint16_t>("the number of members", little);
        end.take(4, "the end record");
        std::uint64_t start = end.number<std::uint32_t>("the start of the directory", little);
        if (at >= 20 && has(at - 20, 0x07064b50)) {  // zip64: a locator, then a record with the wide numbers
            const auto wide = reader(at - 12).number<std::uint64_t>("the zip64 end record", little);
            require(wide < bytes_.size() && has(static_cast<std::size_t>(wide), 0x06064b50), name_, ": byte ", at - 12,
                    ": the zip64 end record is not where it should be");
            byte_reader r = reader(static_cast<std::size_t>(wide) + 32);
            count = r.number<std::uint64_t>("the number of members", little);
            r.take(8, "the zip64 end record");
            start = r.number<std::uint64_t>("the start of the directory", little);
        }
        require(start <= bytes_.size(), name_, ": directory at byte ", start, " of ", bytes_.size());
        byte_reader directory = reader(static_cast<std::size_t>(start));
        for (std::uint64_t i = 0; i < count; ++i) members_.push_back(read_entry(directory));
    }

    member read_entry(byte_reader& in) const {
        in.require_here(in.number<std::uint32_t>("a directory entry", little) == 0x02014b50, "no zip directory entry");
        in.take(4, "a directory entry");
        const int flags = in.number<std::uint16_t>("a directory entry", little);
        member m;
        m.method = in.number<std::uint16_t>("a directory entry", little);
        in.take(4, "a directory entry");
        m.crc = in.number<std::uint32_t>("a directory entry", little);
        m.packed = in.number<std::uint32_t>("a directory entry", little);
        m.size = in.number<std::uint32_t>("a directory entry", little);
        const auto name_length = in.number<std::uint16_t>("a directory entry", little);
        const auto extra_length = in.number<std::uint16_t>("a directory entry", little);
        const auto comment_length = in.number<std::uint16_t>("a directory entry", little);
        in.take(8, "a directory entry");
        m.header = in.number<std::uint32_t>("a directory entry", little);
        const byte_span name = in.take(name_length, "a member's name");
        m.name.assign(name.begin(), name.end());
        byte_reader extra(in.take(extra_length, "an extra field"), name_);
        while (extra.left() >= 4) {
            const auto id = extra.number<std::uint16_t>("an extra field", little);
            const auto length = extra.number<std::uint16_t>("an extra field", little);
            byte_reader field(extra.take(length, "an extra field"), name_);
            if (id != 1) continue;
            for (std::uint64_t* wide : {&m.size, &m.packed, &m.header})
                if (*wide == 0xffffffff) *wide = field.number<std::uint64_t>("a zip64 field", little);
        }
        in.take(comment_length, "a comment");
        in.require_here((flags & 1) == 0, "member '", m.name, "' is encrypted");
        in.require_here(m.method == 0 || m.method == 8, "member '", m.name, "' is packed by method ", m.method,
                        "; stored (0) and deflated (8) are read");
        return m;
    }

    std::vector<std::uint8_t> unpack(const member& m) const {
        const std::string where = concat(name_, '[', m.name, ']');
        require(m.header < bytes_.size() && has(static_cast<std::size_t>(m.header), 0x04034b50), where, ": byte ",
                m.header, ": no local zip header");
        byte_reader in = reader(static_cast<std::size_t>(m.header) + 26);
        const auto name_length = in.number<std::uint16_t>("a local header", little);
        const auto extra_length = in.number<std::uint16_t>("a local header", little);
        in.take(std::uint64_t{name_length} + extra_length, "a local header");
        const byte_span packed = in.take(m.packed, "packed data");
        // Deflate packs at most about 1,032 : 1, so a size beyond that is a lie.
        require(m.size <= m.packed * 1100 + 64, where, ": claims to unpack ", m.packed, " bytes to ", m.size,
                ": corrupt directory");
        std::vector<std::uint8_t> out;
        if (m.method == 8)
            out = inflate_raw(packed, static_cast<std::size_t>(m.size), where);
        else {
            require(m.packed == m.size, where, ": stored, but ", m.packed, " and ", m.size, " bytes");
            out.assign(packed.begin(), packed.end());
        }
        const std::uint32_t crc = crc32_of(out);
        require(crc == m.crc, where, ": checksum ", crc, ", expected ", m.crc, ": corrupt data");
        return out;
    }

    bool has(std::size_t at, std::uint32_t signature) const {
        return at + 4 <= bytes_.size() && reader(at).number<std::uint32_t>("a signature", little) == signature;
    }
    byte_reader reader(std::size_t at) const {
        byte_reader in(bytes_, name_);
        in.take(at, "a zip record");
        return in;
    }

    std::vector<std::uint8_t> bytes_;
    std::string name_;
    std::vector<member> members_;
};

}  // namespace cairn
