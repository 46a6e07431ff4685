#pragma once
// Laws of batches on their way to a device (data/staging.hpp), on the emulated GPU and on a real one.

#include "catch.hpp"
#include "data/synthetic.hpp"

#include <cairn/data/staging.hpp>

#include <vector>

namespace cairn::test::staging_laws {

struct seen_batch {
    std::vector<float> x, targets;
    std::vector<std::int32_t> labels;
    cursor at, position;  // of the batch, and of the staging while the batch is there
    bool operator==(const seen_batch&) const = default;
};

template <class T, class D>
std::vector<T> values_of(const tensor<T, D>& t) {
    if (t.size() == 0) return {};
    const tensor<T> host = t.on_host();
    return {host.data(), host.data() + host.size()};
}

/// All batches of two epochs as the device has them, after the one behind has been asked for, where `prepare`.
template <class D>
std::vector<seen_batch> batches_of(const counting_dataset& data, const loader_config& config, bool prepare) {
    staging<D, counting_dataset> from(data, config);
    std::vector<seen_batch> seen;
    for (int epochs = 0; epochs < 2;) {
        auto b = from.next();
        if (!b) {
            ++epochs;
            seen.push_back({{}, {}, {}, {}, from.position()});
            continue;
        }
        if (prepare) {
            from.prepare();
            from.prepare();  // once is enough
        }
        seen.push_back({values_of(b->there.x), values_of(b->there.targets), values_of(b->there.labels), b->host.at,
                        from.position()});
        CHECK(b->there.x.shape() == b->host.x.shape());
        CHECK(values_of(b->there.x) == values_of(b->host.x));
    }
    return seen;
}

/// The batches and positions of the host, ahead or not.
template <class D>
void batches_are_the_hosts() {
    for (const target_kind kind : {target_kind::classes, target_kind::values})
        for (const int workers : {0, 2}) {
            CAPTURE(workers);
            const counting_dataset data{.n = 23, .kind = kind, .corrupt = {3, 8}};  // 2 skipped, a short last batch
            const loader_config config{.batch = 5, .workers = workers, .seed = 4};
            const auto expected = batches_of<cpu>(data, config, true);
            REQUIRE(expected.size() == 12);
            CHECK(batches_of<D>(data, config, false) == expected);
            CHECK(batches_of<D>(data, config, true) == expected);
        }
}

}  // namespace cairn::test::staging_laws
