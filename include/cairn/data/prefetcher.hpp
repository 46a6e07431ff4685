#pragma once
// Batches on their way from a loader to the device of the network.
//   host    the loader's own buffers
//   GPU     copied in a separate stream out of pinned memory, into one of two sets of buffers: while a step computes on
//           one, the next batch arrives in the other. For data sets with pixels (PixelBatches) one byte per value is
//           copied in place of four, and the same stream makes the inputs of them (device/grid/crop_flip.hpp), with
//           the bits of the host
// The order of batches, and position(), are the loader's in both.

#include <cairn/data/loader.hpp>

#include <array>
#include <exception>
#include <optional>
#include <utility>

namespace cairn {

/// A batch's tensors, on the network's device.
template <Device D = cpu>
struct samples {
    tensor<float, D> x;              // (N, sample shape…)
    tensor<std::int32_t, D> labels;  // (N) or (N, L), of classes
    tensor<float, D> targets;        // (N, K), of values
};

/// Handles to the batch's tensors, or copies on another device. Empty tensors stay empty.
template <Device D>
samples<D> samples_on(const batch& b) {
    const auto there = [](const auto& t) { return device_side<D>(t, memory_category::data); };
    return {there(b.x), there(b.labels), there(b.targets)};
}

/// A batch on the host, and its samples on the network's device.
template <Device D = cpu>
struct device_batch {
    batch host;
    samples<D> there;

    explicit device_batch(batch b) : host(std::move(b)), there(samples_on<D>(host)) {}
    device_batch(batch b, samples<D> s) : host(std::move(b)), there(std::move(s)) {}
};

/// A device that copies batches concurrently with its launches.
///   D::host_memory()      the pool of pinned memory that it copies from
///   D::copy_stream        a stream of copies and launches: after(event), copy(to, from, bytes), and done(), whose
///                         result has wait() for the device and finish() for the host
///   inputs_of_pixels(D, D::copy_stream, …)    launches there (device/grid/crop_flip.hpp, included where a
///                                             prefetcher<D> is made)
template <class D>
concept CopiesBeside = Device<D> && requires(typename D::copy_stream& u, const typename D::event& m, void* to) {
    D::host_memory();
    u.after(m);
    u.copy(to, to, index_t{1});
    u.done().wait();
    u.done().finish();
};

namespace detail {

/// Two sets of buffers on D, filled in turn.
template <CopiesBeside D>
class arriving {
public:
    /// `table`: of the loader's pixels, or empty.
    explicit arriving(const std::vector<float>& table) {
        if (table.empty()) return;
        tensor<float> host({static_cast<index_t>(table.size())}, memory_category::data);
        std::copy(table.begin(), table.end(), host.data());
        table_ = tensor<float, D>::copy_of(host, memory_category::data);
    }

    /// Begins to copy b, once the launches before the last take() are done: they may read the batch before the last.
    void begin(const batch& b) {
        set& s = sets_[next_];
        if (s.arrived) s.arrived->finish();  // so that its host's buffers may go
        if (before_) uploads_.after(*before_);
        s.from = b.share();
        s.there = {b.pixels.empty() ? copied(b.x, s.x) : made(b, s), copied(b.labels, s.labels),
                   copied(b.targets, s.targets)};
        s.arrived.emplace(uploads_.done());
    }

    /// The batch of the last begin(), for all later launches.
    samples<D> take() {
        set& s = sets_[next_];
        next_ = 1 - next_;
        before_.emplace();
        s.arrived->wait();
        return std::move(s.there);
    }

private:
    using moment = decltype(std::declval<typename D::copy_stream&>().done());

    struct set {
        tensor<float, D> x, targets;
        tensor<std::int32_t, D> labels;
        tensor<std::uint8_t, D> pixels;
        tensor<crop_flip, D> moves;
        samples<D> there;  // the part of these that the batch takes
        batch_tensors from;
        std::optional<moment> arrived;
    };

    template <class T>
    tensor<T, D> copied(const tensor<T>& from, tensor<T, D>& room) {
        if (from.size() == 0) return {};
        tensor<T, D> to = part_of(room, from.shape());
        uploads_.copy(to.data(), from.data(), from.bytes());
        return to;
    }

    // The inputs of b's pixels.
    tensor<float, D> made(const batch& b, set& s) {
        const tensor<std::uint8_t, D> pixels = copied(b.pixels, s.pixels);
        const tensor<crop_flip, D> moves = copied(b.moves, s.moves);
        tensor<float, D> x = part_of(s.x, pixels.shape());
        inputs_of_pixels(D{}, uploads_, pixels.shape(), pixels.data(), moves.data(), std::as_const(table_).data(),
                         x.data());
        return x;
    }

    template <class T>
    tensor<T, D> part_of(tensor<T, D>& room, const shape& wanted) {
        if (room.size() < wanted.size()) {
            room = tensor<T, D>(wanted, memory_category::data);
            uploads_.after(typename D::event());  // earlier launches may use the former contents of this memory
        }
        return room.slice(0, wanted);
    }

    tensor<float, D> table_;  // of pixels
    std::array<set, 2> sets_;
    std::size_t next_ = 0;                     // set, for the next take()
    std::optional<typename D::event> before_;  // the last take()
    typename D::copy_stream uploads_;          // last: it waits for what is on its way before both ends go
};

template <Device D>
struct arriving_on {
    struct type {  // nothing arrives on the host
        explicit type(const std::vector<float>&) {}
    };
};
template <CopiesBeside D>
struct arriving_on<D> {
    using type = arriving<D>;
};

}  // namespace detail

/// The loader of a network on D.
template <Device D, Dataset Data>
class prefetcher {
public:
    /// As loader's. `as_pixels`: on a GPU batches travel as pixels where the data set has them; the inputs are the
    /// same.
    prefetcher(Data data, loader_config config, bool as_pixels = true)
        : from_(std::move(data), in_host_memory(config, as_pixels)), arriving_(from_.pixel_table()) {}

    /// The next batch, as loader's next() gives it. Let the one before go first.
    std::optional<device_batch<D>> next() {
        if constexpr (ahead) {
            prepare();
            fetched_ = false;
            if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
            if (!ahead_) return std::nullopt;
            batch b = std::move(*ahead_);
            ahead_.reset();
            if (b.count == 0) return device_batch<D>(std::move(b));
            return device_batch<D>(std::move(b), arriving_.take());
        } else {
            std::optional<batch> b = from_.next();
            if (!b) return std::nullopt;
            return device_batch<D>(std::move(*b));
        }
    }

    /// Fetches the next batch and starts its copy; on the host nothing. Called when a step is launched, before its
    /// results are read. next() reports errors.
    void prepare() {
        if constexpr (ahead) {
            if (fetched_) return;
            before_ = from_.position();
            fetched_ = true;
            try {
                ahead_ = from_.next();
                if (ahead_ && ahead_->count > 0) arriving_.begin(*ahead_);
            } catch (...) {
                ahead_.reset();
                failure_ = std::current_exception();
                if (from_.position() != before_) from_.seek(before_);  // there is no room for it on the device
            }
        }
    }

    cursor position() const { return fetched_ ? before_ : from_.position(); }
    void seek(cursor to) {
        fetched_ = false;
        ahead_.reset();
        failure_ = nullptr;
        from_.seek(to);
    }

    index_t batches_per_epoch() const { return from_.batches_per_epoch(); }
    index_t samples_per_epoch() const { return from_.samples_per_epoch(); }
    const loader_config& config() const { return from_.config(); }
    shape batch_shape() const { return from_.batch_shape(); }
    /// The loader's. On a GPU waiting in prepare() counts as a stall, though the GPU computes meanwhile, and the
    /// prefetched batch counts as delivered.
    loader_stats stats() const { return from_.stats(); }
    void reset_stats() { from_.reset_stats(); }

private:
    static constexpr bool ahead = CopiesBeside<D>;

    static loader_config in_host_memory(loader_config c, bool as_pixels) {
        c.pixels = ahead && as_pixels;
        if constexpr (ahead)
            if (!c.memory) c.memory = &D::host_memory();
        return c;
    }

    loader<Data> from_;
    typename detail::arriving_on<D>::type arriving_;
    std::optional<batch> ahead_;  // the next batch, if fetched_: nothing at the end of an epoch
    std::exception_ptr failure_;  // instead
    cursor before_;               // where that is
    bool fetched_ = false;
};

}  // namespace cairn
