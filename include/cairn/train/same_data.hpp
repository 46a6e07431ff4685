#pragma once
// Every rank reads the data itself, by the same path: copies on the disks of nodes may differ. Compared once, before
// anything depends on the number of samples.

#include <cairn/comm/collectives/text.hpp>
#include <cairn/state/checksum.hpp>
#include <cairn/train/data_formats.hpp>

#include <algorithm>
#include <exception>
#include <ios>
#include <sstream>
#include <string>
#include <vector>

namespace cairn {

namespace detail {

/// Continues `checksum` with the input and the targets of sample i, augmented in the same way wherever it is read; or
/// with why it cannot be read, which is an error when training comes to it.
inline std::uint32_t checksum_of_sample(const any_dataset& data, index_t i, std::uint32_t checksum) {
    const target_info info = data.targets();
    const bool classes = info.kind == target_kind::classes;
    std::vector<float> x(static_cast<std::size_t>(data.sample_shape().size())),
        values(static_cast<std::size_t>(classes ? 0 : info.count()));
    std::vector<std::int32_t> labels(static_cast<std::size_t>(classes ? info.labels_each : 0));
    try {
        if (!data.read(i, {}, {x.data(), classes ? labels.data() : nullptr, classes ? nullptr : values.data()}))
            return crc32c("skipped", 7, checksum);
    } catch (const std::exception& e) {
        const std::string why = e.what();
        return crc32c(why.data(), why.size(), checksum);
    }
    checksum = crc32c(x.data(), x.size() * sizeof(float), checksum);
    checksum = crc32c(labels.data(), labels.size() * sizeof(std::int32_t), checksum);
    return crc32c(values.data(), values.size() * sizeof(float), checksum);
}

/// "60000 training and 10000 test samples of (28, 28, 1), 10 targets, checksum 1f0c24a7": of the names of the targets
/// and of a few samples at equal distances.
inline std::string summary_of(const data_parts& data) {
    std::uint32_t checksum = 0;
    for (const std::string& name : data.info.names) checksum = crc32c(name.c_str(), name.size() + 1, checksum);
    for (const any_dataset* part : {&data.train, &data.test}) {
        const index_t read = *part ? std::min<index_t>(4, part->size()) : 0;
        for (index_t k = 0; k < read; ++k)
            checksum = checksum_of_sample(*part, k * (part->size() - 1) / std::max<index_t>(1, read - 1), checksum);
    }
    std::ostringstream text;
    text << data.train.size() << " training and " << (data.test ? data.test.size() : 0) << " test samples of "
         << data.sample << ", " << data.info.count() << " targets, checksum " << std::hex << checksum;
    return text.str();
}

}  // namespace detail

/// Collective. Throws on every rank, naming the first whose data differ from rank 0's: in number, shape, targets, or in
/// one of a few samples.
template <Communicator C>
void require_same_data(C& world, const data_parts& data) {
    if (world.size() == 1) return;
    const std::vector<std::string> all = all_gather_text(world, detail::summary_of(data));
    for (std::size_t r = 1; r < all.size(); ++r)
        require(all[r] == all[0], "ranks have different data: rank 0 ", all[0], "; rank ", r, ' ', all[r],
                ". Give every rank the same files and the same [data] settings; each reads data.path by itself");
}

}  // namespace cairn
