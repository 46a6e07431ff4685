#pragma once
// Sparse methods for gradients on a grid device (compress/device_sparse.hpp): topk, dgc, randomk. As device_hook.hpp's,
// and with the host's states.

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/compress/device_sparse.hpp>
#include <cairn/compress/dgc.hpp>
#include <cairn/parallel/device_hook.hpp>

#include <string>
#include <vector>

namespace cairn {

/// The k values of largest magnitude of each rank, gathered. Exactly k, also where the host takes a sample
/// (sampled_topk, dgc).
template <Communicator C, GridDevice D>
class device_topk_hook final : public comm_hook<C, D> {
public:
    struct config {
        std::string name = "topk";
        double ratio = 0.01;
        bool feedback = true;
        double momentum = -1;  // of dgc, which has velocities and sends what they accumulate; below 0: none
    };

    device_topk_hook(config c, index_t n, int ranks)
        : config_(std::move(c)), n_(n), k_(detail::chosen_count(config_.ratio, n)), largest_(n) {
        detail::check_sparse(config_.name.c_str(), topk_config{.ratio = config_.ratio});
        mail_ = device_mail<D>(std::vector<index_t>(static_cast<std::size_t>(ranks), largest_.bytes(k_)));
        if (with_velocity()) velocity_ = tensor<float, D>::zeros({n}, memory_category::communication);
        if (with_velocity() || config_.feedback)
            waiting_ = tensor<float, D>::zeros({n}, memory_category::communication);
    }

    std::string name() const override { return config_.name + (config_.feedback && !with_velocity() ? "+ef" : ""); }

    exchange_cost reduce(C& c, std::span<float> gradient, const encode_step&) override {
        if (n_ == 0) return {};
        float* const g = gradient.data();
        const std::span<std::byte> mine = mail_.of(c.rank());
        if (with_velocity()) {
            for_each(D{}, n_, grid::accumulate_velocity{static_cast<float>(config_.momentum)},
                     static_cast<const float*>(g), velocity_.data(), waiting_.data());
            largest_.take(waiting_.data(), k_, mine.data(), velocity_.data());
        } else if (config_.feedback) {
            for_each(D{}, n_, functors::add{}, waiting_.data(), static_cast<const float*>(g));
            largest_.take(waiting_.data(), k_, mine.data());
        } else {
            largest_.take(g, k_, mine.data());
        }
        all_gather(c, mail_.all(), mail_.parts());
        D::set_bytes(g, 0, static_cast<index_t>(gradient.size_bytes()));
        for (int r = 0; r < c.size(); ++r) largest_.add(mail_.of(r).data(), k_, g);
        return {.bytes = static_cast<index_t>(mine.size())};
    }

    void flush_residual(std::span<float> gradient) override {
        if (!with_velocity()) flush_into(waiting_, n_, gradient.data());
    }
    /// Named as on the host.
    std::vector<compressor_tensor_on<D>> tensors() override {
        std::vector<compressor_tensor_on<D>> all;
        if (with_velocity()) all.push_back({"velocity", velocity_.share()});
        if (!waiting_.empty()) all.push_back({with_velocity() ? "accumulated" : "residual", waiting_.share()});
        return all;
    }

private:
    bool with_velocity() const { return config_.momentum >= 0; }

    config config_;
    index_t n_, k_;
    largest_values<D> largest_;
    device_mail<D> mail_;                  // from each rank
    tensor<float, D> velocity_, waiting_;  // (n)
};

/// Values at places that all ranks know, added as they are.
template <Communicator C, GridDevice D>
class device_randomk_hook final : public comm_hook<C, D> {
public:
    device_randomk_hook(const randomk& k, bool unbiased, index_t n, bool feedback)
        : name_(k.name()), unbiased_(unbiased), feedback_(feedback), n_(n), k_(k.count(n)) {
        values_ = tensor<float, D>::zeros({k_}, memory_category::communication);
        if (feedback) waiting_ = tensor<float, D>::zeros({n}, memory_category::communication);
    }

    std::string name() const override { return name_ + (feedback_ ? "+ef" : ""); }

    exchange_cost reduce(C& c, std::span<float> gradient, const encode_step& at) override {
        if (n_ == 0) return {};
        float* const g = gradient.data();
        if (feedback_) for_each(D{}, n_, functors::add{}, waiting_.data(), static_cast<const float*>(g));
        take_random_values(D{}, n_, k_, at, feedback_, feedback_ ? waiting_.data() : g, values_.data());
        all_reduce(c, values_.span());
        D::set_bytes(g, 0, static_cast<index_t>(gradient.size_bytes()));
        put_random_values(D{}, n_, k_, at, unbiased_, g, values_.data());
        return {.bytes = values_.bytes()};
    }

    void flush_residual(std::span<float> gradient) override { flush_into(waiting_, n_, gradient.data()); }
    std::vector<compressor_tensor_on<D>> tensors() override {
        std::vector<compressor_tensor_on<D>> all;
        if (feedback_) all.push_back({"residual", waiting_.share()});
        return all;
    }

private:
    std::string name_;
    bool unbiased_, feedback_;
    index_t n_, k_;
    tensor<float, D> values_, waiting_;  // (k), (n)
};

}  // namespace cairn
