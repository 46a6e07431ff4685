#pragma once
// Codecs to compare with:
//   bf16_codec    the nearest bfloat16: 2 bytes
//   group_codec   ActNN (Chen et al., ICML 2021): b bits in groups of 256 with minimum and maximum in float, rounded
//                 at random without bias: q = ⌊(x − min) / (max − min) · (2^b − 1) + u⌋. 0 is no exception. In double:
//                 a range of finite floats may be no float, nor its inverse
#include <cairn/core/bfloat16.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/stash/codec.hpp>

#include <algorithm>
#include <cmath>

namespace cairn {

class bf16_codec : public activation_codec {
public:
    std::unique_ptr<packed_activation> pack(const tensor<float>& x, const pack_hints&) const override {
        return std::make_unique<packed>(x);
    }
    std::string describe() const override { return "bf16"; }

private:
    class packed final : public packed_activation {
    public:
        explicit packed(const tensor<float>& x) : shape_(x.shape()), body_(encoded(x)) {}
        tensor<float> unpack() const override {
            tensor<float> x(shape_);
            const auto* const from = reinterpret_cast<const bfloat16*>(body_.get().data());
            float* const to = x.data();
            parallel_for(x.size(), 16384, [=](index_t begin, index_t end) {
                for (index_t i = begin; i < end; ++i) to[i] = static_cast<float>(from[i]);
            });
            return x;
        }
        index_t bytes() const override { return body_.get().size(); }

    private:
        static tensor<std::uint8_t> encoded(const tensor<float>& x) {
            tensor<std::uint8_t> body({2 * x.size()});
            auto* const to = reinterpret_cast<bfloat16*>(body.data());
            const float* const from = x.data();
            parallel_for(x.size(), 16384, [=](index_t begin, index_t end) {
                for (index_t i = begin; i < end; ++i) to[i] = static_cast<bfloat16>(from[i]);
            });
            return body;
        }

        shape shape_;
        waiting_bytes body_;
    };
};

class group_codec : public activation_codec {
public:
    explicit group_codec(int bits) : bits_(bits) {
        require(bits >= 1 && bits <= 8, "group codec: ", bits, " bits; 1 to 8 are possible");
    }
    std::unique_ptr<packed_activation> pack(const tensor<float>& x, const pack_hints& hints) const override {
        return std::make_unique<packed>(x, bits_, hints);
    }
    std::string describe() const override { return concat("groups of 256, ", bits_, " bits"); }

private:
    static constexpr index_t group = 256;

    class packed final : public packed_activation {
    public:
        packed(const tensor<float>& x, int bits, const pack_hints& hints)
            : shape_(x.shape()), bits_(bits), body_(encoded(x, hints)) {}
        tensor<float> unpack() const override {
            tensor<float> x(shape_);
            const index_t n = x.size();
            parallel_for(groups(n), 64, [&](index_t begin, index_t end) {
                for (index_t g = begin; g < end; ++g) {
                    const index_t first = g * group, count = std::min(group, n - first);
                    const std::uint8_t* const from = body_.get().data() + g * group_bytes();
                    float head[2];
                    std::memcpy(head, from, 8);
                    const double unit = range_of(head) / double((1 << bits_) - 1);
                    for (index_t i = 0; i < count; ++i) {
                        const index_t bit = i * bits_;
                        unsigned both = from[8 + bit / 8];
                        if (bit % 8 + bits_ > 8) both |= static_cast<unsigned>(from[9 + bit / 8]) << 8;
                        const unsigned q = (both >> (bit % 8)) & ((1u << bits_) - 1u);
                        x[first + i] = static_cast<float>(double(head[0]) + double(q) * unit);
                    }
                }
            });
            return x;
        }
        index_t bytes() const override { return body_.get().size(); }

    private:
        tensor<std::uint8_t> encoded(const tensor<float>& x, const pack_hints& hints) const {
            tensor<std::uint8_t> body({groups(x.size()) * group_bytes()});
            const index_t n = x.size();
            parallel_for(groups(n), 64, [&](index_t begin, index_t end) {
                for (index_t g = begin; g < end; ++g) {
                    const index_t first = g * group, count = std::min(group, n - first);
                    const float* const values = x.data() + first;
                    require(std::all_of(values, values + count, [](float v) { return std::isfinite(v); }),
                            "an activation is not finite (elements ", first, " to ", first + count, " of ", x.shape(),
                            ')');
                    const auto [least, most] = std::minmax_element(values, values + count);
                    const float head[2] = {*least, *most};
                    const double unit = *most > *least ? double((1 << bits_) - 1) / range_of(head) : 0;
                    std::uint8_t* const to = body.data() + g * group_bytes();
                    std::memcpy(to, head, 8);
                    std::memset(to + 8, 0, static_cast<std::size_t>(group_bytes() - 8));
                    for (index_t i = 0; i < count; ++i) {
                        const double u =
                            double(hints.random.uniform(hints.first_element + static_cast<std::uint64_t>(first + i)));
                        const double at = (double(values[i]) - double(head[0])) * unit;
                        const int q = std::min((1 << bits_) - 1, static_cast<int>(at + u));
                        const index_t bit = i * bits_;
                        const unsigned both = static_cast<unsigned>(q) << (bit % 8);
                        to[8 + bit / 8] = static_cast<std::uint8_t>(to[8 + bit / 8] | both);
                        if (bit % 8 + bits_ > 8) to[9 + bit / 8] = static_cast<std::uint8_t>(both >> 8);
                    }
                }
            });
            return body;
        }

        static double range_of(const float (&head)[2]) { return double(head[1]) - double(head[0]); }
        static index_t groups(index_t n) { return (n + group - 1) / group; }
        index_t group_bytes() const { return 8 + group * bits_ / 8; }

        shape shape_;
        int bits_;
        waiting_bytes body_;
    };

    int bits_;
};

}  // namespace cairn
