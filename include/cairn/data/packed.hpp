#pragma once
// Samples of any data set in one file of equal records, decoded and unaugmented, and how ranks read them
// (data/reading).
//   0      "cairn samples 1\nshape 32 32 3\ncount 50000\nclasses 10\n" (or "values 3"), filled up to 4096 bytes
//   4096   records: the elements of x as float, then a class as int32, or the values as float
// A data set larger than a node's memory is read in this form; its order and place are a strategy's.

#include <cairn/core/atomic_file.hpp>
#include <cairn/core/kernel_call.hpp>
#include <cairn/data/data_format.hpp>
#include <cairn/data/reading/shared_reads.hpp>
#include <cairn/data/reading/staged_reads.hpp>
#include <cairn/data/reading/windowed_reads.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// What the head of a packed file says.
struct packed_head {
    static constexpr index_t bytes = 4096;

    shape sample;
    index_t count = 0;
    target_kind kind = target_kind::classes;
    index_t targets = 1;  // classes, or values of a sample

    /// Bytes of a record.
    index_t record() const { return 4 * (sample.size() + (kind == target_kind::classes ? 1 : targets)); }
    std::string text() const {
        std::string all = "cairn samples 1\nshape";
        for (const index_t extent : sample) all += concat(' ', extent);
        all += concat("\ncount ", count, kind == target_kind::classes ? "\nclasses " : "\nvalues ", targets, '\n');
        all.resize(static_cast<std::size_t>(bytes), '\n');
        return all;
    }
};

/// Throws where the file is none of these.
inline packed_head read_packed_head(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    require(in.good(), file.string(), ": cannot be opened");
    std::string title, line, word;
    std::getline(in, title);
    require(title == "cairn samples 1", file.string(),
            ": no packed samples (data/packed.hpp); write_packed() writes them");
    packed_head head;
    std::getline(in, line);
    std::istringstream extents(line);
    extents >> word;
    for (index_t extent = 0; extents >> extent;) {
        require(extent > 0, file.string(), ": an extent of ", extent);
        head.sample.push_back(extent);
    }
    std::string kind;
    in >> word >> head.count >> kind >> head.targets;
    require(in.good() && word == "count" && head.count > 0 && head.targets > 0 && head.sample.rank() > 0 &&
                (kind == "classes" || kind == "values"),
            file.string(), ": its head cannot be read");
    head.kind = kind == "classes" ? target_kind::classes : target_kind::values;
    return head;
}

/// Writes the samples of a data set, each as read(i, {}) gives it. Throws on labels of several places, and where a
/// sample cannot be read.
template <Dataset D>
void write_packed(const D& data, const std::filesystem::path& file) {
    const target_info info = data.targets();
    const bool classes = info.kind == target_kind::classes;
    require(info.kind != target_kind::answers, "write_packed: answers are not packed; read the table itself");
    require(info.labels_each == 1, "write_packed: samples with ", info.labels_each, " labels each");
    const packed_head head{data.sample_shape(), data.size(), info.kind, info.count()};
    atomic_file out(file);
    const std::string text = head.text();
    out.write(text.data(), text.size());
    std::vector<float> values(static_cast<std::size_t>(head.record() / 4));
    for (index_t i = 0; i < head.count; ++i) {
        std::int32_t label = 0;
        float* const targets = values.data() + head.sample.size();
        require(data.read(i, {}, {values.data(), classes ? &label : nullptr, classes ? nullptr : targets}),
                data.sample_name(i), ": cannot be read, so it cannot be packed");
        if (classes) std::memcpy(targets, &label, sizeof label);
        out.write(values.data(), values.size() * sizeof(float));
    }
    out.commit();
}

/// Samples that a strategy reads.
class packed_samples {
public:
    packed_samples(packed_head head, target_info info, std::string name, std::shared_ptr<sample_reading> reading)
        : head_(std::move(head)), info_(std::move(info)), name_(std::move(name)), reading_(std::move(reading)) {}

    index_t size() const { return head_.count; }
    shape sample_shape() const { return head_.sample; }
    target_info targets() const { return info_; }
    std::string sample_name(index_t i) const { return concat(name_, " record ", i); }

    bool read(index_t i, augment_key, sample_slot slot) const {
        thread_local std::vector<std::byte> bytes;
        bytes.resize(static_cast<std::size_t>(head_.record()));
        reading_->fetch(i, bytes);
        const kernel_call call("decode", "bytes", 0, static_cast<double>(bytes.size()));
        const std::size_t values = static_cast<std::size_t>(head_.sample.size()) * sizeof(float);
        std::memcpy(slot.x, bytes.data(), values);
        if (slot.label) std::memcpy(slot.label, bytes.data() + values, sizeof(std::int32_t));
        if (slot.values) std::memcpy(slot.values, bytes.data() + values, bytes.size() - values);
        return true;
    }

private:
    packed_head head_;
    target_info info_;
    std::string name_;
    std::shared_ptr<sample_reading> reading_;
};

static_assert(Dataset<packed_samples>);

enum class reading_strategy { shared, staged, windowed };

/// data.format = "packed": train.packed and, if it is there, test.packed of a folder.
struct packed_format {
    static constexpr const char* name = "packed";
    static constexpr data_source source{"packed", ", a folder with train.packed and, for tests, test.packed"};
    reading_strategy reading = reading_strategy::shared;
    std::string local = "/tmp/cairn";  // a folder on the node's own disk
    bool direct = false;
    window_config window;
    double kept = 0.5;
    // Of data without files:
    index_t samples = 1'281'167, stored_bytes = 110'000, classes = 1000;
    std::vector<int> sample{224, 224, 3};

    template <class Table>
    void read(Table& table) {
        table("reading", reading,
              {{"shared", reading_strategy::shared},
               {"staged", reading_strategy::staged},
               {"windowed", reading_strategy::windowed}});
        table("local", local);
        table("direct", direct);
        table("run", window.run, from_to(1, 1e6));
        table("window", window.window, from_to(1, 1e6));
        table("kept", kept, from_to(0, 1));
        table("samples", samples, from_to(1, 1e12));
        table("stored_bytes", stored_bytes, from_to(1, 1e12));
        table("classes", classes, from_to(1, 1e6));
        table("sample", sample, from_to(1, most_pixels));
    }

    std::shared_ptr<sample_reading> strategy(record_file shared) const {
        const std::filesystem::path copy = std::filesystem::path(local) / "train.packed.copy";
        switch (reading) {
            case reading_strategy::staged:
                return std::make_shared<staged_reads>(std::move(shared), copy);
            case reading_strategy::windowed:
                return std::make_shared<windowed_reads>(std::move(shared), copy, window, kept);
            case reading_strategy::shared:
                break;
        }
        return std::make_shared<shared_reads>(std::move(shared));
    }

    /// Random samples; on a phantom rank their reading takes the time of its machine's storage.
    data_parts without_files(std::uint64_t seed) const {
        shape each;
        for (const int extent : sample) each.push_back(extent);
        data_parts parts =
            make_data_parts(synthetic_data(on_phantom_rank() ? samples : std::min<index_t>(samples, 1 << 16), each,
                                           numbered_classes(classes), seed),
                            {});
        if (on_phantom_rank()) parts.reading = strategy(record_file({.record = stored_bytes, .count = samples}));
        return parts;
    }
    data_parts load(const std::filesystem::path& folder) const {
        const auto head_of = [&](const char* file) { return read_packed_head(folder / file); };
        const auto records = [&](const char* file, const packed_head& head) {
            return record_file({.path = folder / file,
                                .offset = packed_head::bytes,
                                .record = head.record(),
                                .count = head.count,
                                .direct = direct});
        };
        const auto samples_of = [&](const char* file, const packed_head& head, std::shared_ptr<sample_reading> by) {
            target_info info = numbered_classes(head.targets);
            if (head.kind == target_kind::values) {
                const auto n = static_cast<std::size_t>(head.targets);
                info.kind = head.kind, info.mean.assign(n, 0), info.scale.assign(n, 1);
            }
            return packed_samples(head, std::move(info), (folder / file).string(), std::move(by));
        };
        const packed_head head = head_of("train.packed");
        const std::shared_ptr<sample_reading> by = strategy(records("train.packed", head));
        any_dataset test;
        if (std::filesystem::exists(folder / "test.packed")) {
            const packed_head of_test = head_of("test.packed");
            test = samples_of("test.packed", of_test, std::make_shared<shared_reads>(records("test.packed", of_test)));
        }
        data_parts parts = make_data_parts(samples_of("train.packed", head, by), std::move(test));
        parts.reading = by;
        return parts;
    }
};

}  // namespace cairn
