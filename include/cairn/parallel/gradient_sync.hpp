#pragma once
// Sums the gradients of ranks with the same parameters, as PyTorch's DistributedDataParallel, so that all take the same
// step. A rank's loss is weighted by its share of the batch (dy · samples here / samples of all, by
// train/micro_batch_loss.hpp): sums in place of means are right for uneven batches too.
//   gradients.begin(steps done);                            before backward
//   backward of the last micro-batch, with pass_context::listener = gradients.listener(), reduces full buckets
//   totals = synchronise(gradients, agreement, mine, number of this step); gradients are sums, or all ranks throw
// Reduction of a bucket:
//   gradients on    by
//   the host        a comm_hook (comm_hook.hpp: dense, or a compressor), the compression autotuner, or reduce-scatter
//   a device        hook_on_device, else the device communicator's all-reduce or reduce-scatter
//   a device        on the host, copied there and back bucket by bucket, during backward: compressors without
//                   hook_on_device, and a reduce-scatter that the device communicator lacks

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/reduce_scatter.hpp>
#include <cairn/comm/collectives/staged.hpp>
#include <cairn/core/finite.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/parallel/agreement.hpp>
#include <cairn/parallel/autotuned_reduction.hpp>
#include <cairn/parallel/channel.hpp>
#include <cairn/parallel/comm_hook.hpp>
#include <cairn/parallel/gradient_reducer.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

namespace functors {

/// Every thread that finds one writes the same number.
template <class T>
struct note_non_finite {
    std::int32_t* found;
    CAIRN_HD void operator()(const T& g) const {
        if (!(g - g == T(0))) *found = 1;
    }
};

}  // namespace functors

/// See the top of the file.
template <Communicator C, class T = float, Device D = cpu>
class gradient_sync {
public:
    struct config {
        index_t bucket_bytes = index_t{25} << 20;
        bool overlap = true;  // reduce on a thread of its own while backward runs
        all_reduce_algorithm all_reduce = all_reduce_algorithm::automatic;  // of dense gradients
        // Whether ranks may agree to skip a step. Encoding changes residuals, so with compressors they then agree
        // before they send.
        bool may_skip = false;
        std::vector<range> owners = {};  // of each rank: gradients are reduce-scattered to these; empty: all-reduced
        std::uint64_t seed = 1;          // of compressors that draw random numbers
        /// Makes the method of one bucket; unset: dense.
        std::function<std::unique_ptr<comm_hook<C>>(const bucket_layout&, index_t n)> method = {};
        /// Of gradients on a device; takes the place of `method` there, if it is set.
        std::function<std::unique_ptr<comm_hook<C, D>>(const bucket_layout&, index_t n)> hook_on_device = {};
        /// Candidates of the compression autotuner, which then chooses bucket by bucket.
        std::vector<autotune_candidate<C>> candidates = {};
    };

    /// Collective. `over` must outlive this.
    gradient_sync(channel<C>& over, arena<T, D>& weights, config c)
        : weights_(weights),
          config_(std::move(c)),
          over_(over),
          own_(over.host.split(0, over.rank())),
          reducer_(weights, make_buckets(weights, config_.bucket_bytes), config_.overlap && !agrees_first(),
                   [this](int which, std::span<T> g) { reduce(which, g); }) {
        require_carries<D>(over_);
        require(!scatters() || !compresses(),
                "gradients that are compressed cannot be reduce-scattered too: take one of both");
        require(!scatters() || static_cast<int>(config_.owners.size()) == over_.size(),
                "reduce-scatter of gradients needs one owner range for each of ", over_.size(), " ranks");
        if (has_device_hook()) found_ = tensor<std::int32_t, D>::zeros({1}, memory_category::communication);
        for (const bucket& b : reducer_.buckets()) {
            layouts_.push_back(layout_of(b));
            if (has_device_hook())
                hooks_on_device_.push_back(config_.hook_on_device(layouts_.back(), b.size()));
            else
                methods_.push_back(config_.method ? config_.method(layouts_.back(), b.size())
                                                  : std::make_unique<dense_hook<C>>(config_.all_reduce));
        }
        if constexpr (std::constructible_from<C, self_communicator>)
            if (!config_.candidates.empty())
                autotuned_ = std::make_unique<autotuned_reduction<C>>(
                    own_, reducer_.buckets(), layouts_, config_.candidates, compression_autotuner::config{});
    }

    /// A new step, after `steps_done` others. Call before backward.
    void begin(std::int64_t steps_done) {
        step_ = steps_done;
        step_watch_.restart();
        reducer_.begin();
        broken_.clear();
    }

    /// Listener of the last micro-batch's backward, which announces final gradients.
    gradient_listener* listener() { return &reducer_; }

    /// Whether ranks agree to take a step before compressors send.
    bool agrees_first() const { return config_.may_skip && compresses(); }

    /// "gradient of …" of the first gradient of this rank that is not finite; empty if all are. Before finish().
    std::string find_non_finite() {
        broken_.clear();
        if constexpr (!on_host)
            find_in_all("gradient of ");
        else
            for (std::size_t b = 0; b < reducer_.buckets().size(); ++b)
                is_finite(static_cast<int>(b), subspan(weights_.grads().span(),
                                                       {reducer_.buckets()[b].begin, reducer_.buckets()[b].size()}));
        return broken_;
    }

    /// Reduces what is left, and waits. Returns why the step cannot be taken: a gradient that is not finite, here or in
    /// the sum, else `reason`.
    std::string finish(const std::string& reason = {}) {
        const double compute_end = step_watch_.seconds();
        reducer_.finish();
        if (broken_.empty()) broken_ = reason;
        // On the host each rank's gradients were checked. A compressor's sum in 16 bits may still overflow.
        if (broken_.empty() && (compresses() || (!on_host && !goes_through_host())))
            find_in_all(found_in_sum + std::string("gradient of "));
        if (autotuned_) autotuned_->end_step(over_.host, step_watch_.seconds(), compute_end);
        return broken_;
    }

    gradient_reducer<T, D>& reducer() { return reducer_; }

    /// State of the methods between steps, "bucket3/residual".
    std::vector<compressor_tensor> tensors() {
        if (autotuned_) return autotuned_->tensors();
        return tensors_of<compressor_tensor>(methods_);
    }
    /// The same of gradients on a device.
    std::vector<compressor_tensor_on<D>> tensors_on_device() {
        return tensors_of<compressor_tensor_on<D>>(hooks_on_device_);
    }

    /// The compression autotuner, where there is one.
    const autotuned_reduction<C>* autotuned() const { return autotuned_.get(); }

private:
    // The host looks at each rank's gradients before they are sent, which costs nothing during backward, so that an
    // error names the rank; a device would be waited for, and its sums are looked at instead.
    static constexpr bool on_host = std::same_as<D, cpu>;

    /// Of a method for each bucket, with its bucket's name.
    template <class Named, class Methods>
    static std::vector<Named> tensors_of(const Methods& methods) {
        std::vector<Named> all;
        for (std::size_t b = 0; b < methods.size(); ++b)
            for (auto& [name, t] : methods[b]->tensors()) all.push_back({concat("bucket", b, '/', name), std::move(t)});
        return all;
    }

    bool scatters() const { return !config_.owners.empty(); }
    bool compresses() const { return config_.method || has_device_hook() || !config_.candidates.empty(); }
    bool has_device_hook() const { return !on_host && config_.hook_on_device; }
    const char* cause() const { return compresses() ? "compressed gradients" : "gradients"; }
    // Whether a device's gradients are summed on the host.
    bool goes_through_host() const { return !on_host && compresses() && !has_device_hook(); }

    void reduce(int which, std::span<T> g) {
        if constexpr (on_host) {
            reduce_on_host(which, g);
        } else if (goes_through_host()) {
            by_way_of_host<D>(g, [&](std::span<T> here) { reduce_on_host(which, here); });
        } else if (has_device_hook()) {
            if constexpr (std::same_as<T, float>) reduce_on_device(which, g);
        } else if (scatters()) {
            reduce_scatter(over_.device, g, parts_in(reducer_.buckets()[static_cast<std::size_t>(which)]),
                           reduction::sum, cause());
        } else {
            all_reduce(over_.device, g, {.algorithm = config_.all_reduce, .label = cause()});
        }
    }

    // A rank with non-finite gradients gives zeros to compressors: it must not leave the others alone in a collective.
    void reduce_on_host(int which, std::span<T> g) {
        [[maybe_unused]] const auto why = because(own_, cause());
        if (!is_finite(which, g) && (config_.method || autotuned_)) std::fill(g.begin(), g.end(), T{});
        if (scatters())
            reduce_scatter(own_, g, parts_in(reducer_.buckets()[static_cast<std::size_t>(which)]));
        else if constexpr (std::same_as<T, float>)
            reduce_floats(which, g);
        else
            all_reduce(own_, g, {.algorithm = config_.all_reduce});  // compressors take floats
    }

    void reduce_on_device(int which, std::span<float> g) {
        [[maybe_unused]] const auto why = because(over_.device, cause());
        if (is_broken_on_device(which, g)) D::set_bytes(g.data(), 0, static_cast<index_t>(g.size_bytes()));
        hooks_on_device_[static_cast<std::size_t>(which)]->reduce(over_.device, g, step_of(which));
    }

    // Random numbers go by the path of a bucket's first parameter: a stage of a pipeline draws those of the whole model
    // where its buckets are the same.
    encode_step step_of(int which) const {
        const bucket_layout& layout = layouts_[static_cast<std::size_t>(which)];
        return {.seed = config_.seed,
                .rank = over_.rank(),
                .step = step_,
                .bucket = static_cast<std::uint32_t>(path_hash(layout.front().name)),
                .layout = &layout};
    }

    void reduce_floats(int which, std::span<float> g) {
        const auto b = static_cast<std::size_t>(which);
        const encode_step at = step_of(which);
        if (autotuned_)
            autotuned_->reduce(own_, which, g, at, reducer_.ready(which) - step_watch_.begin());
        else
            methods_[b]->reduce(own_, g, at);
    }

    bucket_layout layout_of(const bucket& b) const {
        bucket_layout all;
        for (int i = b.first; i < b.last; ++i) {
            const auto& [name, p] = weights_.parameters()[static_cast<std::size_t>(i)];
            all.push_back({name, p->grad.data() - weights_.grads().data() - b.begin, p->shape});
        }
        return all;
    }

    // The owners' parts of a bucket, counted from its beginning.
    std::vector<range> parts_in(const bucket& b) const {
        std::vector<range> parts;
        for (const range& o : config_.owners) {
            const index_t begin = std::clamp(o.begin, b.begin, b.end), end = std::clamp(o.end(), b.begin, b.end);
            parts.push_back({begin - b.begin, end - begin});
        }
        return parts;
    }

    // Whether all of a bucket, on the host, is finite; else records the parameter that is not.
    bool is_finite(int which, std::span<T> g) {
        if (!first_non_finite(tensor<T>::view(g.data(), {static_cast<index_t>(g.size())}))) return true;
        for (const bucket_slice& s : layouts_[static_cast<std::size_t>(which)])
            if (broken_.empty())
                broken_ = first_non_finite("gradient of " + s.name, tensor<T>::view(g.data() + s.offset, s.shape));
        return false;
    }

    // The same of a bucket on the device. The host waits for one number, on the thread that reduces.
    bool is_broken_on_device(int which, std::span<T> g) {
        if (agrees_first()) return false;
        std::int32_t found = 0;
        D::set_bytes(found_.data(), 0, found_.bytes());
        for_each(D{}, static_cast<index_t>(g.size()), functors::note_non_finite<T>{found_.data()},
                 std::as_const(g).data());
        D::copy_to_host(&found, found_.data(), found_.bytes());
        if (found) {
            tensor<T> here({static_cast<index_t>(g.size())}, memory_category::communication);
            D::copy_to_host(here.data(), g.data(), here.bytes());
            is_finite(which, here.span());
        }
        return found != 0;
    }

    // On the thread that trains, to which a device's memory belongs: a sum of what is not finite is not finite either.
    // After a reduce-scatter each rank has the sums of its part, and all parts together are looked at.
    void find_in_all(const std::string& what) {
        if (count_nonfinite(D{}, weights_.grads().size(), weights_.grads().data()) == 0) return;
        for (const auto& [name, p] : weights_.parameters())
            if (broken_.empty()) broken_ = first_non_finite(what + name, p->grad);
    }

    arena<T, D>& weights_;
    config config_;
    channel<C>& over_;
    C own_;               // of the host, for the thread that reduces
    std::string broken_;  // why a gradient of this rank is not finite
    std::vector<bucket_layout> layouts_;
    std::vector<std::unique_ptr<comm_hook<C>>> methods_;
    std::vector<std::unique_ptr<comm_hook<C, D>>> hooks_on_device_;  // instead
    tensor<std::int32_t, D> found_;  // (1) whether a bucket on the device has a NaN or an infinite value
    std::unique_ptr<autotuned_reduction<C>> autotuned_;
    std::int64_t step_ = 0;
    stopwatch step_watch_;
    gradient_reducer<T, D> reducer_;  // last: its thread uses the rest
};

/// After backward: waits until all gradients are the ranks' sums, adds `mine` up, and agrees on step number `step`.
/// `reason`: why this rank cannot take the step (its loss is not finite), else empty. Throws on all ranks when a
/// gradient is not finite on any, naming parameter, rank and step; under the policy `skip`, totals.skip > 0 says
/// instead that no rank takes this step.
template <Communicator C, class T, Device D>
step_totals synchronise(gradient_sync<C, T, D>& gradients, agreement<C>& ranks, const step_totals& mine,
                        std::int64_t step, const std::string& reason = {}) {
    if (gradients.agrees_first()) {  // encoding changes residuals
        step_totals all = ranks.on(mine, reason.empty() ? gradients.find_non_finite() : reason);
        if (all.skip == 0) all.skip = ranks.on({}, gradients.finish()).skip;  // stages of a pipeline have other sums
        return all;
    }
    const step_totals all = ranks.on(mine, gradients.finish(reason));
    ranks.require_finite(all, step);
    return all;
}

}  // namespace cairn
