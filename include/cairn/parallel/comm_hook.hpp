#pragma once
// Sums the gradients of one bucket over ranks: dense, or by a compressor and the collective that fits it (PyTorch's
// communication hook). One object per bucket and rank; its state between steps (residuals) is part of a checkpoint.

#include <cairn/comm/collectives/compressed.hpp>
#include <cairn/compress/feedback.hpp>

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cairn {

/// D: device of the gradients; the communicator carries D's memory.
template <Communicator C, Device D = cpu>
struct comm_hook {
    virtual ~comm_hook() = default;
    virtual std::string name() const = 0;
    /// gradient ← the sum over ranks, the same bits on all. Collective; the values are finite on every rank.
    virtual exchange_cost reduce(C& c, std::span<float> gradient, const encode_step& at) = 0;
    /// gradient += residual, residual ← 0: before a step in which the bucket is sent in another way.
    virtual void flush_residual(std::span<float>) {}
    /// State, allocated from the start.
    virtual std::vector<compressor_tensor_on<D>> tensors() { return {}; }
};

/// All values, by one algorithm, or by the one that fits their number.
template <Communicator C, Device D = cpu>
struct dense_hook final : comm_hook<C, D> {
    explicit dense_hook(all_reduce_algorithm a = all_reduce_algorithm::automatic) : algorithm(a) {}

    all_reduce_algorithm algorithm;

    std::string name() const override { return "dense"; }
    exchange_cost reduce(C& c, std::span<float> gradient, const encode_step&) override {
        stopwatch lap;
        all_reduce(c, gradient, {.algorithm = algorithm});
        return {.communication = lap.restart(), .bytes = static_cast<index_t>(gradient.size_bytes())};
    }
};

/// Messages that are added, or gathered if they cannot be added. The constructor allocates all memory: reduce() may be
/// called on a thread that owns none of D's. On devices other than the host, gathered messages must be of fixed length.
template <Communicator C, Compressor K>
struct message_hook final : comm_hook<C, typename K::device> {
    using D = typename K::device;

    /// For buckets of n values on one of `ranks` ranks.
    message_hook(K k, index_t n, int ranks) : compressor(std::move(k)) {
        const compression_contract c = compressor.contract(n);
        summed = c.summable != summand::none;
        require_known_lengths<D>(summed || c.fixed_bytes, compressor.name());
        compressor.prepare(n);
        if (summed) out.prepare(compressor.max_bytes(n));
        // The host makes it step by step: messages of all ranks are many bytes to keep for every bucket.
        if (!summed && !std::same_as<D, cpu>) mail = mailbox_for(compressor, n, ranks);
    }
    std::string name() const override { return compressor.name(); }
    exchange_cost reduce(C& c, std::span<float> gradient, const encode_step& at) override {
        if (summed) return summed_all_reduce(c, compressor, gradient, out, at);
        mailbox<D> of_step;
        return gathered_all_reduce(c, compressor, gradient, mail.parts().empty() ? of_step : mail, at);
    }
    void flush_residual(std::span<float> gradient) override { compressor.flush_residual(gradient); }
    std::vector<compressor_tensor_on<D>> tensors() override { return compressor.tensors(); }

    K compressor;
    bool summed = false;
    message<D> out;   // that is added
    mailbox<D> mail;  // from each rank
};

/// Two exchanges with error feedback at both ends.
template <Communicator C, class K>
struct two_phase_hook final : comm_hook<C, typename K::device> {
    using D = typename K::device;

    two_phase_hook(const K& k, index_t n, int ranks, int rank)
        : method(k, n, ranks, rank), mail(mail_for(method, rank)) {
        require_known_lengths<D>(method.fixed_bytes(), method.name());
    }
    std::string name() const override { return method.name(); }
    exchange_cost reduce(C& c, std::span<float> gradient, const encode_step& at) override {
        return two_phase_all_reduce(c, method, gradient, mail, at);
    }
    void flush_residual(std::span<float> gradient) override { method.flush_residual(gradient); }
    std::vector<compressor_tensor_on<D>> tensors() override { return method.tensors(); }

    two_phase<K> method;
    two_phase_mail<D> mail;
};

/// All-reduces of less than the bucket.
template <Communicator C, ReducingCompressor K>
struct reducing_hook final : comm_hook<C, typename K::device> {
    using D = typename K::device;

    explicit reducing_hook(K k) : method(std::move(k)) {}
    std::string name() const override { return method.name(); }
    exchange_cost reduce(C& c, std::span<float> gradient, const encode_step& at) override {
        return reducing_all_reduce(c, method, gradient, at);
    }
    void flush_residual(std::span<float> gradient) override { method.flush_residual(gradient); }
    std::vector<compressor_tensor_on<D>> tensors() override { return method.tensors(); }

    K method;
};

/// Dense for the first steps: for compressors whose state must settle, or that would send early gradients late.
template <Communicator C, Device D = cpu>
struct dense_warmup final : comm_hook<C, D> {
    dense_warmup(std::unique_ptr<comm_hook<C, D>> then, std::int64_t steps)
        : later(std::move(then)), dense_steps(steps) {}
    std::string name() const override { return later->name(); }
    exchange_cost reduce(C& c, std::span<float> gradient, const encode_step& at) override {
        return at.step < dense_steps ? dense.reduce(c, gradient, at) : later->reduce(c, gradient, at);
    }
    void flush_residual(std::span<float> gradient) override { later->flush_residual(gradient); }
    std::vector<compressor_tensor_on<D>> tensors() override { return later->tensors(); }

    std::unique_ptr<comm_hook<C, D>> later;
    dense_hook<C, D> dense;
    std::int64_t dense_steps;
};

}  // namespace cairn
