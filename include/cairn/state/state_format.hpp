#pragma once
// The bytes of a saved state.
//   header     8 bytes magic, u32 0x01020304, u32 version, u64 bytes and u32 CRC-32C of the directory,
//              u32 CRC-32C of the header so far
//   directory  u64 entries; for each: u32 length and name, u8 type, u8 rank, i64 extents, u64 bytes,
//              u32 CRC-32C of its data
//   data       in the same order, each entry on the next multiple of 64 bytes, zeros between
// Numbers are in the byte order of the machine, which the header tells. Every length is checked against the file before
// it is believed.

#include <cairn/state/checksum.hpp>
#include <cairn/state/state_view.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cairn {

/// An entry as the file describes it.
struct stored_entry {
    std::string name;
    element_type type = element_type::float32;
    cairn::shape shape;
    std::uint64_t position = 0, bytes = 0;  // in the file
    std::uint32_t checksum = 0;
};

namespace detail {

inline constexpr char state_magic[9] = "CAIRNST\n";
inline constexpr std::uint32_t state_order = 0x01020304, state_version = 1;
inline constexpr std::size_t state_header_bytes = 32, state_alignment = 64;

struct state_header {
    char magic[8];
    std::uint32_t order, version;
    std::uint64_t directory_bytes;
    std::uint32_t directory_checksum, header_checksum;
};
static_assert(sizeof(state_header) == state_header_bytes);

inline std::size_t state_aligned(std::size_t at) {
    return (at + state_alignment - 1) / state_alignment * state_alignment;
}

template <class T>
void append_raw(std::string& out, const T& value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

inline std::string state_directory(const state_view& state) {
    std::string out;
    append_raw(out, static_cast<std::uint64_t>(state.entries().size()));
    for (const auto& e : state.entries()) {
        append_raw(out, static_cast<std::uint32_t>(e.name.size()));
        out += e.name;
        append_raw(out, e.type);
        append_raw(out, static_cast<std::uint8_t>(e.where.extent.rank()));
        for (const index_t extent : e.where.extent) append_raw(out, static_cast<std::int64_t>(extent));
        append_raw(out, static_cast<std::uint64_t>(e.bytes()));
        append_raw(out, crc32c(e.bytes_begin(), e.bytes()));
    }
    return out;
}

/// A file opened for reading, with errors that name it.
class state_reader {
public:
    explicit state_reader(const std::filesystem::path& path)
        : name_(path.string()), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
        require(file_ >= 0, name_, ": cannot be opened: ", std::strerror(errno));
        struct stat info {};
        const bool known = ::fstat(file_, &info) == 0;
        if (!known || !S_ISREG(info.st_mode)) {
            ::close(file_);
            fail(name_, ": not a regular file");
        }
        size_ = static_cast<std::uint64_t>(info.st_size);
    }
    ~state_reader() { ::close(file_); }
    state_reader(const state_reader&) = delete;
    state_reader& operator=(const state_reader&) = delete;

    std::uint64_t size() const { return size_; }
    const std::string& name() const { return name_; }

    void read(std::uint64_t at, void* data, std::uint64_t bytes, const std::string& what) const {
        require(bytes <= size_ && at <= size_ - bytes, name_, ": truncated: ", what, " needs bytes ", at, " to ",
                at + bytes, ", the file has ", size_);
        auto* to = static_cast<char*>(data);
        while (bytes > 0) {
            const ssize_t got = ::pread(file_, to, bytes, static_cast<off_t>(at));
            if (got < 0 && errno == EINTR) continue;
            require(got > 0, name_, ": reading ", what, " at byte ", at, ": ",
                    got ? std::strerror(errno) : "the file became shorter");
            to += got;
            at += static_cast<std::uint64_t>(got);
            bytes -= static_cast<std::uint64_t>(got);
        }
    }

private:
    std::string name_;
    int file_;
    std::uint64_t size_ = 0;
};

/// Takes numbers out of the directory; a directory that ends early is an error.
class directory_parser {
public:
    /// `begin`: position of the bytes in the file.
    directory_parser(const std::string& bytes, const std::string& file, std::size_t begin)
        : bytes_(bytes), file_(file), begin_(begin) {}

    template <class T>
    T number() {
        T value;
        std::memcpy(&value, take(sizeof value), sizeof value);
        return value;
    }
    std::string text(std::size_t length) {
        const char* begin = take(length);
        return {begin, length};
    }
    std::size_t left() const { return bytes_.size() - at_; }

private:
    const char* take(std::size_t bytes) {
        require(bytes <= left(), file_, ": byte ", begin_ + at_, ": the directory ends in the middle of an entry");
        at_ += bytes;
        return bytes_.data() + at_ - bytes;
    }

    const std::string& bytes_;
    const std::string& file_;
    std::size_t begin_, at_ = 0;
};

inline stored_entry parse_entry(directory_parser& in, const std::string& file, std::uint64_t number) {
    stored_entry e;
    e.name = in.text(in.number<std::uint32_t>());
    const auto type = in.number<std::uint8_t>(), rank = in.number<std::uint8_t>();
    require(type < element_infos.size() && rank <= shape::max_rank, file, ": entry ", number, " (", e.name,
            ") has type ", int{type}, " and ", int{rank}, " axes; written by a newer version?");
    e.type = static_cast<element_type>(type);
    std::uint64_t elements = 1;
    for (int axis = 0; axis < rank; ++axis) {
        const auto extent = in.number<std::int64_t>();
        require(
            extent >= 0 && (extent == 0 || elements <= (std::uint64_t{1} << 56) / static_cast<std::uint64_t>(extent)),
            file, ": entry ", e.name, " has an impossible extent ", extent);
        e.shape.push_back(extent);
        elements *= static_cast<std::uint64_t>(extent);
    }
    e.bytes = in.number<std::uint64_t>();
    e.checksum = in.number<std::uint32_t>();
    const auto& info = element_infos[type];
    require(e.type == element_type::text || e.bytes == elements * info.bytes, file, ": entry ", e.name, ' ', e.shape,
            " of ", info.name, " claims ", e.bytes, " bytes");
    return e;
}

/// The bytes from `begin` to `end`, before what `name` says, must be zero: so no damaged byte of a file goes unseen.
inline void require_zeros(const state_reader& file, std::uint64_t begin, std::uint64_t end, const std::string& name) {
    std::array<char, 4096> padding{};
    file.read(begin, padding.data(), end - begin, "the padding before " + name);
    require(std::count(padding.begin(), padding.end(), '\0') == std::ssize(padding), file.name(), ": bytes ", begin,
            " to ", end, ", before ", name, ", are not zero: corrupt file");
}

/// Reads a header, which begins with 8 bytes of `magic`, byte order and format version and ends in its checksum, and
/// the directory behind it, which is returned. `what` the file ought to be; `sum`: the checksum of both.
template <class Header, class Checksum>
std::string read_header_and_directory(const state_reader& file, Header& h, const char* magic, std::uint32_t version,
                                      const char* what, Checksum sum) {
    file.read(0, &h, sizeof h, "the header");
    require(std::memcmp(h.magic, magic, 8) == 0, file.name(), ": byte 0: not a ", what, " of Cairn");
    require(h.order == state_order, file.name(), ": byte 8: written on a machine with another byte order");
    require(h.version == version, file.name(), ": byte 12: format version ", h.version, ", this program reads version ",
            version);
    require(sum(&h, sizeof h - sizeof h.header_checksum) == h.header_checksum, file.name(),
            ": byte 0: the header's checksum is wrong: corrupt file");
    require(h.directory_bytes <= file.size(), file.name(), ": truncated: a directory of ", h.directory_bytes,
            " bytes, the file has ", file.size());
    std::string directory(h.directory_bytes, '\0');
    file.read(sizeof h, directory.data(), directory.size(), "the directory");
    require(sum(directory.data(), directory.size()) == h.directory_checksum, file.name(), ": byte ", sizeof h,
            ": the directory's checksum is wrong: corrupt file");
    return directory;
}

inline std::vector<stored_entry> read_directory(const state_reader& file) {
    state_header header{};
    const std::string directory =
        read_header_and_directory(file, header, state_magic, state_version, "saved state",
                                  [](const void* data, std::size_t bytes) { return crc32c(data, bytes); });

    directory_parser in(directory, file.name(), sizeof header);
    const auto count = in.number<std::uint64_t>();
    std::vector<stored_entry> entries;
    std::uint64_t end = sizeof header + directory.size();
    for (std::uint64_t i = 0; i < count; ++i) {
        entries.push_back(parse_entry(in, file.name(), i));
        stored_entry& e = entries.back();
        e.position = state_aligned(end);
        require(e.position <= file.size() && e.bytes <= file.size() - e.position, file.name(), ": truncated: entry ",
                e.name, " needs bytes ", e.position, " to ", e.position + e.bytes, ", the file has ", file.size());
        require_zeros(file, end, e.position, e.name);
        end = e.position + e.bytes;
    }
    require(in.left() == 0, file.name(), ": the directory has ", in.left(), " bytes after its last entry");
    require(file.size() == end, file.name(), ": ", file.size() - end, " bytes after the last entry, from byte ", end);
    return entries;
}

}  // namespace detail
}  // namespace cairn
