#pragma once
// Codecs to compare with:
//   bf16_codec    the nearest bfloat16: 2 bytes
//   group_codec   ActNN (Chen et al., ICML 2021): b bits in groups of 256 with minimum and maximum in float, rounded
//                 at random without bias: q = ⌊(x − min) / (max − min) · (2^b − 1) + u⌋. 0 is no exception
#include <cairn/core/for_each.hpp>
#include <cairn/device/grid/symbol_groups.hpp>
#include <cairn/stash/codec.hpp>

#include <algorithm>
#include <array>

namespace cairn {

template <Device D = cpu>
class bf16_codec : public activation_codec<D> {
public:
    std::unique_ptr<packed_activation<D>> pack(const tensor<float, D>& x, const pack_hints<D>&) const override {
        tensor<std::uint8_t, D> body({2 * x.size()});
        for_each(D{}, x.size(), functors::convert<bfloat16, float>{}, reinterpret_cast<bfloat16*>(body.data()),
                 x.data());
        return std::make_unique<packed>(x.shape(), std::move(body));
    }
    std::string describe() const override { return "bf16"; }

private:
    struct packed final : packed_activation<D> {
        packed(const shape& s, tensor<std::uint8_t, D> body) : packed_activation<D>(s, std::move(body)) {}
        tensor<float, D> unpack() const override {
            tensor<float, D> x(this->shape_);
            for_each(D{}, x.size(), functors::convert<float, bfloat16>{}, x.data(),
                     reinterpret_cast<const bfloat16*>(this->body().data()));
            return x;
        }
    };
};

template <Device D = cpu>
class group_codec : public activation_codec<D> {
public:
    explicit group_codec(int bits) : groups_{bits} {
        require(bits >= 1 && bits <= 8, "group codec: ", bits, " bits; 1 to 8 are possible");
    }
    std::unique_ptr<packed_activation<D>> pack(const tensor<float, D>& x, const pack_hints<D>& hints) const override {
        tensor<std::uint8_t, D> body({groups_.bytes(x.size())});
        if (!pack_groups(D{}, groups_, x.size(), x.data(), hints.random, hints.first_element, body.data()))
            fail_of_not_finite(x);
        return std::make_unique<packed>(x.shape(), groups_, std::move(body));
    }
    std::string describe() const override { return concat("groups of 256, ", groups_.bits, " bits"); }

private:
    struct packed final : packed_activation<D> {
        packed(const shape& s, symbol_groups g, tensor<std::uint8_t, D> body)
            : packed_activation<D>(s, std::move(body)), groups(g) {}
        tensor<float, D> unpack() const override {
            tensor<float, D> x(this->shape_);
            for_indices(D{}, (x.size() + 7) / 8, unpack_eight_symbols{groups, x.size(), this->body().data(), x.data()});
            return x;
        }
        symbol_groups groups;
    };

    symbol_groups groups_;
};

}  // namespace cairn
