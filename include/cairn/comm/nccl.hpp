#pragma once
// Ranks with a GPU each, over NCCL. Buffers are memory of the rank's current GPU.
//   mpi_communicator world;  cuda::choose(local_rank);  nccl_communicator gpus(world);      // world: any communicator,
//   to agree on an id
//   all_reduce(gpus, gradients.span());          // NCCL's own: the algorithms of comm/collectives add on the host
// NCCL has no tags, and a send that is launched alone waits on the GPU for its receive. Therefore isend and irecv are
// collected and launched together, as one group, by the first wait(), test(), split or collective after them; between
// two ranks messages arrive in the order in which they were sent, whatever their tags. A request that is dropped before
// is not launched; one that is under way cannot be taken back, and dropping it aborts the communicator.
// A transfer begins when the calling thread's earlier launches, in its own stream (cuda::stream()), are done.
// Waiting polls, with the time limit of communicator.hpp: a lost peer, or an error of NCCL's, aborts the communicator
// on this rank and throws; other ranks fail the same way. Later uses report the reason.
// Tests run all of this over an emulated NCCL (tests/nccl).

#include <cairn/comm/communicator.hpp>
#include <cairn/comm/nccl_connection.hpp>
#include <cairn/comm/vendor_collectives.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace cairn {

namespace detail {

// Not Communicator<C>: that asks for C's constructors, and those of a communicator that holds this one ask for this
// one's.
template <class C, class Self>
concept OtherCommunicator = !std::same_as<C, Self> && requires(C & c, std::span<std::byte> room) {
    { c.rank() } -> std::same_as<int>;
    c.irecv(room, 0, 0).wait();
};

}  // namespace detail

/// Ranks numbered as those of the communicator that it was made with. Copies share one connection. Destroying the last
/// copy is collective, as NCCL's ncclCommFinalize is; during an error this rank aborts, and the others get an error.
class nccl_communicator : private vendor_collectives {
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
        // A rank without colour is alone: it gets a colour of its own.
        constexpr int alone = 1 << 30;
        require(colour < alone, handle_->me(), "split: colour ", colour, " is not below ", alone);
        handle_->launch_open();
        nccl_communicator part(std::make_shared<detail::nccl_handle>());
        part.handle_->rank = rank(), part.handle_->size = size();  // in errors, until it is known
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        // In this order: the part's communicator is there when the whole's is ready again. NCCL 2.28 says ncclSuccess
        // also where the split goes on.
        const ncclResult_t begun =
            ncclCommSplit(handle_->comm, colour >= 0 ? colour : alone + rank(), key, &part.handle_->comm, &config);
        handle_->settle(begun == ncclSuccess ? ncclInProgress : begun, "splitting");
        part.handle_->settle(ncclInProgress, "splitting");
        part.handle_->settle(ncclCommUserRank(part.handle_->comm, &part.handle_->rank), "asking for a rank");
        part.handle_->settle(ncclCommCount(part.handle_->comm, &part.handle_->size), "asking for a size");
        part.make_stream();
        return part;
    }

    [[nodiscard]] auto enter(const collective_call& call) { return detail::entered_call(handle_, call); }

    vendor_collectives* vendor() { return this; }

private:
    // NCCL's own collectives, waited for. Of nothing, nothing is called.

    void all_reduce(vendor_span all, reduction r) override {
        std::visit([&](auto data) { all_reduce_of(data, r); }, all);
    }
    template <class T>
    void all_reduce_of(std::span<T> data, reduction r) {
        run("all-reduce", data, [&] {
            return ncclAllReduce(data.data(), data.data(), data.size(), detail::nccl_type<T>(), detail::nccl_op(r),
                                 handle_->comm, handle_->stream);
        });
    }
    void broadcast(std::span<std::byte> data, int root) override {
        require(root >= 0 && root < size(), handle_->me(), "native broadcast: there is no rank ", root);
        run("broadcast", data, [&] {
            return ncclBroadcast(data.data(), data.data(), data.size(), ncclUint8, root, handle_->comm,
                                 handle_->stream);
        });
    }
    // Parts of any sizes: a broadcast each, in one group, where ncclAllGather does not fit. Bytes that a rank sends:
    // those of NCCL's algorithm, on a ring all parts but one.
    void all_gather(std::span<std::byte> data, const std::vector<range>& parts) override {
        check_parts("all-gather", data.size(), parts);
        run("all-gather", data, [&] {
            if (const std::size_t n = equal_blocks(parts))
                return ncclAllGather(at(data, parts, rank()), at(data, parts, 0), n, ncclUint8, handle_->comm,
                                     handle_->stream);
            return detail::nccl_handle::group(parts.size(), [&](std::size_t r) {
                std::byte* const part = at(data, parts, static_cast<int>(r));
                const auto bytes = static_cast<std::size_t>(parts[r].count);
                if (bytes == 0) return ncclSuccess;
                return ncclBroadcast(part, part, bytes, ncclUint8, static_cast<int>(r), handle_->comm, handle_->stream);
            });
        });
    }
    // The other parts stay as they are. Parts of any sizes: a reduction to each rank, in one group, where
    // ncclReduceScatter does not fit.
    void reduce_scatter(vendor_span all, const std::vector<range>& parts, reduction r) override {
        std::visit([&](auto data) { reduce_scatter_of(data, parts, r); }, all);
    }
    template <class T>
    void reduce_scatter_of(std::span<T> data, const std::vector<range>& parts, reduction r) {
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
        detail::require_transfer(rank(), size(), t.sends, t.bytes, t.peer, t.tag);
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
