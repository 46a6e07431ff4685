#pragma once
// An all-reduce of messages that cannot be added, in two exchanges, with error feedback at both ends (1-bit Adam: Tang
// et al., ICML 2021; 1-bit LAMB: Li et al. 2021). The bucket is cut into one chunk a rank; rank j is the server of
// chunk j.
//
//   worker i   x = g + e_w;  message j = C(chunk j of x);  e_w ← x − C(x)                       encode, outgoing(j)
//              all-to-all: message j of every rank goes to rank j
//   server j   y = (1/P) Σ_i (message j of rank i) + e_s;  c = C(y);  e_s ← y − c               combine
//              all-gather: the c of every rank goes to all
//   all        mean = the decoded c, chunk after chunk: the same bits on every rank             decode
//
// The exchanges are the caller's, so that no communicator is known here. A rank sends and receives about 2 (P − 1)/P
// times the bytes of C's message, as a ring does. Over steps, Σ mean + (mean over ranks of e_w) + e_s = Σ (mean over
// ranks of g). State: the workers' residuals, n floats, and the server's, n / P floats.

#include <cairn/compress/feedback.hpp>
#include <cairn/core/range.hpp>

#include <algorithm>
#include <vector>

namespace cairn {

/// Chunks and phases (2 j: to the server of chunk j, 2 j + 1: from it) have random numbers of their own; positions in a
/// chunk are no positions of the layout.
inline encode_step step_of_chunk(encode_step at, int part, int rank) {
    at.bucket = at.bucket * 0x85EBCA6Bu + static_cast<std::uint32_t>(part) + 1;
    at.rank = rank;
    at.layout = nullptr;
    return at;
}

template <Compressor C>
    requires std::copyable<C>
class two_phase {
public:
    using device = typename C::device;
    using D = device;

    /// For buckets of n values on rank `rank` of `ranks`. C is copied for each chunk. All memory is made here.
    two_phase(const C& c, index_t n, int ranks, int rank) : n_(n), ranks_(ranks), rank_(rank), server_(C(c)) {
        require(n >= 0 && ranks >= 1 && rank >= 0 && rank < ranks, "two_phase: rank ", rank, " of ", ranks,
                " and a bucket of ", n, " values");
        outgoing_.resize(static_cast<std::size_t>(ranks));
        for (int j = 0; j < ranks; ++j) {
            workers_.emplace_back(C(c));
            workers_.back().prepare(chunk(j).count);
            if (fixed_bytes()) outgoing_[static_cast<std::size_t>(j)].prepare(max_bytes(j));
        }
        server_.prepare(chunk(rank).count);
        if (fixed_bytes()) result_.prepare(max_bytes(rank));
        sum_ = tensor<float, D>::zeros({chunk(rank).count}, memory_category::communication);
    }

    std::string name() const { return server_.inner().name() + "/two_phase"; }
    int ranks() const { return ranks_; }

    /// The chunk that rank j serves.
    range chunk(int j) const { return chunk_of(n_, ranks_, j); }
    /// The most bytes of a message of chunk j; its length exactly where C's contract says fixed_bytes.
    index_t max_bytes(int j) const { return server_.max_bytes(chunk(j).count); }
    bool fixed_bytes() const { return server_.contract(n_).fixed_bytes; }

    /// Worker: makes the message to each rank. On the host, on a NaN or Inf: throws, and the state is as before.
    void encode(std::span<const float> gradient, const encode_step& at) {
        require_size(gradient.size());
        require_finite<D>(name(), gradient, at);
        for (int j = 0; j < ranks_; ++j) {
            const auto k = static_cast<std::size_t>(j);
            workers_[k].encode(part(gradient, j), outgoing_[k], step_of_chunk(at, 2 * j, at.rank));
        }
    }
    /// The message to rank j.
    std::span<const std::byte> outgoing(int j) const { return outgoing_[static_cast<std::size_t>(j)].bytes(); }

    /// Server: the message to all, from one of every rank in order of rank.
    std::span<const std::byte> combine(std::span<const std::span<const std::byte>> from, const encode_step& at) {
        require_one_each(from);
        fill_zero<D>(sum_.span());
        for (int i = 0; i < ranks_; ++i)
            server_.decode_add(from[static_cast<std::size_t>(i)], sum_.span(), step_of_chunk(at, 2 * rank_, i),
                               1.0f / static_cast<float>(ranks_));
        server_.encode(std::as_const(sum_).span(), result_, step_of_chunk(at, 2 * rank_ + 1, rank_));
        return std::as_const(result_).bytes();
    }

    /// All: the mean, from one message of every server in order of rank.
    void decode(std::span<const std::span<const std::byte>> from, std::span<float> mean, const encode_step& at) const {
        require_one_each(from);
        require_size(mean.size());
        for (int j = 0; j < ranks_; ++j)
            server_.decode(from[static_cast<std::size_t>(j)], part(mean, j), step_of_chunk(at, 2 * j + 1, j));
    }

    /// gradient += what waits here, which becomes zero: the workers' residuals, and P times the server's, which is of a
    /// mean.
    void flush_residual(std::span<float> gradient) {
        require_size(gradient.size());
        for (int j = 0; j < ranks_; ++j) workers_[static_cast<std::size_t>(j)].flush_residual(part(gradient, j));
        fill_zero<D>(sum_.span());
        server_.flush_residual(sum_.span());
        for_each(D{}, sum_.size(), functors::add_scaled<float>{static_cast<float>(ranks_)},
                 part(gradient, rank_).data(), std::as_const(sum_).data());
    }

    /// "worker/0/residual", …, "server/residual".
    std::vector<compressor_tensor_on<D>> tensors() {
        std::vector<compressor_tensor_on<D>> all;
        for (int j = 0; j < ranks_; ++j)
            for (auto& [name, t] : workers_[static_cast<std::size_t>(j)].tensors())
                all.push_back({concat("worker/", j, '/', name), std::move(t)});
        for (auto& [name, t] : server_.tensors()) all.push_back({"server/" + name, std::move(t)});
        return all;
    }

private:
    template <class T>
    std::span<T> part(std::span<T> all, int j) const {
        return subspan(all, chunk(j));
    }
    void require_size(std::size_t values) const {
        require(static_cast<index_t>(values) == n_, name(), ": a bucket of ", values, " values, expected ", n_);
    }
    void require_one_each(std::span<const std::span<const std::byte>> from) const {
        require(from.size() == static_cast<std::size_t>(ranks_), name(), ": ", from.size(), " messages of ", ranks_,
                " ranks");
    }

    index_t n_;
    int ranks_, rank_;
    std::vector<error_feedback<C>> workers_;
    error_feedback<C> server_;
    tensor<float, D> sum_;  // (chunk of this rank)
    std::vector<message<D>> outgoing_;
    message<D> result_;
};

}  // namespace cairn
