#pragma once
// A data format by its name in a workload file: a struct in its reader's header, with the settings of the table
// [data.NAME] as fields that hold their defaults.
//   struct mnist_format {
//       static constexpr const char* name = "mnist";
//       static constexpr data_source source{"mnist"};
//       index_t shift = 0;
//       template <class Table> void read(Table& table) { table("shift", shift, from_to(0, 28)); }
//       data_parts without_files(std::uint64_t seed) const;                random samples of the same shape
//       data_parts load(const std::filesystem::path& folder) const;        load() if it needs no files
//   };
//   static const register_data_format<mnist_format> mnist_is_known;        in a header of train/ or of a program
// A table sets the fields that are given: table(key, field, range of a number), table(key, field), and
// table(key, field, {{word, value}, …}) where a word chooses.

#include <cairn/core/csr.hpp>
#include <cairn/core/interval.hpp>
#include <cairn/data/reading/sample_reading.hpp>
#include <cairn/data/synthetic_data.hpp>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// One thing that a look at the data found (data/audit.hpp). `leak`: figures of the test part are not to be believed.
struct audit_finding {
    bool leak = false;
    std::string text;
};

/// What phases of a run change of training samples (train/phases.hpp); 0: as the data's settings say.
struct sample_size {
    index_t edge = 0;    // pixels of an edge
    float area_min = 0;  // least area of a random crop
    bool operator==(const sample_size&) const = default;
};

/// The data that a run trains and tests on. `test` and `validation` may be empty.
struct data_parts {
    any_dataset train, test;
    shape sample;
    target_info info;
    std::shared_ptr<const csr_matrix<float>> graph = nullptr;  // whose nodes a sample is, if it is one
    bool in_sequence = false;     // training samples follow each other and may overlap: parts are cut off, not drawn
    bool stream = false;          // each row of a batch is one running text (data/batch_order.hpp)
    bool may_skip = false;        // samples that cannot be read are left out of their batches
    any_dataset validation = {};  // of the data's own
    std::vector<std::string> learned = {};  // of the training samples, a line each, to be told once
    std::function<data_parts(const sample_size&)> resized = nullptr;  // the same samples in another size; null: they
                                                                      // have one
    bool belong_together = false;                                 // some samples, so that none is held out by itself
    std::function<std::vector<audit_finding>()> audit = nullptr;  // what samples alone do not show; null: nothing more
    std::shared_ptr<sample_reading> reading = nullptr;  // of the training samples; null: they are in memory, or read
                                                        // one by one where they lie
};

/// Where data are found that no path is given for: a folder below $CAIRN_DATA, or data. `hint`: how else to get them
/// than by benchmarks/fetch_data FOLDER.
struct data_source {
    const char* folder;
    const char* hint = nullptr;
};

/// Beyond what data have: pixels of an edge.
inline constexpr double most_pixels = 1 << 14;

/// Prints what was learned of the training samples.
inline void print_learned(const data_parts& data) {
    constexpr std::ptrdiff_t most = 40;  // lines
    for (std::ptrdiff_t i = 0; i < std::min(most, std::ssize(data.learned)); ++i)
        std::fprintf(stderr, "  %s\n", data.learned[static_cast<std::size_t>(i)].c_str());
    if (std::ssize(data.learned) > most)
        std::fprintf(stderr, "  and %td columns more\n", std::ssize(data.learned) - most);
}

/// Throws where training and test samples differ in shape or targets.
inline data_parts make_data_parts(any_dataset train, any_dataset test) {
    const shape sample = train.sample_shape();
    const target_info info = train.targets();
    require(!test || (test.sample_shape() == sample && test.targets().count() == info.count()),
            "data: training samples have shape ", sample, " and ", info.count(), " targets or classes, test samples ",
            test ? test.sample_shape() : sample, " and ", test ? test.targets().count() : 0,
            "; do both come from the same set?");
    return {std::move(train), std::move(test), sample, info};
}

inline target_info numbered_classes(index_t n) {
    target_info info;
    for (index_t i = 0; i < n; ++i) info.names.push_back(concat("class ", i));
    return info;
}

/// 65,536 random samples.
inline data_parts synthetic_parts(shape sample, target_info info, std::uint64_t seed) {
    return make_data_parts(synthetic_data(1 << 16, sample, std::move(info), seed), {});
}

}  // namespace cairn
