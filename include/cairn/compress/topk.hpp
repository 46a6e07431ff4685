#pragma once
// topk: the k = ⌈ratio · n⌉ values of largest magnitude, at least one, and where they are (Aji and Heafield 2017; Stich
// et al. 2018). A δ-contraction with δ = k/n; use it with error feedback.
//   topk           exactly k, of equal magnitudes the first
//   sampled_topk   0.8 k to 1.3 k of them, threshold from a sample of 1 % (device/cpu/select.hpp);
//                  few passes less, no promise of k. Grid devices find exactly k
// Wire format and its bytes: sparse_message.hpp. State: none. Memory traffic: encode reads the bucket once, decode
// writes it.

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

namespace detail {

/// Both: Sampled says how the values are found.
template <Device D, bool Sampled, class Positions>
class largest_values : public stateless<D> {
public:
    using config = topk_config;
    largest_values(const char* name, config c) : name_(name), config_(c) { check_sparse(name, c); }

    std::string name() const { return name_; }
    compression_contract contract(index_t n) const {
        const double kept = n ? static_cast<double>(least(n)) / static_cast<double>(n) : 1;
        return {.fixed_bytes = Positions::fixed_bytes && !samples,
                .contraction = kept * (config_.values == sparse_value::float32 ? 1 : bf16_format::contraction)};
    }
    index_t max_bytes(index_t n) const { return sparse_message_max_bytes<Positions>(n, most(n), config_.values); }
    index_t count(index_t n) const { return chosen_count(config_.ratio, n); }

    void prepare(index_t n) {
        check_countable(name_, n);
        chosen_.prepare(n, most(n));
    }
    void encode(std::span<const float> values, message<D>& out, const encode_step& at) {
        const auto n = static_cast<index_t>(values.size());
        prepare(n);
        if constexpr (Sampled)
            select_sampled(D{}, values, count(n), chosen_);
        else
            select_largest(D{}, values, count(n), chosen_);
        if (non_finite_at_hand(D{}, chosen_.count(), chosen_.values.data()))  // always among the largest
            require_finite<D>(name_, values, at);
        encode_sparse<Positions>(chosen_, config_.values, out);
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step&) const {
        fill_zero<D>(into);
        decode_with(bytes, into, assign{});
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step&, float scale) const {
        decode_with(bytes, into, add_scaled{scale});
    }
    /// Content of the last message.
    const selection<D>& chosen() const { return chosen_; }

private:
    template <class Put>
    void decode_with(std::span<const std::byte> bytes, std::span<float> into, Put put) const {
        const auto n = static_cast<index_t>(into.size());
        const index_t least = contract(n).fixed_bytes ? max_bytes(n) : 0;
        decode_sparse<Positions>(D{}, name_, bytes, least, config_.values, into, put);
    }
    static constexpr bool samples = Sampled && std::same_as<D, cpu>;  // devices: exactly k, whose length is known
    index_t least(index_t n) const {
        return samples ? static_cast<index_t>(std::ceil(0.8 * static_cast<double>(count(n)))) : count(n);
    }
    index_t most(index_t n) const {
        return samples ? std::min(n, static_cast<index_t>(1.3 * static_cast<double>(count(n)))) : count(n);
    }

    const char* name_;
    config config_;
    selection<D> chosen_;
};

}  // namespace detail

template <Device D = cpu, class Positions = positions_on<D>>
struct topk : detail::largest_values<D, false, Positions> {
    explicit topk(topk_config c = {}) : detail::largest_values<D, false, Positions>("topk", c) {}
};

template <Device D = cpu, class Positions = positions_on<D>>
struct sampled_topk : detail::largest_values<D, true, Positions> {
    explicit sampled_topk(topk_config c = {}) : detail::largest_values<D, true, Positions>("sampled_topk", c) {}
};

}  // namespace cairn
