#pragma once
// What of data makes figures of the test part better than they will be on new samples. Of any data set: samples whose
// inputs are the same in both parts, classes that a part lacks. A format that knows more says more (data_parts::audit).

#include <cairn/data/data_format.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cairn {

namespace detail {

/// The inputs of each sample as a number, and how many samples have each class.
struct sample_summary {
    std::vector<std::uint64_t> inputs;
    std::vector<index_t> classes;

    explicit sample_summary(const any_dataset& part) : classes(static_cast<std::size_t>(part.targets().count())) {
        const target_info info = part.targets();
        const bool of_classes = info.kind == target_kind::classes;
        std::vector<float> x(static_cast<std::size_t>(part.sample_shape().size())),
            values(static_cast<std::size_t>(info.values_each()));
        std::vector<std::int32_t> labels(static_cast<std::size_t>(of_classes ? info.labels_each : 0));
        for (index_t i = 0; i < part.size(); ++i) {
            if (!part.read(i, {},
                           {x.data(), of_classes ? labels.data() : nullptr, of_classes ? nullptr : values.data()}))
                continue;
            inputs.push_back(std::hash<std::string_view>{}(
                std::string_view(reinterpret_cast<const char*>(x.data()), x.size() * sizeof(float))));
            for (const std::int32_t label : labels)
                if (label >= 0) ++classes[static_cast<std::size_t>(label)];
        }
    }
};

}  // namespace detail

/// Reads all samples, without augmentation.
inline std::vector<audit_finding> audit(const data_parts& data) {
    std::vector<audit_finding> found;
    require(static_cast<bool>(data.test),
            "--audit-data compares a training and a test part, and these data have no test part");
    const detail::sample_summary train(data.train.unaugmented()), test(data.test.unaugmented());
    std::unordered_map<std::uint64_t, index_t> trained;
    for (std::size_t i = 0; i < train.inputs.size(); ++i) trained.try_emplace(train.inputs[i], static_cast<index_t>(i));
    index_t twice = 0, first = 0, other = 0;
    for (std::size_t i = 0; i < test.inputs.size(); ++i)
        if (const auto same = trained.find(test.inputs[i]); same != trained.end() && ++twice == 1)
            first = static_cast<index_t>(i), other = same->second;
    if (twice > 0)
        found.push_back(
            {true, concat(twice, " of ", test.inputs.size(), " test samples have the inputs of a training sample: ",
                          data.test.sample_name(first), " those of ", data.train.sample_name(other))});
    if (data.info.kind == target_kind::classes) {
        for (const auto* part : {&train, &test})
            for (std::size_t c = 0; c < part->classes.size(); ++c)
                if (part->classes[c] == 0)
                    found.push_back({false, concat("no ", part == &train ? "training" : "test", " sample has class '",
                                                   data.info.names[c], '\'')});
        const auto most = std::ranges::max_element(test.classes);
        index_t all = 0;
        for (const index_t n : test.classes) all += n;
        if (all > 0)
            found.push_back(
                {false, concat("always class '", data.info.names[static_cast<std::size_t>(most - test.classes.begin())],
                               "' is right in ", static_cast<double>(1000 * *most / all) / 10, " % of the tests")});
    }
    if (data.audit)
        for (audit_finding& finding : data.audit()) found.push_back(std::move(finding));
    return found;
}

}  // namespace cairn
