#pragma once
// topk: the k = ⌈ratio · n⌉ values of largest magnitude, at least one, and where they are (Aji and Heafield 2017; Stich
// et al.
// 2018). A δ-contraction with δ = k/n; use it with error feedback.
//   topk           exactly k, of equal magnitudes the first
//   sampled_topk   0.8 k to 1.3 k of them, threshold from a sample of 1 % (select.hpp); few passes less, no promise of
//                  k
// Wire format and its bytes: sparse_message.hpp. State: none. Memory traffic: encode reads the bucket once, decode
// writes it.

#include <cairn/compress/select.hpp>
#include <cairn/compress/sparse_message.hpp>

namespace cairn {

struct topk_config {
    double ratio = 0.01;  // share of the values that is sent, (0, 1]
    sparse_value values = sparse_value::float32;
};

namespace detail {

/// k for n values, at least 1 of a bucket that is not empty.
inline index_t chosen_count(double ratio, index_t n) {
    return std::min(n, static_cast<index_t>(std::ceil(ratio * static_cast<double>(n))));
}

inline void check_sparse(const char* who, const topk_config& c) {
    require(c.ratio > 0 && c.ratio <= 1, who, ": ratio ", c.ratio, " is not in (0, 1]");
}

inline void check_countable(std::string_view who, index_t n) {
    require(n <= index_t{0xffffffff}, who, ": a bucket of ", n, " values; positions have 32 bits");
}

}  // namespace detail

class topk {
public:
    using config = topk_config;
    explicit topk(config c = {}) : config_(c) { detail::check_sparse("topk", c); }

    std::string name() const { return "topk"; }
    compression_contract contract(index_t n) const {
        const double kept = n ? static_cast<double>(count(n)) / static_cast<double>(n) : 1;
        return {.fixed_bytes = false,
                .contraction = kept * (config_.values == sparse_value::float32 ? 1 : bf16_format::contraction)};
    }
    index_t max_bytes(index_t n) const { return sparse_message_max_bytes(n, count(n), config_.values); }
    index_t count(index_t n) const { return detail::chosen_count(config_.ratio, n); }

    void encode(std::span<const float> values, message& out, const encode_step& at) {
        const index_t n = static_cast<index_t>(values.size());
        detail::check_countable(name(), n);
        select_largest(values, count(n), chosen_);
        for (const float v : chosen_.values)  // a NaN or Inf is always among the largest
            if (!std::isfinite(v)) require_finite(name(), values, at);
        encode_sparse(chosen_.positions, chosen_.values, config_.values, out);
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step&) const {
        fill_zero(into);
        decode_sparse("topk", bytes, config_.values, into, assign{});
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step&, float scale) const {
        decode_sparse("topk", bytes, config_.values, into, add_scaled{scale});
    }
    /// Positions of the last message, rising.
    std::span<const std::uint32_t> chosen() const { return chosen_.positions; }

private:
    config config_;
    selection chosen_;
};

class sampled_topk {
public:
    using config = topk_config;
    explicit sampled_topk(config c = {}) : config_(c) { detail::check_sparse("sampled_topk", c); }

    std::string name() const { return "sampled_topk"; }
    compression_contract contract(index_t n) const {
        // At least ⌈0.8 k⌉ of the largest are among those sent.
        const double kept = n ? std::ceil(0.8 * static_cast<double>(count(n))) / static_cast<double>(n) : 1;
        return {.fixed_bytes = false,
                .contraction = kept * (config_.values == sparse_value::float32 ? 1 : bf16_format::contraction)};
    }
    index_t max_bytes(index_t n) const { return sparse_message_max_bytes(n, most(n), config_.values); }
    index_t count(index_t n) const { return detail::chosen_count(config_.ratio, n); }
    index_t most(index_t n) const { return std::min(n, static_cast<index_t>(1.3 * static_cast<double>(count(n)))); }

    void encode(std::span<const float> values, message& out, const encode_step& at) {
        const index_t n = static_cast<index_t>(values.size());
        detail::check_countable(name(), n);
        select_sampled(values, count(n), chosen_);
        for (const float v : chosen_.values)
            if (!std::isfinite(v)) require_finite(name(), values, at);
        encode_sparse(chosen_.positions, chosen_.values, config_.values, out);
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step&) const {
        fill_zero(into);
        decode_sparse("sampled_topk", bytes, config_.values, into, assign{});
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step&, float scale) const {
        decode_sparse("sampled_topk", bytes, config_.values, into, add_scaled{scale});
    }
    std::span<const std::uint32_t> chosen() const { return chosen_.positions; }

private:
    config config_;
    selection chosen_;
};

}  // namespace cairn
