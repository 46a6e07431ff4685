#pragma once
// randomk: k = ⌈ratio · n⌉ values at random places (Stich et al., "Sparsified SGD with memory", NeurIPS 2018). The
// places follow from (seed, step, bucket), which all ranks share: no indices travel, and messages may be added as
// floats.
//   stratum i of k: [⌊i n/k⌋, ⌊(i+1) n/k⌋), of s_i values; one place of it, uniform
// so that places are distinct, rising, and found in any order; each value is sent with probability 1/s_i, s_i = ⌊n/k⌋
// or ⌈n/k⌉.
//   contraction (default)  x̂ = x at the places, else 0: δ = 1/⌈n/k⌉ in expectation. Use it with error feedback.
//   unbiased               x̂ = s_i x at the places: E x̂ = x, ω = ⌈n/k⌉ − 1
//
// Wire: k floats. State: none. Memory traffic: encode reads the bucket once (for NaN), decode writes it, decode_add
// touches k.

#include <cairn/compress/topk.hpp>

namespace cairn {

struct randomk_config {
    double ratio = 0.01;    // share of the values that is sent, (0, 1]
    bool unbiased = false;  // scaled by n/k on arrival
};

template <Device D = cpu>
class randomk : public stateless<D> {
public:
    using config = randomk_config;
    explicit randomk(config c = {}) : config_(c) {
        require(c.ratio > 0 && c.ratio <= 1, "randomk: ratio ", c.ratio, " is not in (0, 1]");
    }

    std::string name() const { return config_.unbiased ? "randomk_unbiased" : "randomk"; }
    compression_contract contract(index_t n) const {
        const index_t k = count(n), largest = k ? (n + k - 1) / k : 1;
        compression_contract c{.deterministic = false, .summable = summand::float32};
        c.unbiased = config_.unbiased;
        if (config_.unbiased)
            c.variance = static_cast<double>(largest - 1);
        else
            c.contraction = 1 / static_cast<double>(largest);
        return c;
    }
    index_t count(index_t n) const { return detail::chosen_count(config_.ratio, n); }
    index_t max_bytes(index_t n) const { return 4 * count(n); }

    void encode(std::span<const float> values, message<D>& out, const encode_step& at) const {
        const auto n = static_cast<index_t>(values.size());
        require_finite<D>(name(), values, at);
        take_at_places(D{}, places(n, at), values.data(), out.prepare(max_bytes(n)).data());
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step& at) const {
        fill_zero<D>(into);
        decode_with(bytes, into, at, assign{});
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step& at, float scale) const {
        decode_with(bytes, into, at, add_scaled{scale});
    }

private:
    template <class Put>
    void decode_with(std::span<const std::byte> bytes, std::span<float> into, const encode_step& at, Put put) const {
        const auto n = static_cast<index_t>(into.size());
        message_reader reader("randomk", bytes);
        const std::byte* const source = reader.take(max_bytes(n), "values");
        reader.finish();
        put_at_places(D{}, places(n, at), source, config_.unbiased, into.data(), put);
    }
    random_places places(index_t n, const encode_step& at) const { return {n, count(n), at.shared_random("randomk")}; }

    config config_;
};

}  // namespace cairn
