#pragma once
// The directory that a run leaves: config.toml, metrics.jsonl, record.json, trace.json, autotune.tsv, state.cairn,
// report.html.
// Every file is written beside its name and renamed, so a full disk leaves the earlier version intact.

#include <cairn/core/error.hpp>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

namespace cairn {

/// Makes and fills a run's directory.
class run_directory {
public:
    /// Opens `path`, making it. Throws when it cannot be written.
    explicit run_directory(std::filesystem::path path) : path_(std::move(path)) {
        std::error_code failure;
        std::filesystem::create_directories(path_, failure);
        require(!failure, "run directory ", path_.string(), " cannot be made: ", failure.message(),
                "; choose another with --out");
        require(access(path_.c_str(), W_OK) == 0, "run directory ", path_.string(),
                " is not writable; choose another with --out");
    }

    /// A new name "runs/NAME-YYYYMMDD-HHMMSS", with a number behind it when taken.
    static std::filesystem::path fresh(const std::string& name) {
        char stamp[32];
        const std::time_t t = std::time(nullptr);
        std::tm local{};
        std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", localtime_r(&t, &local));
        const std::filesystem::path base = std::filesystem::path("runs") / (name + '-' + stamp);
        std::filesystem::path path = base;
        for (int i = 2; std::filesystem::exists(path); ++i) path = base.string() + '-' + std::to_string(i);
        return path;
    }

    const std::filesystem::path& path() const { return path_; }
    std::filesystem::path file(const std::string& name) const { return path_ / name; }

    /// Writes a whole file in one piece. Throws, leaving the earlier version, when the disk is full.
    void write(const std::string& name, const std::string& text) const {
        const std::filesystem::path target = file(name), fresh = target.string() + ".tmp";
        {
            std::ofstream out(fresh, std::ios::binary);
            out << text;
            out.close();
            if (!out) {
                const int code = errno;
                std::error_code ignored;
                std::filesystem::remove(fresh, ignored);
                fail("cannot write ", target.string(), " (", text.size(), " bytes): ", std::strerror(code),
                     "; the earlier version is intact");
            }
        }
        std::error_code failure;
        std::filesystem::rename(fresh, target, failure);
        require(!failure, "cannot rename ", fresh.string(), ": ", failure.message());
    }

    /// Adds one line to a file. Throws when it cannot be written.
    void append(const std::string& name, const std::string& line) const {
        std::ofstream out(file(name), std::ios::app);
        out << line << '\n';
        out.close();
        require(static_cast<bool>(out), "cannot append to ", file(name).string(), ": ", std::strerror(errno));
    }

private:
    std::filesystem::path path_;
};

}  // namespace cairn
