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

class randomk {
public:
    struct config {
        double ratio = 0.01;    // share of the values that is sent, (0, 1]
        bool unbiased = false;  // scaled by n/k on arrival
    };
    randomk() : randomk(config{}) {}
    explicit randomk(config c) : config_(c) {
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

    void encode(std::span<const float> values, message& out, const encode_step& at) const {
        const index_t n = static_cast<index_t>(values.size());
        require_finite(name(), values, at);
        std::byte* const target = out.prepare(max_bytes(n)).data();
        for_each_place(n, at, [&](index_t i, index_t place, index_t) {
            std::memcpy(target + 4 * i, &values[static_cast<std::size_t>(place)], 4);
        });
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step& at) const {
        fill_zero(into);
        decode_with(bytes, into, at, assign{});
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step& at, float scale) const {
        decode_with(bytes, into, at, add_scaled{scale});
    }

private:
    template <class Put>
    void decode_with(std::span<const std::byte> bytes, std::span<float> into, const encode_step& at, Put put) const {
        const index_t n = static_cast<index_t>(into.size());
        message_reader reader("randomk", bytes);
        const std::byte* const source = reader.take(max_bytes(n), "values");
        reader.finish();
        for_each_place(n, at, [&](index_t i, index_t place, index_t stratum) {
            float v;
            std::memcpy(&v, source + 4 * i, 4);
            put(into[static_cast<std::size_t>(place)], config_.unbiased ? v * static_cast<float>(stratum) : v);
        });
    }

    /// each(i, place, size of the stratum) for i in [0, k). Place i takes 32 bits: word i mod 4 of Philox block i / 4.
    template <class Each>
    void for_each_place(index_t n, const encode_step& at, Each each) const {
        const index_t k = count(n);
        if (k == 0) return;
        const random_stream random = at.shared_random("randomk");
        const index_t share = n / k, rest = n % k;  // ⌊i n/k⌋ = i share + ⌊i rest/k⌋, which does not overflow
        const auto begin_of = [=](index_t i) { return i * share + i * rest / k; };
        parallel_for((k + 3) / 4, 1024, [=](index_t begin, index_t end) {
            for (index_t block = begin; block < end; ++block) {
                const auto bits = random.bits4(static_cast<std::uint64_t>(block));
                for (index_t i = 4 * block; i < std::min(4 * block + 4, k); ++i) {
                    const index_t first = begin_of(i), size = begin_of(i + 1) - first;
                    const std::uint64_t r = bits[static_cast<std::size_t>(i % 4)];
                    each(i, first + static_cast<index_t>((r * static_cast<std::uint64_t>(size)) >> 32), size);
                }
            }
        });
    }

    config config_;
};

}  // namespace cairn
