#pragma once
// Ranks with a GPU each, over NCCL: the only file that includes <nccl.h>. Buffers are memory of the rank's current GPU.
//   mpi_communicator world;  cuda::choose(local_rank);  nccl_communicator gpus(world);      // world: any communicator, to agree on an id
//   gpus.native_all_reduce(gradients.span());          // its own: the algorithms of comm/collectives add on the host
// NCCL has no tags, and a send that is launched alone waits on the GPU for its receive. Therefore isend and irecv are collected and launched
// together, as one group, by the first wait() or test() after them; tags are checked against the order of messages by nobody.
// A transfer begins when what the calling thread has launched before, into its own stream (cuda::stream()), is done. Waiting polls, with the time limit of communicator.hpp: a peer
// that is gone, or an error of NCCL's, aborts the communicator on this rank and throws; the others find out the same way.

#include <cairn/comm/communicator.hpp>
#include <cairn/comm/reduction.hpp>
#include <cairn/device/cuda/runtime.hpp>

#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
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
        static_assert(std::same_as<T, std::uint8_t>, "NCCL reduces float, double, bfloat16 and whole numbers");
        return ncclUint8;
    }
}

inline ncclRedOp_t nccl_op(reduction r) {
    return r == reduction::sum ? ncclSum : r == reduction::max ? ncclMax : ncclMin;
}

/// A communicator of NCCL's with a stream of its own.
struct nccl_handle {
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
    int rank = 0, size = 1;
    double limit = default_time_limit();
    std::vector<collective_call> calls;       // innermost last
    std::shared_ptr<struct nccl_batch> open;  // transfers that nobody has waited for yet

    nccl_handle() = default;
    nccl_handle(const nccl_handle&) = delete;
    ~nccl_handle() {
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

    std::string place() const {
        return calls.empty() ? std::string("no collective")
                             : concat(calls.back().name, " of ", calls.back().count, ' ', calls.back().type);
    }

    /// Aborts, so that nothing of this communicator stays on the GPU, and throws.
    template <class... What>
    [[noreturn]] void give_up(const What&... what) {
        if (comm) ncclCommAbort(std::exchange(comm, nullptr));
        fail("NCCL: rank ", rank, " of ", size, ": ", what..., "; the communicator is aborted");
    }

    void require_alive() const {
        require(comm != nullptr, "NCCL: rank ", rank, " of ", size, ": the communicator was aborted");
    }

    /// Polls until done() says so.
    template <class Done>
    void poll(Done&& done, const std::string& what) {
        const auto begin = std::chrono::steady_clock::now();
        while (!done()) {
            ncclResult_t state = ncclSuccess;
            if (comm && ncclCommGetAsyncError(comm, &state) == ncclSuccess && state != ncclSuccess &&
                state != ncclInProgress)
                give_up(what, " in ", place(), ": ", ncclGetErrorString(state), " (", ncclGetLastError(comm), ')');
            const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
            if (limit > 0 && waited.count() > limit)
                give_up(what, " in ", place(), " has taken ", limit,
                        " s: is another rank gone? (CAIRN_COMM_TIMEOUT sets the limit)");
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
            give_up(what, " in ", place(), ": ", ncclGetErrorString(result), " (", ncclGetLastError(comm), ')');
        }
    }
};

// In this order: asking whether a class is a communicator asks for its constructors, this one included.
template <class C, class Self>
concept OtherCommunicator = !std::same_as<C, Self> && Communicator<C>;

/// Transfers that are launched together.
struct nccl_batch {
    struct transfer {
        bool sends;
        std::byte* data;
        std::size_t bytes;
        int peer, tag;
        bool cancelled = false;
    };
    std::vector<transfer> transfers;
    bool launched = false;
    cudaEvent_t done = nullptr;

    nccl_batch() { cairn::check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "making an event"); }
    nccl_batch(const nccl_batch&) = delete;
    ~nccl_batch() { cudaEventDestroy(done); }
};

}  // namespace detail

/// Ranks numbered as those of the communicator that it was made with. Copies share one connection.
class nccl_communicator {
public:
    class request {
    public:
        request() = default;
        request(request&& other) noexcept { *this = std::move(other); }
        request& operator=(request&& other) noexcept {
            cancel();
            owner_ = std::move(other.owner_);
            batch_ = std::move(other.batch_);
            place_ = other.place_;
            return *this;
        }
        ~request() { cancel(); }

        void wait() {
            if (!batch_) return;
            owner_->launch(*batch_);
            owner_->handle_->poll([&] { return finished(); }, "waiting");
            batch_.reset();
        }
        bool test() {
            if (!batch_) return true;
            owner_->launch(*batch_);
            if (!finished()) return false;
            batch_.reset();
            return true;
        }

    private:
        friend class nccl_communicator;
        request(std::shared_ptr<nccl_communicator> owner, std::shared_ptr<detail::nccl_batch> batch, std::size_t place)
            : owner_(std::move(owner)), batch_(std::move(batch)), place_(place) {}

        // One that was never launched will not be: its buffer may be gone.
        void cancel() {
            if (batch_ && !batch_->launched && place_ < batch_->transfers.size())
                batch_->transfers[place_].cancelled = true;
            batch_.reset();
        }

        bool finished() const {
            const cudaError_t state = cudaEventQuery(batch_->done);
            if (state == cudaErrorNotReady) return false;
            cairn::check(state, "waiting for a transfer");
            return true;
        }

        std::shared_ptr<nccl_communicator> owner_;
        std::shared_ptr<detail::nccl_batch> batch_;
        std::size_t place_ = 0;  // in the batch
    };

    /// Collective over `bootstrap`: rank 0's id goes to all, and every rank joins with its current GPU. Throws where ranks share one.
    template <detail::OtherCommunicator<nccl_communicator> C>
    explicit nccl_communicator(C& bootstrap) : handle_(std::make_shared<detail::nccl_handle>()) {
        handle_->rank = bootstrap.rank();
        handle_->size = bootstrap.size();
        constexpr int tag = max_tag - 4;
        ncclUniqueId id{};
        if (rank() == 0) {
            const ncclResult_t made = ncclGetUniqueId(&id);
            require(made == ncclSuccess, "NCCL: no id: ", ncclGetErrorString(made));
            for (int r = 1; r < size(); ++r) send(bootstrap, std::span<const char>(id.internal), r, tag);
        } else {
            receive(bootstrap, std::span<char>(id.internal), 0, tag);
        }
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        handle_->settle(ncclCommInitRankConfig(&handle_->comm, size(), id, rank(), &config),
                        concat("joining with GPU ", cuda::current()));
        make_stream();
    }

    int rank() const { return handle_->rank; }
    int size() const { return handle_->size; }
    std::string name() const { return "nccl"; }
    static constexpr bool buffers_on_gpu() { return true; }

    request isend(std::span<const std::byte> data, int peer, int tag) {
        return add({true, const_cast<std::byte*>(data.data()), data.size(), peer, tag});
    }
    request irecv(std::span<std::byte> room, int peer, int tag) {
        return add({false, room.data(), room.size(), peer, tag});
    }

    [[nodiscard]] nccl_communicator split(int colour, int key) {
        handle_->require_alive();
        nccl_communicator part(std::make_shared<detail::nccl_handle>());
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        // A rank of no colour is alone: every colour of such ranks is one that nobody else has.
        const int own = colour >= 0 ? colour : (1 << 30) + rank();
        handle_->settle(ncclCommSplit(handle_->comm, own, key, &part.handle_->comm, &config), "splitting");
        part.handle_->settle(ncclInProgress, "splitting");
        check_nccl(ncclCommUserRank(part.handle_->comm, &part.handle_->rank), "asking for a rank");
        check_nccl(ncclCommCount(part.handle_->comm, &part.handle_->size), "asking for a size");
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

    // NCCL's own collectives, waited for; meaning as in comm/mpi.hpp.

    template <class T>
    void native_all_reduce(std::span<T> data, reduction r = reduction::sum) {
        run("all-reduce", [&] {
            return ncclAllReduce(data.data(), data.data(), data.size(), detail::nccl_type<T>(), detail::nccl_op(r),
                                 handle_->comm, handle_->stream);
        });
    }
    template <class T>
    void native_broadcast(std::span<T> data, int root) {
        run("broadcast", [&] {
            return ncclBroadcast(data.data(), data.data(), data.size_bytes(), ncclUint8, root, handle_->comm,
                                 handle_->stream);
        });
    }
    template <class T>
    void native_reduce_scatter(std::span<const T> data, std::span<T> mine, reduction r = reduction::sum) {
        check_blocks("reduce-scatter", data.size(), mine.size());
        run("reduce-scatter", [&] {
            return ncclReduceScatter(data.data(), mine.data(), mine.size(), detail::nccl_type<T>(), detail::nccl_op(r),
                                     handle_->comm, handle_->stream);
        });
    }
    template <class T>
    void native_all_gather(std::span<const T> mine, std::span<T> all) {
        check_blocks("all-gather", all.size(), mine.size());
        run("all-gather", [&] {
            return ncclAllGather(mine.data(), all.data(), mine.size_bytes(), ncclUint8, handle_->comm, handle_->stream);
        });
    }
    template <class T>
    void native_all_to_all(std::span<const T> out, std::span<T> in) {
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

private:
    explicit nccl_communicator(std::shared_ptr<detail::nccl_handle> h) : handle_(std::move(h)) {}

    static void check_nccl(ncclResult_t result, const char* what) {
        require(result == ncclSuccess, "NCCL: ", what, ": ", ncclGetErrorString(result));
    }

    void make_stream() {
        cairn::check(cudaStreamCreateWithFlags(&handle_->stream, cudaStreamNonBlocking), "making a stream");
    }

    void check_blocks(const char* what, std::size_t all, std::size_t one) const {
        require(all == one * static_cast<std::size_t>(size()), "rank ", rank(), " of ", size(), ": native ", what, ": ",
                all, " elements are not ", size(), " blocks of ", one);
    }

    request add(const detail::nccl_batch::transfer& t) {
        require(t.peer >= 0 && t.peer < size(), "rank ", rank(), " of ", size(), ": there is no rank ", t.peer, " (",
                t.bytes, " bytes, tag ", t.tag, ')');
        handle_->require_alive();
        auto& open = handle_->open;
        if (!open || open->launched) open = std::make_shared<detail::nccl_batch>();
        open->transfers.push_back(t);
        return {std::make_shared<nccl_communicator>(*this), open, open->transfers.size() - 1};
    }

    // After what the calling thread has launched.
    void begin_after_compute(detail::nccl_batch& batch) {
        cairn::check(cudaEventRecord(batch.done, cuda::stream()), "recording an event");
        cairn::check(cudaStreamWaitEvent(handle_->stream, batch.done, 0), "waiting for an event");
    }
    void end(detail::nccl_batch& batch) {
        cairn::check(cudaEventRecord(batch.done, handle_->stream), "recording an event");
        batch.launched = true;
    }

    void launch(detail::nccl_batch& batch) {
        if (batch.launched) return;
        handle_->require_alive();
        begin_after_compute(batch);
        ncclResult_t result = ncclGroupStart();
        for (const auto& t : batch.transfers)
            if (!t.cancelled && (result == ncclSuccess || result == ncclInProgress))
                result = t.sends ? ncclSend(t.data, t.bytes, ncclUint8, t.peer, handle_->comm, handle_->stream)
                                 : ncclRecv(t.data, t.bytes, ncclUint8, t.peer, handle_->comm, handle_->stream);
        const ncclResult_t ended = ncclGroupEnd();  // also after a failure, or this thread launches nothing any more
        handle_->settle(result == ncclSuccess || result == ncclInProgress ? ended : result, "messages");
        end(batch);
    }

    template <class Call>
    void run(const char* what, Call&& call) {
        handle_->require_alive();
        auto batch = std::make_shared<detail::nccl_batch>();
        begin_after_compute(*batch);
        handle_->settle(call(), what);
        end(*batch);
        request(std::make_shared<nccl_communicator>(*this), std::move(batch), 0).wait();
    }

    std::shared_ptr<detail::nccl_handle> handle_;
};

static_assert(Communicator<nccl_communicator>);

}  // namespace cairn
