#pragma once
// A compressor that is chosen while the program runs: any Compressor behind one type, and one made from its name.
//   any_compressor c = make_compressor("topk:0.01+ef");     // one for each bucket

#include <cairn/compress/bf16.hpp>
#include <cairn/compress/dgc.hpp>
#include <cairn/compress/error_bounded.hpp>
#include <cairn/compress/feedback.hpp>
#include <cairn/compress/fp16.hpp>
#include <cairn/compress/natural.hpp>
#include <cairn/compress/onebit.hpp>
#include <cairn/compress/qsgd.hpp>
#include <cairn/compress/randomk.hpp>
#include <cairn/compress/sign.hpp>
#include <cairn/compress/topk.hpp>

#include <charconv>
#include <memory>
#include <string>
#include <string_view>

namespace cairn {

/// Itself a Compressor. Move-only; empty after a move.
class any_compressor {
public:
    template <Compressor C>
        requires(!std::same_as<C, any_compressor>)
    any_compressor(C c) : self_(std::make_unique<model<C>>(std::move(c))) {}

    std::string name() const { return self_->name(); }
    compression_contract contract(index n) const { return self_->contract(n); }
    index max_bytes(index n) const { return self_->max_bytes(n); }
    void encode(std::span<const float> values, message& out, const encode_step& at) { self_->encode(values, out, at); }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step& at) const {
        self_->decode(bytes, into, at);
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step& at, float scale) const {
        self_->decode_add(bytes, into, at, scale);
    }
    void prepare(index n) { self_->prepare(n); }
    void release(std::span<float> gradient) { self_->release(gradient); }
    std::vector<compressor_tensor> tensors() { return self_->tensors(); }

private:
    struct base {
        virtual ~base() = default;
        virtual std::string name() const = 0;
        virtual compression_contract contract(index n) const = 0;
        virtual index max_bytes(index n) const = 0;
        virtual void encode(std::span<const float>, message&, const encode_step&) = 0;
        virtual void decode(std::span<const std::byte>, std::span<float>, const encode_step&) const = 0;
        virtual void decode_add(std::span<const std::byte>, std::span<float>, const encode_step&, float) const = 0;
        virtual void prepare(index n) = 0;
        virtual void release(std::span<float> gradient) = 0;
        virtual std::vector<compressor_tensor> tensors() = 0;
    };
    template <class C>
    struct model final : base {
        explicit model(C c) : inner(std::move(c)) {}
        std::string name() const override { return inner.name(); }
        compression_contract contract(index n) const override { return inner.contract(n); }
        index max_bytes(index n) const override { return inner.max_bytes(n); }
        void encode(std::span<const float> values, message& out, const encode_step& at) override {
            inner.encode(values, out, at);
        }
        void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step& at) const override {
            inner.decode(bytes, into, at);
        }
        void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step& at,
                        float scale) const override {
            inner.decode_add(bytes, into, at, scale);
        }
        void prepare(index n) override { prepare_state(inner, n); }
        void release(std::span<float> gradient) override { release_residual(inner, gradient); }
        std::vector<compressor_tensor> tensors() override { return tensors_of(inner); }
        C inner;
    };
    std::unique_ptr<base> self_;
};

/// What make_compressor understands, for help texts.
inline constexpr std::string_view compressor_names =
    "bf16, bf16_stochastic, fp16, fp16_stochastic, topk[:ratio], sampled_topk[:ratio], randomk[:ratio], "
    "randomk_unbiased[:ratio], dgc[:ratio], qsgd[:levels], natural, sign, onebit, error_bounded[:bound]; each with +ef";

/// A compressor from "name", "name:number" or either with "+ef" for error feedback: "sign+ef", "topk:0.001+ef", "qsgd:15". The
/// number is the first setting of its config; error_bounded's bound is relative. Throws error naming what is wrong.
inline any_compressor make_compressor(std::string_view spec) {
    std::string_view name = spec;
    const bool feedback = name.ends_with("+ef");
    if (feedback) name.remove_suffix(3);
    const std::size_t colon = name.find(':');
    const std::string_view text = colon == name.npos ? std::string_view{} : name.substr(colon + 1);
    name = name.substr(0, colon);
    bool number_used = false;
    const auto number = [&](double otherwise) {
        number_used = true;
        if (colon == std::string_view::npos) return otherwise;
        double value = 0;
        const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
        require(failure == std::errc{} && end == text.data() + text.size(), "compressor ", spec, ": ", text,
                " is not a number");
        return value;
    };
    const auto finish = [&](auto c) -> any_compressor {
        require(colon == std::string_view::npos || number_used, "compressor ", spec, ": ", name, " takes no number");
        if (feedback) return error_feedback(std::move(c));
        return c;
    };
    if (name == "bf16") return finish(bf16());
    if (name == "bf16_stochastic") return finish(bf16_stochastic());
    if (name == "fp16") return finish(fp16());
    if (name == "fp16_stochastic") return finish(fp16_stochastic());
    if (name == "topk") return finish(topk({.ratio = number(0.01)}));
    if (name == "sampled_topk") return finish(sampled_topk({.ratio = number(0.01)}));
    if (name == "randomk") return finish(randomk({.ratio = number(0.01)}));
    if (name == "randomk_unbiased") return finish(randomk({.ratio = number(0.01), .unbiased = true}));
    if (name == "qsgd") {
        const double levels = number(7);
        require(levels >= 1 && levels <= 255 && levels == std::floor(levels), "compressor ", spec, ": ", levels,
                " levels, expected a whole number from 1 to 255");
        return finish(qsgd({.levels = static_cast<int>(levels)}));
    }
    if (name == "natural") return finish(natural());
    if (name == "sign") return finish(sign());
    if (name == "onebit") return finish(onebit());
    if (name == "error_bounded") return finish(error_bounded({.bound = number(1e-3)}));
    if (name == "dgc") {
        require(!feedback, "compressor ", spec, ": dgc keeps what it does not send itself; use it without +ef");
        return finish(dgc({.ratio = number(0.001)}));
    }
    fail("compressor ", spec, ": unknown; known are ", compressor_names);
}

}  // namespace cairn
