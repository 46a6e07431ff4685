#pragma once
// Data parallelism: every rank has the whole model and a part of each batch; gradients are added over the ranks, so
// that all take the same step.
//   ranks.start(buffers);                          values of rank 0 everywhere
//   each step:  weights.zero_grad();  backward(scaled dy, ranks.context_of(p));  totals = ranks.finish(mine, step);
//   optimizer.step(lr);
//               ranks.share_values(owners)         only with a sharded optimizer
// Tensors on a device D travel by config::device_channel, all else by `world`. What adds on the host (compressors that
// have no config::hook_on_device, a reduce-scatter that `device_channel` has not itself) gets a device's gradients
// there and back, bucket by bucket, beside backward.
// The loss of a rank is weighted by its share of the batch (dy · samples here / samples of all), so gradients are
// summed, not averaged, and uneven batches come out right.

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/broadcast.hpp>
#include <cairn/comm/collectives/reduce_scatter.hpp>
#include <cairn/comm/collectives/staged.hpp>
#include <cairn/comm/collectives/text.hpp>
#include <cairn/core/finite.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/parallel/autotuned_reduction.hpp>
#include <cairn/parallel/comm_hook.hpp>
#include <cairn/parallel/gradient_reducer.hpp>
#include <cairn/parallel/sharded.hpp>

#include <array>
#include <cstdint>
#include <optional>

namespace cairn {

/// What ranks add up once a step.
struct step_totals {
    double loss =
        0;  // mean loss of this rank · its samples; over all ranks: divided by `samples` it is the batch's loss
    double samples = 0;
    double stop = 0;  // ranks that were asked to stop
    double skip = 0;  // ranks that found a gradient which is not finite
};

/// Batch normalisation over all ranks of a communicator (nn's batch_group).
template <Communicator C>
class group_over final : public batch_group {
public:
    explicit group_over(C c) : c_(std::move(c)) {}
    int size() const override { return c_.size(); }
    void gather(std::span<const double> mine, std::span<double> all) override {
        std::copy(mine.begin(), mine.end(), all.begin() + static_cast<std::ptrdiff_t>(mine.size()) * c_.rank());
        all_gather(c_, all);
    }

private:
    C c_;
};

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

/// What to do together when a gradient is not finite.
enum class non_finite_policy { stop, skip };

/// See the top of the file.
template <Communicator C, class T = float, Device D = cpu>
class data_parallel {
public:
    struct config {
        index_t bucket_bytes = index_t{25} << 20;
        bool overlap = true;           // reduce on a thread of its own while backward runs
        bool sync_batch_norm = false;  // statistics of the batch of all ranks
        int zero_stage = 0;            // 2: reduce-scatter of gradients to `owners`
        non_finite_policy non_finite = non_finite_policy::stop;
        std::string advice = "Lower the learning rate, warm up, or clip";  // to who has to stop
        std::vector<range> owners = {};
        std::uint64_t seed = 1;  // of compressors that draw random numbers
        /// Carries tensors of D where the host cannot read them: the same ranks as `world`.
        std::optional<C> device_channel = {};
        /// Makes the method of one bucket; unset: dense.
        std::function<std::unique_ptr<comm_hook<C>>(const bucket_layout&, index_t n)> method = {};
        /// Of gradients on a device; takes the place of `method` there, if it is set.
        std::function<std::unique_ptr<comm_hook<C, D>>(const bucket_layout&, index_t n)> hook_on_device = {};
        /// Among which the compression autotuner chooses, bucket by bucket, instead.
        std::vector<autotune_candidate<C>> candidates = {};
    };

    /// `world` is split: one communicator for each thread that communicates.
    data_parallel(C& world, arena<T, D>& weights, config c)
        : weights_(weights),
          config_(std::move(c)),
          world_(world.split(0, world.rank())),
          gradients_(world.split(0, world.rank())),
          reducer_(weights, make_buckets(weights, config_.bucket_bytes), config_.overlap && !agrees_first(),
                   [this](int which, std::span<T> g) { reduce(which, g); }) {
        require(config_.zero_stage < 2 || !compresses(),
                "data parallel: gradients that are compressed cannot be reduce-scattered too");
        require(on_host || size() == 1 || (buffers_on_gpu(device_channel()) && device_channel().size() == size()),
                "data parallel: ", world.name(), " cannot carry tensors of ", D::name, "; set tensors_over");
        if (on_device()) found_ = tensor<std::int32_t, D>::zeros({1}, memory_category::communication);
        for (const bucket& b : reducer_.buckets()) {
            layouts_.push_back(layout_of(b));
            if (on_device())
                hooks_on_device_.push_back(config_.hook_on_device(layouts_.back(), b.size()));
            else
                methods_.push_back(config_.method ? config_.method(layouts_.back(), b.size())
                                                  : std::make_unique<dense_hook<C>>());
        }
        if constexpr (std::constructible_from<C, self_communicator>)
            if (!config_.candidates.empty())
                autotuned_ = std::make_unique<autotuned_reduction<C>>(
                    gradients_, reducer_.buckets(), layouts_, config_.candidates, compression_autotuner::config{});
        require(config_.zero_stage < 2 || static_cast<int>(config_.owners.size()) == world.size(),
                "data parallel: reduce-scatter needs one owner range for each of ", world.size(), " ranks");
        if (config_.sync_batch_norm) group_.emplace(world.split(0, world.rank()));
    }

    int rank() const { return world_.rank(); }
    int size() const { return world_.size(); }
    C& world() { return world_; }
    /// Carries tensors of D.
    C& device_channel() { return config_.device_channel ? *config_.device_channel : gradients_; }

    /// Parameters and buffers of rank 0 on all ranks.
    void start(const buffer_list<T, D>& buffers) {
        broadcast(device_channel(), weights_.values().span(), 0);
        for (const auto& [name, t] : buffers) broadcast(device_channel(), t->span(), 0);
    }

    /// The pass of a micro-batch; `last` of its step: gradients are final as backward leaves them.
    pass_context context_of(pass_context p, bool last) {
        if (last) p.listener = &reducer_;
        p.group = group_ ? &*group_ : nullptr;
        return p;
    }

    /// A new step. Call before backward.
    void begin(std::int64_t step) {
        step_ = step;
        step_watch_.restart();
        reducer_.begin();
        broken_.clear();
    }

    /// Reduces what is left, waits, and adds up `mine` over the ranks. `reason`: why this rank's loss is not finite,
    /// else empty.
    /// Throws on all ranks when a gradient is not finite on any, naming parameter, rank and step; under the policy
    /// `skip`, totals.skip > 0 says instead that nobody should take this step.
    step_totals finish(step_totals mine, std::int64_t step, const std::string& reason = {}) {
        const double compute_end = step_watch_.seconds();
        step_totals all{};
        if (agrees_first()) {
            broken_ = reason;
            if constexpr (!on_host)
                find_non_finite_on_device("gradient of ");
            else
                for (std::size_t b = 0; b < reducer_.buckets().size(); ++b)
                    find_non_finite(
                        static_cast<int>(b),
                        subspan(weights_.grads().span(), {reducer_.buckets()[b].begin, reducer_.buckets()[b].size()}));
            all = added_up(mine, reason);
            if (all.skip > 0) return all;
        }
        reducer_.finish();
        if constexpr (!on_host) {
            if (broken_.empty()) broken_ = reason;
            if (!by_host() && broken_.empty()) find_non_finite_on_device(of_sum);
        }
        if (autotuned_) autotuned_->end_step(world_, step_watch_.seconds(), compute_end);
        if (!agrees_first()) all = added_up(mine, reason);
        if (all.skip > 0 && config_.non_finite == non_finite_policy::stop) throw_non_finite(step, config_.advice);
        return all;
    }

    /// Throws on every rank, naming parameter, rank and step: after a finish() that said skip, on all ranks alike.
    [[noreturn]] void throw_non_finite(std::int64_t step, const std::string& advice) {
        // Every rank gives its reason; all say the same.
        const std::vector<std::string> reasons = all_gather_text(world_, broken_);
        const auto is_own = [](const std::string& why) { return !why.empty() && !why.starts_with(of_sum); };
        const bool any_own = std::ranges::any_of(reasons, is_own);  // a sum tells nothing of the rank that spoilt it
        for (int r = 0; r < size(); ++r)
            if (const std::string& why = reasons[static_cast<std::size_t>(r)]; any_own ? is_own(why) : !why.empty())
                fail("step ", step, ": rank ", r, " of ", size(), ": ", why, "; no rank took the step. ", advice);
        fail("step ", step, ": a gradient is not finite. ", advice);
    }

    /// After a sharded optimizer's step: every rank gets the values that the others updated.
    void share_values() {
        const trace_scope scope("share values", "", "communication");
        all_gather(device_channel(), weights_.values().span(), config_.owners);
    }

    /// Running statistics of batch normalisation become the mean over the ranks.
    void average(const buffer_list<T, D>& buffers) {
        if (size() == 1) return;
        for (const auto& [name, t] : buffers) {
            all_reduce(device_channel(), t->span());
            for_each(functors::times<T>{T(1) / static_cast<T>(size())}, *t);
        }
    }

    gradient_reducer<T, D>& reducer() { return reducer_; }

    /// What the methods keep between steps, "bucket3/residual".
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
    /// Of a method for each bucket, with its bucket's name.
    template <class Named, class Methods>
    static std::vector<Named> tensors_of(const Methods& methods) {
        std::vector<Named> all;
        for (std::size_t b = 0; b < methods.size(); ++b)
            for (auto& [name, t] : methods[b]->tensors()) all.push_back({concat("bucket", b, '/', name), std::move(t)});
        return all;
    }

    static constexpr bool on_host = std::same_as<D, cpu>;
    static constexpr const char* of_sum = "the ranks' sum of the gradient of ";

    bool compresses() const { return config_.method || on_device() || !config_.candidates.empty(); }
    bool on_device() const { return !on_host && config_.hook_on_device; }
    // What a compressor has sent it does not send again: where a step may be skipped, nobody sends before all know that
    // nobody will.
    bool agrees_first() const { return config_.non_finite == non_finite_policy::skip && compresses(); }
    // What adds on the host gets a device's gradients there.
    bool by_host() const {
        const C& over = config_.device_channel ? *config_.device_channel : gradients_;
        return !on_host &&
               ((compresses() && !on_device()) || (config_.zero_stage == 2 && !has_vendor_reduce_scatter<T>(over)));
    }

    step_totals added_up(const step_totals& mine, const std::string& reason) {
        if (broken_.empty()) broken_ = reason;
        std::array<double, 4> sums{mine.loss, mine.samples, mine.stop, broken_.empty() ? 0.0 : 1.0};
        all_reduce(world_, std::span<double>(sums));
        return {sums[0], sums[1], sums[2], sums[3]};
    }

    void reduce(int which, std::span<T> g) {
        if constexpr (on_host) {
            reduce_on_host(which, g);
        } else if (by_host()) {
            by_way_of_host<D>(g, [&](std::span<T> here) { reduce_on_host(which, here); });
        } else if (on_device()) {
            if constexpr (std::same_as<T, float>) reduce_on_device(which, g);
        } else if (config_.zero_stage == 2) {
            reduce_scatter(device_channel(), g, parts_in(reducer_.buckets()[static_cast<std::size_t>(which)]));
        } else {
            all_reduce(device_channel(), g);
        }
    }

    // A rank whose gradients are not finite sends zeros to compressors: it must not leave the others alone in a
    // collective.
    void reduce_on_host(int which, std::span<T> g) {
        if (!find_non_finite(which, g) && (config_.method || autotuned_)) std::fill(g.begin(), g.end(), T{});
        if (config_.zero_stage == 2)
            reduce_scatter(gradients_, g, parts_in(reducer_.buckets()[static_cast<std::size_t>(which)]));
        else if constexpr (std::same_as<T, float>)
            reduce_floats(which, g);
        else
            all_reduce(gradients_, g);  // compressors take floats
    }

    void reduce_on_device(int which, std::span<float> g) {
        if (is_broken_on_device(which, g)) D::set_bytes(g.data(), 0, static_cast<index_t>(g.size_bytes()));
        hooks_on_device_[static_cast<std::size_t>(which)]->reduce(device_channel(), g, step_of(which));
    }

    encode_step step_of(int which) const {
        return {.seed = config_.seed,
                .rank = world_.rank(),
                .step = step_,
                .bucket = static_cast<std::uint32_t>(which),
                .layout = &layouts_[static_cast<std::size_t>(which)]};
    }

    void reduce_floats(int which, std::span<float> g) {
        const auto b = static_cast<std::size_t>(which);
        const encode_step at = step_of(which);
        if (autotuned_)
            autotuned_->reduce(gradients_, which, g, at, reducer_.ready(which) - step_watch_.begin());
        else
            methods_[b]->reduce(gradients_, g, at);
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

    // Whether all of a bucket, on the host, is finite; else notes which parameter is not.
    bool find_non_finite(int which, std::span<T> g) {
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
            find_non_finite(which, here.span());
        }
        return found != 0;
    }

    // On the thread that trains, to which the device's memory belongs: a sum of what is not finite is not finite
    // either. After a reduce-scatter each rank has the sums of its part, and all parts together are looked at.
    void find_non_finite_on_device(const char* what) {
        if (count_nonfinite(D{}, weights_.grads().size(), weights_.grads().data()) == 0) return;
        for (const auto& [name, p] : weights_.parameters())
            if (broken_.empty()) broken_ = first_non_finite(what + name, p->grad);
    }

    arena<T, D>& weights_;
    config config_;
    C world_, gradients_;  // for the thread that trains, and for the one that reduces
    std::optional<group_over<C>> group_;
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

}  // namespace cairn
