#pragma once
// Files inside .tar, .tar.gz, .tar.zst, .tar.bz2 and .tar.xz, by libarchive. The only file that includes it.
// One pass over the archive, members in its order; nothing is written to disk.

#include <cairn/data/bytes.hpp>

#include <algorithm>
#include <functional>

#if !defined(CAIRN_HAS_ARCHIVE) && __has_include(<archive.h>)
#define CAIRN_HAS_ARCHIVE 1
#endif
#if CAIRN_HAS_ARCHIVE
#include <archive.h>
#include <archive_entry.h>
#endif

namespace cairn {

/// A file or a folder of an archive.
struct archive_member {
    std::string name;  // path inside the archive, '/' between folders, none at the end
    bool folder = false;
    std::vector<std::uint8_t> bytes;  // of the members that were asked for
};

/// Whether the name ends like that of an archive that read_archive reads.
inline bool is_archive_name(const std::filesystem::path& path) {
    const std::string name = path.filename().string();
    for (const char* ending : {".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz"})
        if (name.ends_with(ending)) return true;
    return false;
}

/// A folder that holds nothing but one archive stands for the archive.
inline std::filesystem::path archive_in(const std::filesystem::path& root) {
    if (!std::filesystem::is_directory(root)) return root;
    std::vector<std::filesystem::path> folders, archives;
    for (const auto& file : std::filesystem::directory_iterator(root)) {
        std::error_code loop;  // of links, which the folder's reader names
        if (file.is_directory(loop)) folders.push_back(file.path());
        if (is_archive_name(file.path())) archives.push_back(file.path());
    }
    return folders.empty() && archives.size() == 1 ? archives.front() : root;
}

#if CAIRN_HAS_ARCHIVE

namespace detail {
class archive_reader {
public:
    explicit archive_reader(std::string name) : name_(std::move(name)), handle_(archive_read_new()) {
        require(handle_ != nullptr, name_, ": libarchive cannot start: out of memory?");
        // Not `all`: some filters would start other programs.
        archive_read_support_filter_gzip(handle_.get());
        archive_read_support_filter_bzip2(handle_.get());
        archive_read_support_filter_xz(handle_.get());
        archive_read_support_filter_zstd(handle_.get());
        archive_read_support_format_tar(handle_.get());
    }
    ::archive* get() { return handle_.get(); }
    void check(int result) {
        if (result == ARCHIVE_OK || result == ARCHIVE_WARN) return;
        const char* message = archive_error_string(handle_.get());
        fail(name_, ": near byte ", archive_filter_bytes(handle_.get(), -1), member_.empty() ? "" : ", member ",
             member_, ": ", message ? message : "unreadable", ": truncated, corrupt or no tar archive");
    }
    void set_member(std::string member) { member_ = std::move(member); }
    // libarchive takes the end of the file for the end of the archive where no block of zeros says that it ends there.
    void check_end_mark() {
        require(archive_filter_bytes(handle_.get(), 0) > archive_read_header_position(handle_.get()), name_,
                ": ends behind member ", member_,
                " without tar's end-of-archive mark: truncated? Fetch or pack it again");
    }

private:
    struct close {
        void operator()(::archive* a) const { archive_read_free(a); }
    };
    std::string name_, member_;
    std::unique_ptr<::archive, close> handle_;
};

inline std::vector<archive_member> read_members(archive_reader& in, const std::string& name,
                                                const std::function<bool(const std::string&)>& wanted,
                                                std::uint64_t limit) {
    std::vector<archive_member> out;
    std::uint64_t total = 0;
    archive_entry* entry = nullptr;
    for (;;) {
        const int result = archive_read_next_header(in.get(), &entry);
        if (result == ARCHIVE_EOF) {
            in.check_end_mark();
            break;
        }
        in.check(result);
        const char* path = archive_entry_pathname(entry);
        archive_member member;
        member.name = path ? path : "";
        in.set_member(member.name);
        while (member.name.starts_with("./")) member.name.erase(0, 2);
        while (member.name.ends_with('/')) member.name.pop_back();
        member.folder = archive_entry_filetype(entry) == AE_IFDIR;
        const bool link = archive_entry_hardlink(entry) || archive_entry_symlink(entry);
        require(!link || !wanted(member.name), name, ": member ", member.name,
                " is a link to another file; pack with tar --dereference --hard-dereference");
        const bool take = archive_entry_filetype(entry) == AE_IFREG && wanted(member.name);
        if (!take) {
            in.check(archive_read_data_skip(in.get()));
            if (member.folder && !member.name.empty()) out.push_back(std::move(member));
            continue;
        }
        require(archive_entry_sparse_count(entry) == 0, name, ": member ", member.name,
                ": a sparse file, whose holes could be of any size");
        // What the header says about the size is only a hint: memory grows with the data that really come.
        const auto claimed = static_cast<std::uint64_t>(std::max<la_int64_t>(archive_entry_size(entry), 0));
        member.bytes.reserve(static_cast<std::size_t>(std::min<std::uint64_t>(claimed, 1 << 20)));
        for (;;) {
            std::array<std::uint8_t, 16384> piece;
            const la_ssize_t got = archive_read_data(in.get(), piece.data(), piece.size());
            if (got == 0) break;
            if (got < 0) in.check(static_cast<int>(got));
            total += static_cast<std::uint64_t>(got);
            require(total <= limit, name, ": more than ", limit,
                    " bytes unpacked; raise the limit, or unpack it to a folder");
            member.bytes.insert(member.bytes.end(), piece.begin(), piece.begin() + got);
        }
        require(member.bytes.size() == claimed, name, ": member ", member.name, ": ", member.bytes.size(),
                " bytes, its header says ", claimed);
        out.push_back(std::move(member));
    }
    return out;
}
}  // namespace detail

/// All folders, and the files whose name `wanted` accepts, with their bytes. Throws on truncated and corrupt archives,
/// naming the member, and on more than `limit` bytes.
inline std::vector<archive_member> read_archive(const std::filesystem::path& path,
                                                const std::function<bool(const std::string&)>& wanted,
                                                std::uint64_t limit = std::uint64_t{1} << 36) {
    std::error_code failure;
    require(std::filesystem::is_regular_file(path, failure), path.string(), ": no such file");
    require(std::filesystem::file_size(path, failure) > 0, path.string(), ": empty file, a tar archive is expected");
    detail::archive_reader in(path.string());
    in.check(archive_read_open_filename(in.get(), path.c_str(), 1 << 17));
    return detail::read_members(in, path.string(), wanted, limit);
}

/// The same for an archive in memory, called `name`.
inline std::vector<archive_member> read_archive(byte_span bytes, const std::string& name,
                                                const std::function<bool(const std::string&)>& wanted,
                                                std::uint64_t limit = std::uint64_t{1} << 36) {
    require(!bytes.empty(), name, ": empty file, a tar archive is expected");
    detail::archive_reader in(name);
    in.check(archive_read_open_memory(in.get(), bytes.data(), bytes.size()));
    return detail::read_members(in, name, wanted, limit);
}

#else

inline std::vector<archive_member> read_archive(const std::filesystem::path& path,
                                                const std::function<bool(const std::string&)>&, std::uint64_t = 0) {
    fail(path.string(),
         ": Cairn was built without libarchive; unpack the archive to a folder, or install libarchive-dev and build "
         "again");
}
inline std::vector<archive_member> read_archive(byte_span, const std::string& name,
                                                const std::function<bool(const std::string&)>&, std::uint64_t = 0) {
    return read_archive(std::filesystem::path(name), {});
}

#endif

}  // namespace cairn
