#pragma once
// Seconds of kernels as a real rank runs them: what a machine's description (benchmarks/machines) is calibrated by.

#include <cairn/core/error.hpp>
#include <cairn/core/kernel_call.hpp>
#include <cairn/core/summary.hpp>
#include <cairn/train/record.hpp>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

namespace cairn {

/// While it lives, every outermost kernel of this process is timed. One object at a time.
class measured_kernels {
public:
    measured_kernels() {
        on_measured_kernel = [this](const kernel_work& work, double seconds) { add(work, seconds); };
    }
    ~measured_kernels() { on_measured_kernel = nullptr; }
    measured_kernels(const measured_kernels&) = delete;
    measured_kernels& operator=(const measured_kernels&) = delete;

    /// By kind, format and shape: operations, bytes, number of calls, and the median of their seconds.
    nlohmann::json list() const {
        const std::scoped_lock lock(mutex_);
        nlohmann::json all = nlohmann::json::array();
        for (const auto& [key, found] : kernels_) {
            all.push_back({{"kind", std::get<0>(key)},
                           {"format", std::get<1>(key)},
                           {"shape", std::get<2>(key)},
                           {"flops", found.flops},
                           {"bytes", found.bytes},
                           {"calls", found.seconds.size()},
                           {"seconds", median(found.seconds)}});
        }
        return all;
    }

private:
    struct measurements {
        double flops = 0, bytes = 0;  // of one call
        std::vector<double> seconds;
    };

    void add(const kernel_work& work, double seconds) {
        const std::scoped_lock lock(mutex_);
        measurements& m = kernels_[{work.kind, work.format, {work.shape.begin(), work.shape.begin() + work.extents}}];
        m.flops = work.flops, m.bytes = work.bytes;
        m.seconds.push_back(seconds);
    }

    mutable std::mutex mutex_;
    std::map<std::tuple<std::string, std::string, std::vector<index_t>>, measurements> kernels_;
};

/// Writes the list. Throws where the file cannot be written.
inline void write_kernels(const std::filesystem::path& file, const measured_kernels& kernels) {
    std::ofstream out(file);
    out << kernels.list().dump() << '\n';
    require(out.flush().good(), "--kernels: cannot write ", file.string(), "; is there such a folder, and room on it?");
}

}  // namespace cairn
