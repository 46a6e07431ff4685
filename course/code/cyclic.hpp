#pragma once
// A compressor of one's own, whole: in step t of the run part t mod m of the bucket travels. All ranks send the same
// part, so messages are added as floats. With error feedback nothing is lost, only late: for the parts that wait,
// gradients of m steps are sent at once.
//   Wire: the floats of part t mod m, one of m nearly equal runs of the bucket. State: none.
// It runs on every device: for_each and fill_zero are kernels of all of them.

#include <cairn/compress/compressor.hpp>
#include <cairn/core/range.hpp>

template <cairn::Device D = cairn::cpu>
class cyclic : public cairn::stateless<D> {
public:
    explicit cyclic(int parts = 10) : parts_(parts) { cairn::require(parts >= 1, "cyclic: ", parts, " parts"); }

    std::string name() const { return cairn::concat("cyclic", parts_); }
    cairn::compression_contract contract(cairn::index_t n) const {
        return {.deterministic = false,  // depends on the step
                .summable = cairn::summand::float32,
                .fixed_bytes = n % parts_ == 0,
                .contraction = 0};  // in one step; over m steps every value was sent
    }
    cairn::index_t max_bytes(cairn::index_t n) const { return 4 * cairn::shard_of(n, parts_, 0).count; }

    void encode(std::span<const float> values, cairn::message<D>& out, const cairn::encode_step& at) const {
        cairn::require_finite<D>(name(), values, at);
        const auto part = subspan(values, part_of(values.size(), at));
        const auto n = static_cast<cairn::index_t>(part.size());
        auto* const to = reinterpret_cast<float*>(out.prepare(4 * n).data());
        for_each(D{}, n, cairn::assign{}, to, part.data());
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const cairn::encode_step& at) const {
        cairn::fill_zero<D>(into);
        put(bytes, into, at, cairn::assign{});
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const cairn::encode_step& at,
                    float scale) const {
        put(bytes, into, at, cairn::add_scaled{scale});
    }

private:
    cairn::range part_of(std::size_t n, const cairn::encode_step& at) const {
        return cairn::shard_of(static_cast<cairn::index_t>(n), parts_, static_cast<int>(at.step % parts_));
    }
    template <class Put>
    void put(std::span<const std::byte> bytes, std::span<float> into, const cairn::encode_step& at, Put how) const {
        const auto part = subspan(into, part_of(into.size(), at));
        cairn::message_reader reader(name(), bytes);
        const std::byte* const values = reader.take(static_cast<cairn::index_t>(part.size_bytes()), "values");
        reader.finish();
        for_each(D{}, static_cast<cairn::index_t>(part.size()), how, part.data(),
                 reinterpret_cast<const float*>(values));
    }

    int parts_;
};
