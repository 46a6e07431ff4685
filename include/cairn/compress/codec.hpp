#pragma once
// Compressors whose message is a code of each value, of fixed length, with nothing kept between steps: casts, natural,
// sign, qsgd. A code says
//   name(), contract(n), stream()     of its random numbers
// and is, by its base in device/codes.hpp, what the kernels of every device know: encode_values, decode_values
// (device/cpu/codecs.hpp).

#include <cairn/compress/compressor.hpp>
#include <cairn/device/cpu/codecs.hpp>

namespace cairn {

template <class Code, Device D>
class codec : public stateless<D> {
public:
    codec() = default;
    explicit codec(Code code) : code_(std::move(code)) {}

    const Code& code() const { return code_; }
    std::string name() const { return code_.name(); }
    compression_contract contract(index_t n) const { return code_.contract(n); }
    index_t max_bytes(index_t n) const { return code_.bytes(n); }

    void encode(std::span<const float> values, message<D>& out, const encode_step& at) const {
        const auto n = static_cast<index_t>(values.size());
        std::byte* const bytes = out.prepare(max_bytes(n)).data();
        if (!encode_values(D{}, code_, n, values.data(), bytes, at.own_random(code_.stream())))
            require_finite<D>(name(), values, at);
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step&) const {
        decode_values(D{}, code_, name(), bytes, static_cast<index_t>(into.size()), into.data(), assign{});
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step&, float scale) const {
        decode_values(D{}, code_, name(), bytes, static_cast<index_t>(into.size()), into.data(), add_scaled{scale});
    }

private:
    Code code_;
};

}  // namespace cairn
