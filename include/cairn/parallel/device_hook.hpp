#pragma once
// The methods of comm_hook.hpp for gradients on a grid device D: messages are made and read there
// (compress/on_device.hpp) and travel by a communicator that carries D's memory. Results and states are those of the
// host's methods, to the rounding that on_device.hpp names.
//   device_message_hook<C, natural, cuda>    messages added as they are (bf16, fp16), or gathered
//   device_two_phase_hook<C, sign, cuda>      as compress/two_phase.hpp
//   device_powersgd_hook<C, cuda>             all-reduces of two thin factors
// All memory is there from the start: reduce() is called on a thread to which D's memory does not belong. It launches
// and returns; what it sends has left, what it computes from messages comes in the order of the calling thread's
// launches.

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/all_to_all.hpp>
#include <cairn/compress/device_low_rank.hpp>
#include <cairn/compress/on_device.hpp>
#include <cairn/compress/two_phase.hpp>
#include <cairn/parallel/comm_hook.hpp>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cairn {

/// Room for messages on D, each at a multiple of 16 bytes.
template <Device D>
class device_mail {
public:
    device_mail() = default;
    explicit device_mail(const std::vector<index_t>& bytes) {
        index_t at = 0;
        for (const index_t n : bytes) {
            parts_.push_back({at, n});
            at += (n + 15) / 16 * 16;
        }
        bytes_ = tensor<std::byte, D>::zeros({at}, memory_category::communication);
    }

    std::span<std::byte> of(int which) const { return subspan(all(), parts_[static_cast<std::size_t>(which)]); }
    std::span<std::byte> all() const {
        return {const_cast<std::byte*>(bytes_.data()), static_cast<std::size_t>(bytes_.size())};
    }
    const std::vector<range>& parts() const { return parts_; }

private:
    tensor<std::byte, D> bytes_;
    std::vector<range> parts_;
};

/// Each rank's message to all.
template <Communicator C, class K, GridDevice D>
    requires CompressorOn<K, D>
class device_message_hook final : public comm_hook<C, D> {
public:
    /// For buckets of n values on one of `ranks` ranks.
    device_message_hook(K k, index_t n, int ranks, bool feedback)
        : feedback_(feedback), sum_as_(k.contract(n).summable), inner_(std::move(k)) {
        require(sum_as_ == summand::none || sum_as_ == summand::bfloat16 || sum_as_ == summand::float16,
                inner_.inner().name(), ": its messages cannot be added on a device");
        const bool summed = sum_as_ != summand::none;
        mail_ = device_mail<D>(std::vector<index_t>(summed ? 1 : static_cast<std::size_t>(ranks), inner_.max_bytes(n)));
        if (feedback_) inner_.prepare(n);
    }

    std::string name() const override { return concat(inner_.inner().name(), feedback_ ? "+ef" : ""); }

    exchange_cost reduce(C& c, std::span<float> gradient, const encode_step& at) override {
        const index_t n = static_cast<index_t>(gradient.size());
        const bool summed = sum_as_ != summand::none;
        const std::span<std::byte> mine = mail_.of(summed ? 0 : c.rank());
        if (feedback_)
            inner_.encode(n, gradient.data(), mine.data(), at);
        else
            encode_on(D{}, inner_.inner(), n, gradient.data(), mine.data(), at);
        const auto add = [&]<class T>(T) {
            all_reduce(c, std::span<T>(reinterpret_cast<T*>(mine.data()), gradient.size()));
        };
        if (sum_as_ == summand::bfloat16)
            add(bfloat16{});
        else if (sum_as_ == summand::float16)
            add(float16{});
        else
            all_gather(c, mail_.all(), mail_.parts());
        D::set_bytes(gradient.data(), 0, static_cast<index_t>(gradient.size_bytes()));
        for (int r = 0; r < (summed ? 1 : c.size()); ++r)
            decode_add_on(D{}, inner_.inner(), n, mail_.of(r).data(), gradient.data(), at, 1.0f);
        return {.bytes = static_cast<index_t>(mine.size())};
    }

    void flush_residual(std::span<float> gradient) override {
        if (feedback_) inner_.flush_residual(static_cast<index_t>(gradient.size()), gradient.data());
    }
    std::vector<compressor_tensor_on<D>> tensors() override { return inner_.tensors(); }

private:
    bool feedback_;
    summand sum_as_;
    device_error_feedback<K, D> inner_;
    device_mail<D> mail_;  // from each rank
};

/// Two exchanges with error feedback at both ends.
template <Communicator C, class K, GridDevice D>
    requires CompressorOn<K, D>
class device_two_phase_hook final : public comm_hook<C, D> {
public:
    device_two_phase_hook(const K& k, index_t n, int ranks, int rank) : n_(n), ranks_(ranks), rank_(rank), server_(k) {
        std::vector<index_t> of_chunks;
        for (int j = 0; j < ranks; ++j) {
            workers_.emplace_back(k);
            workers_.back().prepare(chunk(j).count);
            of_chunks.push_back(k.max_bytes(chunk(j).count));
        }
        const index_t own = chunk(rank).count;
        server_.prepare(own);
        mean_ = tensor<float, D>::zeros({own}, memory_category::communication);
        out_ = device_mail<D>(of_chunks);
        in_ = device_mail<D>(std::vector<index_t>(static_cast<std::size_t>(ranks), k.max_bytes(own)));
        results_ = device_mail<D>(of_chunks);
    }

    std::string name() const override { return server_.inner().name() + "/two_phase"; }

    exchange_cost reduce(C& c, std::span<float> gradient, const encode_step& at) override {
        float* const g = gradient.data();
        for (int j = 0; j < ranks_; ++j)
            worker(j).encode(chunk(j).count, g + chunk(j).begin, out_.of(j).data(), step_of_chunk(at, 2 * j, rank_));
        to_servers(c);
        D::set_bytes(mean_.data(), 0, mean_.bytes());
        const index_t own = chunk(rank_).count;
        for (int i = 0; i < ranks_; ++i)
            decode_add_on(D{}, server_.inner(), own, (i == rank_ ? out_ : in_).of(i).data(), mean_.data(),
                          step_of_chunk(at, 2 * rank_, i), 1.0f / static_cast<float>(ranks_));
        server_.encode(own, mean_.data(), results_.of(rank_).data(), step_of_chunk(at, 2 * rank_ + 1, rank_));
        all_gather(c, results_.all(), results_.parts());
        D::set_bytes(g, 0, static_cast<index_t>(gradient.size_bytes()));
        for (int j = 0; j < ranks_; ++j)
            decode_add_on(D{}, server_.inner(), chunk(j).count, results_.of(j).data(), g + chunk(j).begin,
                          step_of_chunk(at, 2 * j + 1, j), static_cast<float>(ranks_));
        index_t bytes = static_cast<index_t>(results_.of(rank_).size());
        for (const range& s : out_.parts()) bytes += s.count;
        return {.bytes = bytes};
    }

    void flush_residual(std::span<float> gradient) override {
        for (int j = 0; j < ranks_; ++j) worker(j).flush_residual(chunk(j).count, gradient.data() + chunk(j).begin);
        D::set_bytes(mean_.data(), 0, mean_.bytes());
        server_.flush_residual(mean_.size(), mean_.data());
        for_each(D{}, mean_.size(), functors::add_scaled<float>{static_cast<float>(ranks_)},
                 gradient.data() + chunk(rank_).begin, std::as_const(mean_).data());
    }

    /// Named as on the host.
    std::vector<compressor_tensor_on<D>> tensors() override {
        std::vector<compressor_tensor_on<D>> all;
        for (int j = 0; j < ranks_; ++j)
            for (auto& [name, t] : worker(j).tensors()) all.push_back({concat("worker/", j, '/', name), std::move(t)});
        for (auto& [name, t] : server_.tensors()) all.push_back({"server/" + name, std::move(t)});
        return all;
    }

private:
    bucket_chunk chunk(int j) const { return chunk_of(n_, ranks_, j); }
    device_error_feedback<K, D>& worker(int j) { return workers_[static_cast<std::size_t>(j)]; }

    // Message j of every rank goes to rank j.
    void to_servers(C& c) {
        [[maybe_unused]] const auto scope = enter(c, {"all-to-all", "bytes", static_cast<index_t>(out_.all().size())});
        std::vector<typename C::request> under_way;
        for (int s = 1; s < ranks_; ++s) {
            const int to = (rank_ + s) % ranks_, from = (rank_ + ranks_ - s) % ranks_;
            under_way.push_back(c.irecv(in_.of(from), from, all_to_all_tag));
            under_way.push_back(c.isend(out_.of(to), to, all_to_all_tag));
        }
        for (auto& one : under_way) one.wait();
    }

    index_t n_;
    int ranks_, rank_;
    std::vector<device_error_feedback<K, D>> workers_;  // of each chunk
    device_error_feedback<K, D> server_;
    tensor<float, D> mean_;              // (chunk of this rank)
    device_mail<D> out_, in_, results_;  // to each server, from each rank, from each server
};

/// PowerSGD, or the variant that does one half of the iteration a step (powersgd.hpp, powersgd_alternating.hpp).
template <Communicator C, GridDevice D>
class device_powersgd_hook final : public comm_hook<C, D> {
public:
    device_powersgd_hook(powersgd::config k, const bucket_layout& layout, index_t n, bool alternating)
        : rank_(k.rank), alternating_(alternating), s_(layout, n, k.rank) {}

    std::string name() const override { return concat("powersgd", rank_, alternating_ ? "_alternating" : ""); }

    exchange_cost reduce(C& c, std::span<float> gradient, const encode_step& at) override {
        const auto p_size = static_cast<std::size_t>(s_.plan.p_size), q_size = static_cast<std::size_t>(s_.plan.q_size);
        const random_stream random = at.shared_random("powersgd");
        float* const x = gradient.data();
        std::size_t floats = 0;
        const auto sum = [&](std::span<float> part) {
            floats += part.size();
            all_reduce(c, part);
        };
        const bool odd = alternating_ && at.step % 2 != 0;
        float* const dense = odd ? s_.q.data() + q_size : s_.p.data() + p_size;
        s_.start(x, dense);
        s_.draw(odd, random);
        if (alternating_) s_.orthonormalise(odd);
        if (odd) {
            s_.back_project(x);
            sum(s_.q.span());
        } else {
            s_.project(x);
            sum(s_.p.span());
        }
        if (!alternating_) {
            s_.orthonormalise(true);
            s_.back_project(x);
            sum(s_.q.span().first(q_size));
        }
        s_.reconstruct(x, c.size());
        s_.finish_dense(dense, c.size(), x);
        return {.bytes = static_cast<index_t>(floats * sizeof(float))};
    }

    void flush_residual(std::span<float> gradient) override {
        flush_into(s_.residual, static_cast<index_t>(gradient.size()), gradient.data());
    }
    /// Named as on the host.
    std::vector<compressor_tensor_on<D>> tensors() override {
        std::vector<compressor_tensor_on<D>> all;
        if (alternating_) all.push_back({"p", s_.p.share()});
        all.push_back({"q", s_.q.share()});
        all.push_back({"residual", s_.residual.share()});
        return all;
    }

private:
    int rank_;
    bool alternating_;
    device_low_rank<D> s_;
};

}  // namespace cairn
