#pragma once
// Ranks with a GPU each, over NCCL: the only file that includes <nccl.h>. Buffers are memory of the rank's current GPU.
//   mpi_communicator world;  cuda::choose(local_rank);  nccl_communicator gpus(world);      // world: any communicator,
//   to agree on an id
//   gpus.vendor_all_reduce(gradients.span());          // its own: the algorithms of comm/collectives add on the host
// NCCL has no tags, and a send that is launched alone waits on the GPU for its receive. Therefore isend and irecv are
// collected and launched together, as one group, by the first wait(), test(), split or collective after them; between
// two ranks messages arrive in the order in which they were sent, whatever their tags. A request that is dropped before
// is not launched; one that is under way cannot be taken back, and dropping it aborts the communicator.
// A transfer begins when what the calling thread has launched before, into its own stream (cuda::stream()), is done.
// Waiting polls, with the time limit of communicator.hpp: a peer that is gone, or an error of NCCL's, aborts the
// communicator on this rank and throws; the others find out the same way. Later uses say why.
// Tests run all of this over an emulated NCCL (tests/nccl).

#include <cairn/comm/communicator.hpp>
#include <cairn/comm/reduction.hpp>
#include <cairn/device/cuda/runtime.hpp>

#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace cairn {

namespace detail {

template <class T>
constexpr ncclDataType_t nccl_type() {
    if constexpr (std::same_as<T, float>)
        return ncclFloat32;
    else if constexpr (std::same_as<T, double>)
        return ncclFloat64;
    else if constexpr (std::same_as<T, float16>)
        return ncclFloat16;
    else if constexpr (std::same_as<T, bfloat16>)
        return ncclBfloat16;
    else if constexpr (std::same_as<T, std::int32_t>)
        return ncclInt32;
    else if constexpr (std::same_as<T, std::int64_t>)
        return ncclInt64;
    else if constexpr (std::same_as<T, std::uint32_t>)
        return ncclUint32;
    else if constexpr (std::same_as<T, std::uint64_t>)
        return ncclUint64;
    else if constexpr (std::same_as<T, std::int8_t>)
        return ncclInt8;
    else {
        static_assert(std::same_as<T, std::uint8_t>, "NCCL reduces float, double, bfloat16, float16 and whole numbers");
        return ncclUint8;
    }
}

inline ncclRedOp_t nccl_op(reduction r) {
    return r == reduction::sum ? ncclSum : r == reduction::max ? ncclMax : ncclMin;
}

// Not Communicator<C>: that asks for C's constructors, and those of a communicator that holds this one ask for this
// one's.
template <class C, class Self>
concept OtherCommunicator = !std::same_as<C, Self> && requires(C & c, std::span<std::byte> room) {
    { c.rank() } -> std::same_as<int>;
    c.irecv(room, 0, 0).wait();
};

/// Transfers, or one collective, that are launched together.
struct nccl_batch {
    struct transfer {
        bool sends;
        std::byte* data;
        std::size_t bytes;
        int peer, tag;
        bool cancelled = false;

        std::string text() const {
            return concat(sends ? "send of " : "receive of ", bytes, " bytes ", sends ? "to rank " : "from rank ", peer,
                          ", tag ", tag);
        }
    };
    std::vector<transfer> transfers;
    std::string collective;  // instead
    bool launched = false;
    cudaEvent_t done = nullptr;

    nccl_batch() { cairn::check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "making an event"); }
    nccl_batch(const nccl_batch&) = delete;
    ~nccl_batch() { cudaEventDestroy(done); }

    bool finished() const {
        const cudaError_t state = dealt_with(cudaEventQuery(done));
        if (state == cudaErrorNotReady) return false;
        cairn::check(state, "waiting for a transfer");
        return true;
    }
};

/// A communicator of NCCL's with a stream of its own.
struct nccl_handle {
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    int rank = 0, size = 1, gpu = cuda::current();
    double limit = default_time_limit();
    std::vector<collective_call> calls;  // innermost last
    std::shared_ptr<nccl_batch> open;    // transfers that nobody has waited for yet
    std::string aborted;                 // why
    int unwinding = std::uncaught_exceptions();

    nccl_handle() = default;
    nccl_handle(const nccl_handle&) = delete;
    ~nccl_handle() {
        if (std::uncaught_exceptions() > unwinding) abort("it went with an error");  // the others hear of it
        try {
            if (comm) {
                settle(ncclCommFinalize(comm), "leaving");
                ncclCommDestroy(std::exchange(comm, nullptr));
            }
        } catch (const error& e) {  // aborted: nobody waits for the others here
            std::fprintf(stderr, "%s\n", e.what());
        }
        if (stream) cudaStreamDestroy(stream);
    }

    std::string me() const { return concat("NCCL: rank ", rank, " of ", size, ": "); }
    std::string place() const {
        if (calls.empty()) return "";
        const collective_call& call = calls.back();
        return concat(" in ", call.name, " of ", call.count, ' ', call.type,
                      call.label.empty() ? "" : concat(" (", call.label, ')'));
    }

    /// So that nothing of this communicator stays on the GPU. Only the first reason is kept.
    void abort(const std::string& why) {
        if (!comm) return;
        aborted = why;
        ncclCommAbort(std::exchange(comm, nullptr));
    }
    template <class... What>
    [[noreturn]] void give_up(const What&... what) {
        const std::string why = concat(what...);
        abort(why);
        fail(me(), why, "; the communicator is aborted");
    }

    void require_alive() const { require(comm != nullptr, me(), "the communicator was aborted before: ", aborted); }
    void require_usable() const {
        require_alive();
        require(cuda::current() == gpu, me(), "this thread's GPU is ", cuda::current(), ", the communicator's ", gpu,
                "; call cuda::choose(", gpu, ") in it");
    }

    /// Throws what NCCL has found out since.
    void look(const std::string& what) {
        require_alive();
        ncclResult_t state = ncclSuccess;
        const ncclResult_t asked = ncclCommGetAsyncError(comm, &state);
        if (asked != ncclSuccess) state = asked;
        if (state != ncclSuccess && state != ncclInProgress)
            give_up(what, place(), ": ", ncclGetErrorString(state), " (", ncclGetLastError(comm), ')');
    }

    /// Asks done() until it says so.
    template <class Done>
    void poll(Done&& done, const std::string& what) {
        const auto begin = std::chrono::steady_clock::now();
        for (;;) {
            require_alive();  // what an abort has ended is not done
            if (done()) return;
            look(what);
            const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
            if (limit > 0 && waited.count() > limit)
                give_up(
                    what, place(), " has taken ", limit,
                    " s: is another rank gone, or does it call something else? (CAIRN_COMM_TIMEOUT sets the limit)");
            if (waited.count() > 20e-6)
                std::this_thread::sleep_for(std::chrono::microseconds(waited.count() < 0.01 ? 20 : 500));
        }
    }

    /// Takes the result of a call; communicators do not block, so one that is in progress is polled.
    void settle(ncclResult_t result, const std::string& what) {
        if (result == ncclInProgress) {
            poll(
                [&] {
                    ncclResult_t state = ncclInProgress;
                    return ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclSuccess;
                },
                what);
        } else if (result != ncclSuccess) {
            give_up(what, place(), ": ", ncclGetErrorString(result), " (", ncclGetLastError(comm), ')');
        }
    }

    /// calls_of_nccl() puts work into this communicator's stream, after what the calling thread has launched;
    /// batch.done is when it is done.
    template <class Calls>
    void launch(nccl_batch& batch, const std::string& what, Calls&& calls_of_nccl) {
        require_usable();
        cairn::check(cudaEventRecord(batch.done, cuda::stream()), "recording an event");
        cairn::check(cudaStreamWaitEvent(stream, batch.done, 0), "waiting for an event");
        settle(calls_of_nccl(), what);
        cairn::check(cudaEventRecord(batch.done, stream), "recording an event");
        batch.launched = true;
    }

    /// Calls of NCCL that go on side by side. each() makes one of them.
    template <class Each>
    static ncclResult_t group(std::size_t n, Each&& each) {
        const auto good = [](ncclResult_t r) { return r == ncclSuccess || r == ncclInProgress; };
        ncclResult_t result = ncclGroupStart();
        for (std::size_t i = 0; i < n && good(result); ++i) result = each(i);
        const ncclResult_t ended = ncclGroupEnd();  // also after a failure, or this thread launches nothing any more
        return good(result) ? ended : result;
    }

    void launch_transfers(nccl_batch& batch) {
        if (batch.launched) return;
        launch(batch, "messages", [&] {
            return group(batch.transfers.size(), [&](std::size_t i) {
                const auto& t = batch.transfers[i];
                if (t.cancelled) return ncclSuccess;
                return t.sends ? ncclSend(t.data, t.bytes, ncclUint8, t.peer, comm, stream)
                               : ncclRecv(t.data, t.bytes, ncclUint8, t.peer, comm, stream);
            });
        });
    }

    /// Before anything that all ranks do together: the others may wait for what this rank has begun.
    void launch_open() {
        if (open) launch_transfers(*open);
    }
};

}  // namespace detail

/// Ranks numbered as those of the communicator that it was made with. Copies share one connection. Letting go of the
/// last copy is collective, as NCCL's ncclCommFinalize is; where that is because of an error, this rank aborts, and the
/// others get an error.
class nccl_communicator {
public:
    class request {
    public:
        request() = default;
        request(request&& other) noexcept { *this = std::move(other); }
        request& operator=(request&& other) noexcept {
            cancel();
            handle_ = std::move(other.handle_);
            batch_ = std::move(other.batch_);
            place_ = other.place_;
            return *this;
        }
        ~request() { cancel(); }

        void wait() {
            if (!batch_) return;
            handle_->launch_transfers(*batch_);
            handle_->poll([&] { return batch_->finished(); }, text());
            batch_.reset();
        }
        bool test() {
            if (!batch_) return true;
            handle_->launch_transfers(*batch_);
            handle_->require_alive();
            if (!batch_->finished()) {
                handle_->look(text());
                return false;
            }
            batch_.reset();
            return true;
        }

    private:
        friend class nccl_communicator;
        request(std::shared_ptr<detail::nccl_handle> handle, std::shared_ptr<detail::nccl_batch> batch,
                std::size_t place)
            : handle_(std::move(handle)), batch_(std::move(batch)), place_(place) {}

        std::string text() const {
            return batch_->collective.empty() ? batch_->transfers[place_].text() : batch_->collective;
        }

        // One that was never launched will not be: its buffer may be gone. NCCL takes back none that was, but ends all.
        void cancel() {
            if (batch_ && !batch_->launched && place_ < batch_->transfers.size())
                batch_->transfers[place_].cancelled = true;
            if (batch_ && batch_->launched && detail::dealt_with(cudaEventQuery(batch_->done)) != cudaSuccess)
                handle_->abort(concat("its ", text(), " was dropped while it was under way"));
            batch_.reset();
        }

        std::shared_ptr<detail::nccl_handle> handle_;
        std::shared_ptr<detail::nccl_batch> batch_;
        std::size_t place_ = 0;  // in the batch
    };

    /// Collective over `bootstrap`: rank 0's id goes to all, and every rank joins with its current GPU. Throws on all
    /// ranks where two share one, where one has none, or where NCCL has no id.
    template <detail::OtherCommunicator<nccl_communicator> C>
    explicit nccl_communicator(C& bootstrap) : handle_(std::make_shared<detail::nccl_handle>()) {
        handle_->rank = bootstrap.rank();
        handle_->size = bootstrap.size();
        const ncclUniqueId id = agree_on_id(bootstrap);
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        handle_->settle(ncclCommInitRankConfig(&handle_->comm, size(), id, rank(), &config),
                        concat("joining with GPU ", handle_->gpu));
        make_stream();
    }

    int rank() const { return handle_->rank; }
    int size() const { return handle_->size; }
    std::string name() const { return "nccl"; }
    static constexpr bool buffers_on_gpu() { return true; }

    [[nodiscard]] request isend(std::span<const std::byte> data, int peer, int tag) {
        return add({true, const_cast<std::byte*>(data.data()), data.size(), peer, tag});
    }
    [[nodiscard]] request irecv(std::span<std::byte> room, int peer, int tag) {
        return add({false, room.data(), room.size(), peer, tag});
    }

    /// Colours below 2^30.
    [[nodiscard]] nccl_communicator split(int colour, int key) {
        handle_->require_usable();
        // A rank of no colour is alone: every colour of such ranks is one that nobody else has.
        constexpr int alone = 1 << 30;
        require(colour < alone, handle_->me(), "split: colour ", colour, " is not below ", alone);
        handle_->launch_open();
        nccl_communicator part(std::make_shared<detail::nccl_handle>());
        part.handle_->rank = rank(), part.handle_->size = size();  // in errors, until it is known
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        // In this order: the part's communicator is there when the whole's is ready again.
        handle_->settle(
            ncclCommSplit(handle_->comm, colour >= 0 ? colour : alone + rank(), key, &part.handle_->comm, &config),
            "splitting");
        part.handle_->settle(ncclInProgress, "splitting");
        part.handle_->settle(ncclCommUserRank(part.handle_->comm, &part.handle_->rank), "asking for a rank");
        part.handle_->settle(ncclCommCount(part.handle_->comm, &part.handle_->size), "asking for a size");
        part.make_stream();
        return part;
    }

    [[nodiscard]] auto enter(const collective_call& call) {
        struct leaving {
            explicit leaving(std::shared_ptr<detail::nccl_handle> h) : handle(std::move(h)) {}
            ~leaving() { handle->calls.pop_back(); }
            leaving(const leaving&) = delete;
            std::shared_ptr<detail::nccl_handle> handle;
        };
        handle_->calls.push_back(call);
        return leaving(handle_);
    }

    // NCCL's own collectives, waited for; meaning as in comm/mpi.hpp. Of nothing, nothing is called.

    template <class T>
    void vendor_all_reduce(std::span<T> data, reduction r = reduction::sum) {
        run("all-reduce", data, [&] {
            return ncclAllReduce(data.data(), data.data(), data.size(), detail::nccl_type<T>(), detail::nccl_op(r),
                                 handle_->comm, handle_->stream);
        });
    }
    template <class T>
    void vendor_broadcast(std::span<T> data, int root) {
        require(root >= 0 && root < size(), handle_->me(), "native broadcast: there is no rank ", root);
        run("broadcast", data, [&] {
            return ncclBroadcast(data.data(), data.data(), data.size_bytes(), ncclUint8, root, handle_->comm,
                                 handle_->stream);
        });
    }
    template <class T>
    void vendor_reduce_scatter(std::span<const T> data, std::span<T> mine, reduction r = reduction::sum) {
        check_blocks("reduce-scatter", data.size(), mine.size());
        run("reduce-scatter", data, [&] {
            return ncclReduceScatter(data.data(), mine.data(), mine.size(), detail::nccl_type<T>(), detail::nccl_op(r),
                                     handle_->comm, handle_->stream);
        });
    }
    template <class T>
    void vendor_all_gather(std::span<const T> mine, std::span<T> all) {
        check_blocks("all-gather", all.size(), mine.size());
        run("all-gather", all, [&] {
            return ncclAllGather(mine.data(), all.data(), mine.size_bytes(), ncclUint8, handle_->comm, handle_->stream);
        });
    }
    template <class T>
    void vendor_all_to_all(std::span<const T> out, std::span<T> in) {
        const std::size_t n = in.size() / static_cast<std::size_t>(size());
        check_blocks("all-to-all", out.size(), n);
        check_blocks("all-to-all", in.size(), n);
        std::vector<request> all;
        for (int r = 0; r < size(); ++r) {
            const std::size_t at = static_cast<std::size_t>(r) * n;
            all.push_back(irecv(std::as_writable_bytes(in.subspan(at, n)), r, 0));
            all.push_back(isend(std::as_bytes(out.subspan(at, n)), r, 0));
        }
        for (request& one : all) one.wait();
    }

    /// Part r of `data` comes from rank r. Parts of any sizes, equal on all ranks: a broadcast each, in one group,
    /// where ncclAllGather does not fit. Bytes that a rank sends: those of NCCL's algorithm, on a ring all parts but
    /// one.
    template <class T>
    void vendor_all_gather_v(std::span<T> data, const std::vector<range>& parts) {
        check_parts("all-gather", data.size(), parts);
        run("all-gather", data, [&] {
            if (const std::size_t n = equal_blocks(parts))
                return ncclAllGather(at(data, parts, rank()), at(data, parts, 0), n * sizeof(T), ncclUint8,
                                     handle_->comm, handle_->stream);
            return detail::nccl_handle::group(parts.size(), [&](std::size_t r) {
                T* const part = at(data, parts, static_cast<int>(r));
                const std::size_t bytes = static_cast<std::size_t>(parts[r].count) * sizeof(T);
                if (bytes == 0) return ncclSuccess;
                return ncclBroadcast(part, part, bytes, ncclUint8, static_cast<int>(r), handle_->comm, handle_->stream);
            });
        });
    }

    /// Part `rank` of `data` becomes the reduction over all ranks; the other parts stay as they are. Parts of any
    /// sizes, equal on all ranks: a reduction to each rank, in one group, where ncclReduceScatter does not fit.
    template <class T>
    void vendor_reduce_scatter_v(std::span<T> data, const std::vector<range>& parts, reduction r = reduction::sum) {
        check_parts("reduce-scatter", data.size(), parts);
        run("reduce-scatter", data, [&] {
            if (const std::size_t n = equal_blocks(parts))
                return ncclReduceScatter(at(data, parts, 0), at(data, parts, rank()), n, detail::nccl_type<T>(),
                                         detail::nccl_op(r), handle_->comm, handle_->stream);
            return detail::nccl_handle::group(parts.size(), [&](std::size_t k) {
                T* const part = at(data, parts, static_cast<int>(k));
                if (parts[k].count == 0) return ncclSuccess;
                return ncclReduce(part, part, static_cast<std::size_t>(parts[k].count), detail::nccl_type<T>(),
                                  detail::nccl_op(r), static_cast<int>(k), handle_->comm, handle_->stream);
            });
        });
    }

private:
    explicit nccl_communicator(std::shared_ptr<detail::nccl_handle> h) : handle_(std::move(h)) {}

    // What each rank tells rank 0, and what rank 0 tells all. Texts end with 0.
    struct greeting {
        char gpu[64], trouble[256];
    };
    struct decision {
        ncclUniqueId id;
        char trouble[512];
    };
    template <std::size_t N>
    static void put(char (&into)[N], const std::string& text) {
        std::memset(into, 0, N);
        std::memcpy(into, text.data(), std::min(text.size(), N - 1));
    }

    template <class C>
    ncclUniqueId agree_on_id(C& bootstrap) {
        constexpr int tag = max_tag - 4;
        greeting mine{};
        try {
            put(mine.gpu, cuda::identity());
        } catch (const error& e) {
            put(mine.trouble, e.what());
        }
        decision made{};
        if (rank() == 0) {
            std::vector<greeting> all{mine};
            for (int r = 1; r < size(); ++r) recv(bootstrap, std::span<greeting>(&all.emplace_back(), 1), r, tag);
            decide(all, made);
            for (int r = 1; r < size(); ++r) send(bootstrap, std::span<const decision>(&made, 1), r, tag);
        } else {
            send(bootstrap, std::span<const greeting>(&mine, 1), 0, tag);
            recv(bootstrap, std::span<decision>(&made, 1), 0, tag);
        }
        require(made.trouble[0] == 0, "NCCL: ", made.trouble);
        return made.id;
    }

    static void decide(const std::vector<greeting>& all, decision& made) {
        for (std::size_t r = 0; r < all.size(); ++r) {
            if (all[r].trouble[0]) return put(made.trouble, concat("rank ", r, " has no GPU: ", all[r].trouble));
            for (std::size_t k = 0; k < r; ++k)
                if (std::string_view(all[k].gpu) == all[r].gpu)
                    return put(made.trouble, concat("ranks ", k, " and ", r, " share GPU ", all[r].gpu,
                                                    ", but each needs one of its own; start fewer ranks"));
        }
        const ncclResult_t result = ncclGetUniqueId(&made.id);
        if (result != ncclSuccess)
            put(made.trouble, concat("no id: ", ncclGetErrorString(result), " (", ncclGetLastError(nullptr),
                                     "); NCCL_DEBUG=INFO says more"));
    }

    void make_stream() {
        cairn::check(cudaStreamCreateWithFlags(&handle_->stream, cudaStreamNonBlocking), "making a stream");
    }

    void check_blocks(const char* what, std::size_t all, std::size_t one) const {
        require(all == one * static_cast<std::size_t>(size()), "rank ", rank(), " of ", size(), ": native ", what, ": ",
                all, " elements are not ", size(), " blocks of ", one);
    }
    void check_parts(const char* what, std::size_t n, const std::vector<range>& parts) const {
        require(parts.size() == static_cast<std::size_t>(size()), handle_->me(), "native ", what, ": ", parts.size(),
                " parts for ", size(), " ranks");
        for (const range& part : parts)
            require(part.begin >= 0 && part.count >= 0 && part.end() <= static_cast<index_t>(n), handle_->me(),
                    "native ", what, ": the part from ", part.begin, " to ", part.end(), " is not in ", n, " elements");
    }
    // Elements of each part where all are equal and follow each other; else 0.
    static std::size_t equal_blocks(const std::vector<range>& parts) {
        for (std::size_t r = 0; r < parts.size(); ++r)
            if (parts[r].count != parts[0].count ||
                parts[r].begin != parts[0].begin + static_cast<index_t>(r) * parts[0].count)
                return 0;
        return static_cast<std::size_t>(parts[0].count);
    }
    template <class T>
    static T* at(std::span<T> data, const std::vector<range>& parts, int r) {
        return data.data() + parts[static_cast<std::size_t>(r)].begin;
    }

    request add(const detail::nccl_batch::transfer& t) {
        require(t.peer >= 0 && t.peer < size(), "rank ", rank(), " of ", size(), ": there is no rank ", t.peer, " (",
                t.bytes, " bytes, tag ", t.tag, ')');
        handle_->require_usable();
        auto& open = handle_->open;
        if (!open || open->launched) open = std::make_shared<detail::nccl_batch>();
        open->transfers.push_back(t);
        return {handle_, open, open->transfers.size() - 1};
    }

    template <class T, class Call>
    void run(const char* what, std::span<T> data, Call&& call) {
        handle_->require_usable();
        if (data.empty()) return;
        handle_->launch_open();
        auto batch = std::make_shared<detail::nccl_batch>();
        batch->collective = concat("NCCL's ", what, " of ", data.size_bytes(), " bytes");
        handle_->launch(*batch, batch->collective, call);
        request(handle_, std::move(batch), 0).wait();
    }

    std::shared_ptr<detail::nccl_handle> handle_;
};

static_assert(Communicator<nccl_communicator>);

}  // namespace cairn
