#pragma once
// Batches of a data set, made ahead of the training loop by worker threads.
// Workers take pieces of batches in the order of data/batch_order.hpp, write the samples to their slots, and sleep when
// `prefetch` batches are ready. The contents of a batch depend on (seed, epoch, batch, rank, world) alone: the number
// of workers, the prefetch depth and a resume at any cursor change no bit. Buffers come from the pool (category data)
// and are reused once they have no other owner.

#include <cairn/core/clock.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/data/batch.hpp>
#include <cairn/data/batch_order.hpp>
#include <cairn/data/dataset.hpp>
#include <cairn/data/phantom_workers.hpp>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

namespace cairn {

struct loader_config {
    index_t batch = 32;             // B: samples a step, of all ranks together
    int workers = 1;                // threads; 0: next() makes the batch itself, on the threads of the kernels
    index_t prefetch = 2;           // batches ready ahead
    bool shuffle = true;            // false: in the order of the data set
    bool drop_last = false;         // leave out the last batch of an epoch if it is short
    bool stream = false;            // rows that run through the samples (data/batch_order.hpp)
    index_t epochs = 0;             // after this many epochs next() gives nothing; 0: no end
    std::uint64_t seed = 0;         // of order and augmentation
    int rank = 0, world = 1;        // this process reads part `rank` of `world` of every global batch
    memory_pool* memory = nullptr;  // of the buffers; null: the host's. A GPU has one that it copies from faster
    std::shared_ptr<sample_reading> reading = nullptr;  // how the data set's samples are read, if that is a strategy's
    bool pixels = false;  // of pixels where the data set has them (PixelBatches): inputs are made of them elsewhere
};

/// Counts since the loader's construction or reset_stats().
struct loader_stats {
    index_t batches = 0, samples = 0, skipped = 0;
    double seconds = 0, stall_seconds = 0;  // wall time, and that of it in which next() waited or worked
    double work_seconds = 0;                // time spent on reading samples, added over the threads

    double stall_fraction() const { return seconds > 0 ? stall_seconds / seconds : 0; }
};

template <Dataset D>
class loader {
public:
    /// Throws on a batch larger than the data and on other impossible numbers.
    loader(D data, loader_config config)
        : data_(std::move(data)),
          config_(std::move(config)),
          info_(data_.targets()),
          table_(config_.pixels ? pixel_table_of(data_) : std::vector<float>{}),
          order_(data_.size(), {config_.batch, config_.shuffle, config_.drop_last, config_.stream, config_.seed,
                                config_.rank, config_.world, config_.reading}) {
        require(config_.workers >= 0, "loader: ", config_.workers, " workers; 0 or more are possible");
        require(config_.epochs >= 0, "loader: ", config_.epochs, " epochs");
        require(config_.prefetch >= 1, "loader: prefetch of ", config_.prefetch, " batches; at least 1 is needed");
        for (index_t i = 0; i < (config_.workers ? config_.prefetch + 1 : 1); ++i) ring_.push_back(fresh_buffers());
        start_workers();
    }

    ~loader() { stop_workers(); }
    loader(const loader&) = delete;
    loader& operator=(const loader&) = delete;

    /// The next batch of the epoch; nothing, once, at the end of an epoch, and always after the last one. A worker's
    /// error comes out here, with the sample's name, and again at every further call, until seek().
    std::optional<batch> next() {
        const double called = now();
        const trace_scope scope("loader", "wait for batch", "data");
        if (config_.epochs && position_.epoch >= config_.epochs) return std::nullopt;
        if (position_.batch == order_.batches()) {
            position_ = {position_.epoch + 1, 0};
            return std::nullopt;
        }
        std::optional<batch> out = config_.workers && !on_phantom_rank() ? next_made() : next_here();
        ++position_.batch;
        const std::scoped_lock lock(mutex_);
        ++stats_.batches;
        stats_.samples += out->count;
        stats_.skipped += static_cast<index_t>(out->skipped.size());
        stats_.stall_seconds += now() - called;
        return out;
    }

    /// Where next() goes on: save it with the model.
    cursor position() const { return position_; }

    /// Continues at `to`; prefetched batches are dropped. Throws when there is no such batch.
    void seek(cursor to) {
        require(to.epoch >= 0 && to.batch >= 0 && to.batch <= order_.batches(), "loader: no batch ", to.batch,
                " in epoch ", to.epoch, "; there are ", order_.batches(),
                " an epoch (another batch size or number of ranks than when the cursor was saved?)");
        stop_workers();
        jobs_.clear();
        order_.clear();
        position_ = to;
        start_workers();
    }

    index_t batches_per_epoch() const { return order_.batches(); }
    index_t samples_per_epoch() const { return order_.samples(); }
    const loader_config& config() const { return config_; }
    const D& data() const { return data_; }
    const target_info& targets() const { return info_; }
    /// The converted value of each pixel value, (C, 256), if batches have pixels; otherwise empty.
    const std::vector<float>& pixel_table() const { return table_; }
    /// Shape of a full batch of this rank, the largest where ranks differ.
    shape batch_shape() const {
        shape s{order_.most()};
        for (const index_t extent : data_.sample_shape()) s.push_back(extent);
        return s;
    }

    loader_stats stats() const {
        const std::scoped_lock lock(mutex_);
        loader_stats out = stats_;
        out.seconds = since_.seconds();
        return out;
    }
    void reset_stats() {
        const std::scoped_lock lock(mutex_);
        stats_ = {};
        since_.restart();
    }

private:
    // A batch in the making.
    struct job {
        cursor at;
        batch_order::part part;
        std::vector<char> kept;  // by sample; one writer each
        std::size_t buffer = 0;
        index_t handed_out = 0;  // samples that a worker has taken
        index_t done = 0;
        std::exception_ptr failure;  // of the first sample in the batch that failed
        index_t failed_sample = -1;
        index_t size() const { return static_cast<index_t>(part.samples.size()); }
        bool ready() const { return done == size(); }
    };

    batch_buffers fresh_buffers() const {
        return {order_.most(), data_.sample_shape(), info_, !table_.empty(),
                config_.memory ? *config_.memory : cpu::memory()};
    }

    // The ring grows when the caller holds more batches than it was made for: better than waiting for ever.
    std::size_t take_buffers() {
        auto found = std::find_if(ring_.begin(), ring_.end(), [](const batch_buffers& b) { return b.free(); });
        if (found == ring_.end()) found = ring_.insert(ring_.end(), fresh_buffers());
        found->taken = true;
        return static_cast<std::size_t>(found - ring_.begin());
    }

    void plan(job& j, cursor at) {
        j.at = at;
        j.part = order_(at);
        j.kept.assign(j.part.samples.size(), 0);
        j.buffer = take_buffers();
    }

    /// Reads samples [begin, end) of the job into its buffer b. Called without the lock; returns the sample that
    /// failed.
    std::pair<index_t, std::exception_ptr> read(job& j, batch_buffers& b, index_t begin, index_t end) const {
        const augment_key key{config_.seed, static_cast<std::uint32_t>(j.at.epoch)};
        for (index_t k = begin; k < end; ++k) {
            const index_t sample = j.part.samples[static_cast<std::size_t>(k)];
            try {
                j.kept[static_cast<std::size_t>(k)] = table_.empty()
                                                          ? data_.read(sample, key, b.inputs_of(k))
                                                          : read_pixels_of(data_, sample, key, b.pixels_of(k));
            } catch (error& e) {
                e.add_context(concat("loader: sample ", sample, " (", data_.sample_name(sample), ")"));
                return {k, std::make_exception_ptr(e)};
            } catch (const std::exception& e) {
                return {k, std::make_exception_ptr(error(
                               concat("loader: sample ", sample, " (", data_.sample_name(sample), "): ", e.what())))};
            } catch (...) {
                return {k, std::current_exception()};
            }
        }
        return {-1, nullptr};
    }

    static void note_failure(job& j, index_t k, std::exception_ptr failure) {
        if (failure && (j.failed_sample < 0 || k < j.failed_sample)) {
            j.failed_sample = k;
            j.failure = std::move(failure);
        }
    }

    // Closes the gaps that skipped samples left and hands the buffers out.
    batch finish(job& j) {
        batch_buffers& b = ring_[j.buffer];
        b.taken = false;
        if (j.failure) std::rethrow_exception(j.failure);
        batch out;
        for (index_t k = 0; k < j.size(); ++k) {
            if (!j.kept[static_cast<std::size_t>(k)]) {
                out.skipped.push_back(data_.sample_name(j.part.samples[static_cast<std::size_t>(k)]));
                continue;
            }
            const index_t to = out.count++;
            out.samples.push_back(j.part.samples[static_cast<std::size_t>(k)]);
            if (k != to) b.move(k, to);
        }
        static_cast<batch_tensors&>(out) = b.first(out.count);
        out.at = j.at;
        out.global_count = j.part.global_count;
        out.first_sample = j.part.first_sample;
        return out;
    }

    batch next_here() {
        const double begin = now();
        job j;
        plan(j, position_);
        std::mutex failures;
        const trace_scope scope("loader", "make batch", "data");
        if (on_phantom_rank() && config_.reading) read_on_phantom_rank(j.part.samples);
        if (on_phantom_rank()) j.kept.assign(j.kept.size(), 1);
        // A few hundred kilobytes are copied sooner than threads are woken.
        const index_t n = j.size(), most = batch_shape().size();
        parallel_for(n, most < (1 << 18) ? n : piece(), [&](index_t first, index_t last) {
            auto [k, failure] = read(j, ring_[j.buffer], first, last);
            const std::scoped_lock lock(failures);
            note_failure(j, k, failure);
        });
        batch out = finish(j);
        const std::scoped_lock lock(mutex_);
        stats_.work_seconds += now() - begin;
        return out;
    }

    // Takes the time until this batch is read, and lets the workers go on with those that follow.
    void read_on_phantom_rank(const std::vector<index_t>& samples) {
        if (!phantom_workers_) {
            for (const index_t sample : samples) pass_reading(*config_.reading, sample);
            return;
        }
        phantom_workers_->finish();
        begin_on_phantom_workers();
    }
    void begin_on_phantom_workers() {
        while (phantom_workers_->begun() < config_.prefetch &&
               (config_.epochs == 0 || next_planned_.epoch < config_.epochs)) {
            phantom_workers_->begin(config_.reading, order_(next_planned_).samples, piece());
            next_planned_ = order_.after(next_planned_);
        }
    }

    batch next_made() {
        std::unique_lock lock(mutex_);
        made_.wait(lock, [&] { return dead_ || (!jobs_.empty() && jobs_.front().ready()); });
        if (dead_) std::rethrow_exception(dead_);
        job& j = jobs_.front();
        if (j.failure) std::rethrow_exception(j.failure);  // the job stays in front: the next call fails likewise
        batch out = finish(j);
        jobs_.pop_front();
        lock.unlock();
        wanted_.notify_all();
        return out;
    }

    // Samples a worker takes at a time: small enough that workers share a batch, large enough that cheap samples do not
    // pay for locks.
    index_t piece() const { return std::max<index_t>(1, order_.most() / std::max(16, 4 * config_.workers)); }

    // Under the lock: a piece of the oldest batch that is not fully handed out, opening a new batch if there is room.
    job* find_work() {
        for (job& j : jobs_)
            if (j.handed_out < j.size()) return &j;
        if (static_cast<index_t>(jobs_.size()) >= config_.prefetch) return nullptr;
        if (config_.epochs && next_planned_.epoch >= config_.epochs) return nullptr;
        jobs_.emplace_back();
        try {
            plan(jobs_.back(), next_planned_);
        } catch (...) {
            jobs_.pop_back();
            throw;
        }
        next_planned_ = order_.after(next_planned_);
        return &jobs_.back();
    }

    void work() {
        std::unique_lock lock(mutex_);
        try {
            while (!stop_) {
                job* j = dead_ ? nullptr : find_work();
                if (!j) {
                    wanted_.wait(lock);
                    continue;
                }
                const index_t begin = j->handed_out, end = std::min(begin + piece(), j->size());
                if (begin == end) {  // no sample for this rank in a short last batch
                    made_.notify_all();
                    continue;
                }
                j->handed_out = end;
                batch_buffers& b = ring_[j->buffer];
                lock.unlock();
                const double started = now();
                std::pair<index_t, std::exception_ptr> result;
                {
                    const trace_scope scope("loader", "read samples", "data");
                    result = read(*j, b, begin, end);
                }
                const double took = now() - started;
                lock.lock();
                stats_.work_seconds += took;
                note_failure(*j, result.first, result.second);
                j->done += end - begin;
                if (j->ready()) made_.notify_all();
            }
        } catch (...) {  // planning failed: out of memory
            if (!lock.owns_lock()) lock.lock();
            dead_ = std::current_exception();
            made_.notify_all();
        }
    }

    void start_workers() {
        stop_ = false;
        dead_ = nullptr;
        next_planned_ = position_.batch < order_.batches() ? position_ : cursor{position_.epoch + 1, 0};
        if (on_phantom_rank()) {  // what is read takes time alone
            if (!config_.reading || config_.workers == 0) return;
            phantom_workers_.emplace(config_.workers);
            return begin_on_phantom_workers();
        }
        try {
            for (int i = 0; i < config_.workers; ++i) workers_.emplace_back(in_pool_of_caller([this] { work(); }));
        } catch (const std::system_error& e) {
            stop_workers();
            fail("loader: cannot start ", config_.workers, " worker threads: ", e.what(), "; use fewer workers");
        }
    }

    void stop_workers() {
        {
            const std::scoped_lock lock(mutex_);
            stop_ = true;
        }
        wanted_.notify_all();
        for (std::thread& worker : workers_) worker.join();
        workers_.clear();
        phantom_workers_.reset();
        for (batch_buffers& b : ring_) b.taken = false;
    }

    const D data_;
    const loader_config config_;
    const target_info info_;
    const std::vector<float> table_;  // of pixels
    batch_order order_;
    cursor position_;

    mutable std::mutex mutex_;
    std::condition_variable wanted_, made_;
    std::deque<batch_buffers> ring_;  // a deque: growing moves nothing that a worker writes to
    std::deque<job> jobs_;            // in the order of delivery
    cursor next_planned_;
    std::vector<std::thread> workers_;
    std::optional<phantom_workers> phantom_workers_;  // in their place
    std::exception_ptr dead_;
    bool stop_ = false;
    loader_stats stats_;
    stopwatch since_;
};

}  // namespace cairn
