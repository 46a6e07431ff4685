#pragma once
// Every rank reads each of its samples from the shared file system, in every epoch: a request a sample, wherever it
// lies. What a data set of files in a shared folder does by itself.

#include <cairn/data/reading/sample_reading.hpp>

#include <utility>

namespace cairn {

class shared_reads final : public sample_reading {
public:
    explicit shared_reads(record_file shared) : shared_(std::move(shared)) {}

    void fetch(index_t sample, std::span<std::byte> to) override { shared_.read({sample, 1}, to); }

    index_t samples() const override { return shared_.count(); }
    index_t bytes_each() const override { return shared_.record(); }

private:
    record_file shared_;
};

}  // namespace cairn
