#pragma once
// Measurements for the compression autotuner (compress/compression_autotuner.hpp), which decides for each bucket.
//   at the start    α and β of the link from two all-reduces; encode and decode of each candidate on each bucket; the
//                   worst rank counts
//   each step       when each bucket was ready, and its encode and decode times, by maximum over ranks; its time on the
//                   link, by minimum: that of the last rank, which did not wait for others. So all ranks decide alike
// A candidate's state exists while it is in use. When a bucket changes to another one, the residual is added to its
// gradient; during a probe it waits for the bucket to come back. A checkpoint keeps the residuals, without the name of
// the compressor.

#include <cairn/comm/self.hpp>
#include <cairn/compress/compression_autotuner.hpp>
#include <cairn/parallel/buckets.hpp>
#include <cairn/parallel/comm_hook.hpp>
#include <cairn/parallel/link.hpp>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace cairn {

/// A compressor that the compression autotuner may choose.
template <Communicator C>
struct autotune_candidate {
    std::string name;
    exchange kind = exchange::all_reduce;
    std::function<std::unique_ptr<comm_hook<C>>(const bucket_layout&, index_t n, int ranks, int rank)> make;
};

/// The reductions of all buckets of one rank.
template <Communicator C>
class autotuned_reduction {
public:
    /// Collective: measures the link and the candidates. `layouts` must outlive this.
    autotuned_reduction(C& c, const std::vector<bucket>& buckets, const std::vector<bucket_layout>& layouts,
                        std::vector<autotune_candidate<C>> candidates, compression_autotuner::config config)
        : candidates_(std::move(candidates)),
          layouts_(layouts),
          link_(measure_link(c)),
          ranks_(c.size()),
          rank_(c.rank()) {
        for (const bucket& b : buckets) sizes_.push_back(b.size());
        autotuner_ = std::make_unique<compression_autotuner>(config, measured_options(c));
        methods_.resize(buckets.size());
        for (auto& of_bucket : methods_) of_bucket.resize(candidates_.size() + 1);
        times_.resize(buckets.size());
        last_.resize(buckets.size());
    }

    /// Reduces bucket `which` by the compression autotuner's plan. `ready`: seconds from the begin of the step until it
    /// was full.
    void reduce(C& c, int which, std::span<float> gradient, const encode_step& at, double ready) {
        const auto b = static_cast<std::size_t>(which);
        const std::size_t option = autotuner_->plan()[b];
        auto& method = methods_[b][option];
        if (!method)
            method = option == 0 ? std::make_unique<dense_hook<C>>()
                                 : candidates_[option - 1].make(layouts_[b], sizes_[b], ranks_, rank_);
        if (!held_.empty()) {
            flush_into(held_[b], gradient);
            held_[b] = {};
        }
        if (!autotuner_->probing())  // the bucket will be back in a moment
            if (const std::size_t before = std::exchange(last_[b], option); before != option)
                leave(b, before, gradient);
        const exchange_cost cost = method->reduce(c, gradient, at);
        times_[b] = {ready, cost.encode, cost.communication, cost.decode};
        bytes_ += cost.bytes;
    }

    /// Collective. The step took `seconds`, of which forward and backward until `compute_end`.
    void end_step(C& c, double seconds, double compute_end) {
        std::vector<double> all = step_measurement{seconds, compute_end, times_}.flat();
        const auto negate_communication = [&] {
            for (std::size_t i = 4; i < all.size(); i += 4) all[i] = -all[i];
        };
        negate_communication();
        all_reduce(c, std::span<double>(all), {.op = reduction::max});
        negate_communication();
        autotuner_->observe(step_measurement::from_flat(all));
    }

    const compression_autotuner& decisions() const { return *autotuner_; }
    const exchange_model& link() const { return link_; }

    /// "bucket 0 topk, bucket 1 dense, …"
    std::string describe() const {
        std::string all;
        for (std::size_t b = 0; b < sizes_.size(); ++b) {
            const reduction_option& o = autotuner_->chosen(b);
            all += concat(b ? ", " : "", "bucket ", b, ' ', o.dense() ? "dense" : o.compressor);
        }
        return all;
    }

    /// "bucket0/held": residuals of the buckets, of any compressor; they are sent with the next gradients.
    std::vector<compressor_tensor> tensors() {
        std::vector<compressor_tensor> all;
        held_.resize(sizes_.size());
        for (std::size_t b = 0; b < sizes_.size(); ++b) {
            if (held_[b].empty()) held_[b] = tensor<float>::zeros({sizes_[b]}, memory_category::communication);
            for (auto& method : methods_[b])
                if (method) method->flush_residual(held_[b].span());
            all.push_back({concat("bucket", b, "/held"), held_[b].share()});
        }
        return all;
    }

private:
    // Adds bucket b's residual under an option to its gradient, and frees the memory.
    void leave(std::size_t b, std::size_t option, std::span<float> gradient) {
        auto& method = methods_[b][option];
        if (!method) return;
        method->flush_residual(gradient);
        if (option > 0) method.reset();
    }

    std::vector<std::vector<reduction_option>> measured_options(C& c) const {
        std::vector<double> costs;  // encode, decode, bytes, exchanges of each bucket and candidate
        for (std::size_t b = 0; b < sizes_.size(); ++b) {
            tensor<float> values({sizes_[b]}, memory_category::communication);
            const random_stream random{1, stream_of("governor"), static_cast<std::uint32_t>(b)};
            parallel_for(values.size(), 4096, [&](index_t begin, index_t end) {
                for (index_t i = begin; i < end; ++i)
                    values[i] = random.uniform(static_cast<std::uint64_t>(i)) *
                                    random.uniform(static_cast<std::uint64_t>(i) + 7) -
                                0.25f;
            });
            for (const auto& candidate : candidates_) {
                C alone = any_alone();
                auto method = candidate.make(layouts_[b], sizes_[b], 1, 0);
                exchange_cost cost;
                for (int i = 0; i < 2; ++i) {  // the second one: memory has been touched
                    const tensor<float> copy = values.clone(memory_category::communication);
                    cost = method->reduce(
                        alone, std::span<float>(const_cast<float*>(copy.data()), static_cast<std::size_t>(copy.size())),
                        {.step = i, .layout = &layouts_[b]});
                }
                const double decodes = candidate.kind == exchange::all_gather ? ranks_ : 1;
                costs.insert(costs.end(), {cost.encode, cost.decode * decodes, static_cast<double>(cost.bytes),
                                           static_cast<double>(cost.exchanges)});
            }
        }
        all_reduce(c, std::span<double>(costs), {.op = reduction::max});
        std::vector<std::vector<reduction_option>> all;
        std::size_t next = 0;
        for (std::size_t b = 0; b < sizes_.size(); ++b) {
            const double dense = 4.0 * static_cast<double>(sizes_[b]);
            all.push_back({{"", "all-reduce", link_.seconds(exchange::all_reduce, dense, ranks_), 0, 0}});
            for (const auto& candidate : candidates_) {
                const double encode = costs[next], decode = costs[next + 1], bytes = costs[next + 2];
                const int exchanges = static_cast<int>(costs[next + 3]);
                next += 4;
                all.back().push_back({candidate.name, candidate.name,
                                      link_.seconds(candidate.kind, bytes, ranks_, exchanges), encode, decode});
            }
        }
        return all;
    }

    static C any_alone() requires std::constructible_from<C, self_communicator> { return C(self_communicator{}); }

    std::vector<autotune_candidate<C>> candidates_;
    const std::vector<bucket_layout>& layouts_;
    exchange_model link_;
    int ranks_, rank_;
    std::vector<index_t> sizes_;
    std::unique_ptr<compression_autotuner> autotuner_;
    std::vector<std::vector<std::unique_ptr<comm_hook<C>>>> methods_;  // [bucket][option], made at first use
    std::vector<tensor<float>> held_;  // of each bucket, once a state was written or read
    std::vector<std::size_t> last_;    // option of each bucket in the step before, probes left out
    std::vector<bucket_times> times_;
    index_t bytes_ = 0;
};

}  // namespace cairn
