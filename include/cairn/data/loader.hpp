#pragma once
// Batches of a data set, made ahead of the training loop by worker threads.
//
//   order of epoch e = random_order(seed, e)
//   batch b of all ranks together = order[b·B … (b+1)·B), of which rank r takes the r-th part: parts differ by at most
//   one
// Workers take pieces of batches in this order, write the samples to their slots, and sleep when `prefetch`
// batches are ready. What a batch holds depends on (seed, epoch, batch, rank, world) alone: the number of workers, the
// prefetch depth and a resume at any cursor change no bit. Buffers come from the pool (category data) and are used
// again as soon as nobody else holds them.

#include <cairn/core/clock.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/data/dataset.hpp>
#include <cairn/data/shuffle.hpp>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

namespace cairn {

/// A position between batches: the next one is number `batch` of epoch `epoch`.
struct cursor {
    index_t epoch = 0;
    index_t batch = 0;
    bool operator==(const cursor&) const = default;
};

/// One batch. Destroy it, or let it go before the next call of next(), so that its buffers are used again.
struct batch {
    tensor<float> x;                   // (N, sample shape…); empty where there are pixels
    tensor<std::uint8_t> pixels;       // (N, H, W, C), of loader_config::pixels
    tensor<crop_flip> moves;           // (N), of pixels
    tensor<std::int32_t> labels;       // (N), of classes; (N, L) where a sample has L of them
    tensor<float> targets;             // (N, K), of values
    cursor at;                         // its own position
    index_t count = 0;                 // N: samples of this rank
    index_t global_count = 0;          // samples of all ranks, before any was left out
    index_t first_sample = 0;          // of those, before the ones of this rank
    std::vector<std::string> skipped;  // names of the samples left out of this batch
};

struct loader_config {
    index_t batch = 32;      // B: samples a step, of all ranks together
    int workers = 1;         // threads; 0: next() makes the batch itself, on the threads of the kernels
    index_t prefetch = 2;    // batches ready ahead
    bool shuffle = true;     // false: in the order of the data set
    bool drop_last = false;  // leave out the last batch of an epoch if it is short
    // what comes after that many epochs is not made ahead, and next() gives nothing; 0: no end
    index_t epochs = 0;
    std::uint64_t seed = 0;  // of order and augmentation
    int rank = 0;            // this process reads part `rank` of `world` of every global batch
    int world = 1;
    memory_pool* memory = nullptr;  // of the buffers; null: the host's. A GPU has one that it copies from faster
    bool pixels =
        false;  // batches of pixels, of which somebody else makes inputs, where the data set has them (PixelBatches)
};

/// What the loader did since its construction or reset_stats().
struct loader_stats {
    index_t batches = 0, samples = 0, skipped = 0;
    double seconds = 0;        // wall time
    double stall_seconds = 0;  // time that next() waited or worked
    double work_seconds = 0;   // time spent on reading samples, added over the threads

    double samples_per_second() const { return seconds > 0 ? static_cast<double>(samples) / seconds : 0; }
    double stall_fraction() const { return seconds > 0 ? stall_seconds / seconds : 0; }
};

template <Dataset D>
class loader {
public:
    /// Throws on a batch larger than the data and on other impossible numbers.
    loader(D data, loader_config config)
        : data_(std::move(data)),
          config_(config),
          info_(data_.targets()),
          table_(config.pixels ? pixel_table_of(data_) : std::vector<float>{}),
          values_(data_.sample_shape().size()) {
        const index_t n = data_.size();
        require(config.batch >= 1, "loader: batch size ", config.batch, "; at least 1 is needed");
        require(config.world >= 1 && config.rank >= 0 && config.rank < config.world, "loader: rank ", config.rank,
                " of ", config.world);
        require(config.workers >= 0, "loader: ", config.workers, " workers; 0 or more are possible");
        require(config.epochs >= 0, "loader: ", config.epochs, " epochs");
        require(config.prefetch >= 1, "loader: prefetch of ", config.prefetch, " batches; at least 1 is needed");
        require(n > 0, "loader: the data set is empty");
        require(config.batch <= n, "loader: a batch of ", config.batch, " samples is larger than the data set of ", n,
                "; use a batch of at most ", n);
        require(config.batch >= config.world, "loader: a batch of ", config.batch, " samples on ", config.world,
                " ranks leaves some without a sample; use a batch of at least ", config.world);
        room_ = (config.batch + config.world - 1) / config.world;
        batches_ = config.drop_last ? n / config.batch : (n + config.batch - 1) / config.batch;
        for (index_t i = 0; i < (config.workers ? config.prefetch + 1 : 1); ++i) ring_.push_back(fresh_buffers());
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
        if (position_.batch == batches_) {
            position_ = {position_.epoch + 1, 0};
            return std::nullopt;
        }
        std::optional<batch> out = config_.workers ? next_made() : next_here();
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

    /// Goes on at `to`; what was made ahead is dropped. Throws when there is no such batch.
    void seek(cursor to) {
        require(to.epoch >= 0 && to.batch >= 0 && to.batch <= batches_, "loader: no batch ", to.batch, " in epoch ",
                to.epoch, "; there are ", batches_,
                " an epoch (another batch size or number of ranks than when the cursor was saved?)");
        stop_workers();
        jobs_.clear();
        orders_.clear();
        position_ = to;
        start_workers();
    }

    index_t batches_per_epoch() const { return batches_; }
    index_t samples_per_epoch() const { return config_.drop_last ? batches_ * config_.batch : data_.size(); }
    const loader_config& config() const { return config_; }
    const D& data() const { return data_; }
    const target_info& targets() const { return info_; }
    /// What becomes of pixels, (C, 256), where batches have pixels; otherwise empty.
    const std::vector<float>& pixel_table() const { return table_; }
    /// Shape of a full batch of this rank, the largest where ranks differ.
    shape batch_shape() const { return shape_of(room_); }

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
    struct buffers {
        tensor<float> x;
        tensor<std::uint8_t> pixels;
        tensor<crop_flip> moves;
        tensor<std::int32_t> labels;
        tensor<float> targets;
        bool taken = false;  // by a job; otherwise free as soon as no batch shares it

        bool free() const {
            if (taken || !alone(x) || !alone(pixels) || !alone(moves) || !alone(labels) || !alone(targets))
                return false;
            // Reading a count orders nothing. Sharing and letting go does: what the last owner read comes before what
            // we write.
            x.share(), pixels.share(), moves.share(), labels.share(), targets.share();
            return true;
        }
        template <class T>
        static bool alone(const tensor<T>& t) {
            return t.empty() || t.unique();
        }
    };

    // A batch in the making.
    struct job {
        cursor at;
        std::vector<index_t> samples;
        std::vector<char> kept;  // by sample; one writer each
        index_t global_count = 0, first_sample = 0;
        std::size_t buffer = 0;
        index_t handed_out = 0;  // samples that a worker has taken
        index_t done = 0;
        std::exception_ptr failure;  // of the first sample in the batch that failed
        index_t failed_sample = -1;
        bool ready() const { return done == static_cast<index_t>(samples.size()); }
    };

    shape shape_of(index_t n) const {
        shape s{n};
        for (index_t extent : data_.sample_shape()) s.push_back(extent);
        return s;
    }

    shape labels_of(index_t n) const { return info_.labels_each == 1 ? shape{n} : shape{n, info_.labels_each}; }

    buffers fresh_buffers() const {
        buffers b;
        memory_pool& pool = config_.memory ? *config_.memory : cpu::memory();
        if (table_.empty()) {
            b.x = tensor<float>(shape_of(room_), memory_category::data, pool);
        } else {
            b.pixels = tensor<std::uint8_t>(shape_of(room_), memory_category::data, pool);
            b.moves = tensor<crop_flip>({room_}, memory_category::data, pool);
        }
        if (info_.kind == target_kind::classes)
            b.labels = tensor<std::int32_t>(labels_of(room_), memory_category::data, pool);
        else
            b.targets = tensor<float>({room_, info_.count()}, memory_category::data, pool);
        return b;
    }

    // The ring grows when the caller holds more batches than it was made for: better than waiting for ever.
    std::size_t take_buffers() {
        auto found = std::find_if(ring_.begin(), ring_.end(), [](const buffers& b) { return b.free(); });
        if (found == ring_.end()) found = ring_.insert(ring_.end(), fresh_buffers());
        found->taken = true;
        return static_cast<std::size_t>(found - ring_.begin());
    }

    // Orders of the two epochs that workers may be in.
    const std::vector<index_t>& order_of(index_t epoch) {
        for (const auto& [e, order] : orders_)
            if (e == epoch) return order;
        if (orders_.size() == 2) orders_.pop_front();
        std::vector<index_t> order;
        if (config_.shuffle)
            order = epoch_order(data_.size(), config_.seed, static_cast<std::uint32_t>(epoch));
        else {
            order.resize(static_cast<std::size_t>(data_.size()));
            std::iota(order.begin(), order.end(), index_t{0});
        }
        orders_.emplace_back(epoch, std::move(order));
        return orders_.back().second;
    }

    // A short last global batch is dealt evenly: ranks differ by at most one sample, and global_count gives the weight
    // of each.
    void plan(job& j, cursor at) {
        const index_t n = data_.size(), global = config_.batch;
        const index_t begin = at.batch * global, count = std::min(global, n - begin);
        const index_t share = count / config_.world, extra = count % config_.world, rank = config_.rank;
        const index_t first = begin + rank * share + std::min(rank, extra), mine = share + (rank < extra ? 1 : 0);
        j.at = at;
        j.global_count = count;
        j.first_sample = first - begin;
        const auto& order = order_of(at.epoch);
        j.samples.assign(order.begin() + first, order.begin() + first + mine);
        j.kept.assign(j.samples.size(), 0);
        j.buffer = take_buffers();
    }

    /// Reads samples [begin, end) of the job into its buffer b. Called without the lock; returns the sample that
    /// failed.
    std::pair<index_t, std::exception_ptr> read(job& j, buffers& b, index_t begin, index_t end) const {
        for (index_t k = begin; k < end; ++k) {
            const index_t sample = j.samples[static_cast<std::size_t>(k)];
            std::int32_t* const label = b.labels.empty() ? nullptr : b.labels.data() + k * info_.labels_each;
            float* const targets = b.targets.empty() ? nullptr : b.targets.data() + k * info_.count();
            try {
                const augment_key key{config_.seed, static_cast<std::uint32_t>(j.at.epoch)};
                j.kept[static_cast<std::size_t>(k)] =
                    table_.empty()
                        ? data_.read(sample, key, {b.x.data() + k * values_, label, targets})
                        : read_pixels_of(data_, sample, key,
                                         {b.pixels.data() + k * values_, b.moves.data() + k, label, targets});
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
        buffers& b = ring_[j.buffer];
        b.taken = false;
        if (j.failure) std::rethrow_exception(j.failure);
        batch out;
        out.at = j.at;
        out.global_count = j.global_count;
        out.first_sample = j.first_sample;
        const index_t targets = b.targets.empty() ? 0 : info_.count();
        const auto close = [](auto& t, index_t width, index_t from, index_t to) {
            if (!t.empty()) std::copy_n(t.data() + from * width, width, t.data() + to * width);
        };
        index_t& kept = out.count;
        for (std::size_t k = 0; k < j.samples.size(); ++k) {
            if (!j.kept[k]) {
                out.skipped.push_back(data_.sample_name(j.samples[k]));
                continue;
            }
            const auto from = static_cast<index_t>(k);
            if (from != kept) {
                close(b.x, values_, from, kept);
                close(b.pixels, values_, from, kept);
                close(b.moves, 1, from, kept);
                close(b.labels, info_.labels_each, from, kept);
                close(b.targets, targets, from, kept);
            }
            ++kept;
        }
        if (!b.x.empty()) out.x = b.x.slice(0, shape_of(kept));
        if (!b.pixels.empty()) out.pixels = b.pixels.slice(0, shape_of(kept));
        if (!b.moves.empty()) out.moves = b.moves.slice(0, {kept});
        if (!b.labels.empty()) out.labels = b.labels.slice(0, labels_of(kept));
        if (!b.targets.empty()) out.targets = b.targets.slice(0, {kept, info_.count()});
        return out;
    }

    batch next_here() {
        const double begin = now();
        job j;
        plan(j, position_);
        std::mutex failures;
        const trace_scope scope("loader", "make batch", "data");
        // A few hundred kilobytes are copied sooner than threads are woken.
        const auto n = static_cast<index_t>(j.samples.size());
        parallel_for(n, room_ * values_ < (1 << 18) ? n : piece(), [&](index_t first, index_t last) {
            auto [k, failure] = read(j, ring_[j.buffer], first, last);
            const std::scoped_lock lock(failures);
            note_failure(j, k, failure);
        });
        batch out = finish(j);
        const std::scoped_lock lock(mutex_);
        stats_.work_seconds += now() - begin;
        return out;
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
    index_t piece() const { return std::max<index_t>(1, room_ / std::max(16, 4 * config_.workers)); }

    // Under the lock: a piece of the oldest batch that is not fully handed out, opening a new batch if there is room.
    job* find_work() {
        for (job& j : jobs_)
            if (j.handed_out < static_cast<index_t>(j.samples.size())) return &j;
        if (static_cast<index_t>(jobs_.size()) >= config_.prefetch) return nullptr;
        if (config_.epochs && next_planned_.epoch >= config_.epochs) return nullptr;
        jobs_.emplace_back();
        try {
            plan(jobs_.back(), next_planned_);
        } catch (...) {
            jobs_.pop_back();
            throw;
        }
        next_planned_ = next_planned_.batch + 1 < batches_ ? cursor{next_planned_.epoch, next_planned_.batch + 1}
                                                           : cursor{next_planned_.epoch + 1, 0};
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
                const index_t begin = j->handed_out,
                              end = std::min(begin + piece(), static_cast<index_t>(j->samples.size()));
                if (begin == end) {  // no sample for this rank in a short last batch
                    made_.notify_all();
                    continue;
                }
                j->handed_out = end;
                buffers& b = ring_[j->buffer];
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
        next_planned_ = position_.batch < batches_ ? position_ : cursor{position_.epoch + 1, 0};
        try {
            for (int i = 0; i < config_.workers; ++i) workers_.emplace_back([this] { work(); });
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
        for (buffers& b : ring_) b.taken = false;
    }

    const D data_;
    const loader_config config_;
    const target_info info_;
    const std::vector<float> table_;  // of pixels
    const index_t values_;            // of a sample's input
    index_t batches_ = 0;
    index_t room_ = 0;  // samples in a buffer: the largest part of a batch that a rank gets
    cursor position_;

    mutable std::mutex mutex_;
    std::condition_variable wanted_, made_;
    std::deque<buffers> ring_;  // a deque: growing moves nothing that a worker writes to
    std::deque<job> jobs_;      // in the order of delivery
    std::deque<std::pair<index_t, std::vector<index_t>>> orders_;
    cursor next_planned_;
    std::vector<std::thread> workers_;
    std::exception_ptr dead_;
    bool stop_ = false;
    loader_stats stats_;
    stopwatch since_;
};

}  // namespace cairn
