#pragma once
// States saved through the node's disk: training goes on as soon as one is there, and a helper drains it to the shared
// file system beside the steps (burst buffers, Liu et al. 2012).
//   save    waits for the drain of the state before, writes the new one to the node's disk
//   drain   copies it; the file in the shared file system is the old or the new one, whole (core/atomic_file.hpp)
// A machine that stops before the drain has ended goes on from the state before.

#include <cairn/core/phantom.hpp>
#include <cairn/state/state_file.hpp>

#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

namespace cairn {

class burst_buffer {
public:
    /// `local`: a folder on the node's disk. `helper` drains.
    burst_buffer(std::filesystem::path local, std::unique_ptr<job_queue> helper)
        : local_(std::move(local)), helper_(std::move(helper)) {
        if (!on_phantom_rank()) std::filesystem::create_directories(local_);
    }

    /// Returns when the state is on the node's disk. Throws as save_state, or what the drain before has thrown.
    void save(const std::filesystem::path& file, const state_view& state) {
        finish();
        const std::filesystem::path copy = local_ / file.filename();
        save_state(copy, state, posix_system(), storage::local);
        helper_->submit([copy, file, bytes = static_cast<double>(state.bytes())] { drain(copy, file, bytes); });
    }

    /// Returns when the last state is in the shared file system. Throws where it could not be written.
    void finish() { helper_->wait(); }

private:
    static void drain(const std::filesystem::path& from, const std::filesystem::path& to, double bytes) {
        if (on_phantom_rank()) {
            phantom_here->read_storage(storage::local, bytes);
            return phantom_here->write_storage(storage::shared, bytes);
        }
        std::ifstream in(from, std::ios::binary);
        require(in.good(), from.string(), ": cannot be opened, so it cannot become ", to.string());
        atomic_file out(to);
        std::vector<char> room(4 << 20);
        do {
            in.read(room.data(), static_cast<std::streamsize>(room.size()));
            out.write(room.data(), static_cast<std::size_t>(in.gcount()));
        } while (in.good());
        require(in.eof(), from.string(), ": cannot be read to its end, so it cannot become ", to.string());
        out.commit();
        std::filesystem::remove(from);
    }

    std::filesystem::path local_;
    std::unique_ptr<job_queue> helper_;
};

}  // namespace cairn
