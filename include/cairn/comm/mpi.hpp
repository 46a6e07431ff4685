#pragma once
// Ranks as processes, over any MPI-3.
//   int main(int argc, char** argv) { return cairn::run_mpi(argc, argv, [&](cairn::mpi_communicator& world) { …; return
//   0; }); }
// Waiting polls for 20 µs, then sleeps for growing intervals, so that ranks and threads may share cores. With more
// ranks than cores on this machine it sleeps at once. It does not yield: a thread that yields to a computing one loses
// a whole time slice, 4 ms, whereas a thread that wakes up runs first.
// A rank that exits with an error prints it and ends the whole job; so does mpirun when a rank is killed.

#if CAIRN_HAS_MPI  // defined by the CMake target cairn::mpi; without MPI this header is empty

#include <cairn/comm/communicator.hpp>
#include <cairn/comm/mpi_environment.hpp>
#include <cairn/comm/rank_state.hpp>
#include <cairn/comm/vendor_collectives.hpp>
#include <cairn/core/clock.hpp>
#include <cairn/core/environment.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <memory>
#include <thread>
#include <variant>
#include <vector>

#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <unistd.h>

namespace cairn {

namespace detail {

/// Sleeps for about so long: Linux by itself adds up to 50 µs, which is more than most messages take.
inline void nap(double seconds) {
#ifdef __linux__
    thread_local const int exact = prctl(PR_SET_TIMERSLACK, 1ul, 0ul, 0ul, 0ul);
    static_cast<void>(exact);
#endif
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// As far as mpirun says.
inline bool more_ranks_than_cores() {
    static const bool answer = [] {
        for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_LOCAL_SIZE"})
            if (std::getenv(name))
                return environment_number(name, 1, 1, std::numeric_limits<int>::max(), "mpirun's number of ranks") >
                       static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
        return false;
    }();
    return answer;
}

/// A communicator that is freed with its last owner, and what its rank is doing.
struct mpi_handle : rank_state {
    mpi_handle(MPI_Comm c, bool ours) : comm(c), owned(ours) {
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        MPI_Comm_rank(comm, &rank);
        MPI_Comm_size(comm, &size);
    }
    ~mpi_handle() {
        if (owned && mpi_runs()) MPI_Comm_free(&comm);
    }
    mpi_handle(const mpi_handle&) = delete;
    mpi_handle& operator=(const mpi_handle&) = delete;

    MPI_Comm comm;
    bool owned;

    std::string place() const { return calls.empty() ? "no collective" : text_of(calls.back()); }
};

}  // namespace detail

/// Ranks of an MPI communicator.
class mpi_communicator : private vendor_collectives {
public:
    class request {
    public:
        request() = default;
        request(request&& other) noexcept { *this = std::move(other); }
        request& operator=(request&& other) noexcept {
            cancel();
            piece_ = std::exchange(other.piece_, MPI_REQUEST_NULL);
            more_ = std::exchange(other.more_, {});
            last_bytes_ = other.last_bytes_;
            bytes_ = other.bytes_;
            peer_ = other.peer_;
            tag_ = other.tag_;
            sends_ = other.sends_;
            handle_ = std::move(other.handle_);
            return *this;
        }
        ~request() { cancel(); }

        void wait() {
            if (test()) return;
            const double begin = now();
            const double spin = detail::more_ranks_than_cores() ? 0 : 20e-6;
            while (!test()) {
                const double waited = now() - begin;
                if (handle_->limit > 0 && waited > handle_->limit)
                    fail("rank ", handle_->rank, " of ", handle_->size, " waited ", handle_->limit, " s in ",
                         handle_->place(), " for its ", text(),
                         "; is that rank alive, and does it call the same? (CAIRN_COMM_TIMEOUT sets the limit in "
                         "seconds)");
                if (waited >= spin) detail::nap(std::clamp(waited / 8, 1e-6, 200e-6));
            }
        }

        bool test() {
            while (piece_ != MPI_REQUEST_NULL) {
                int done = 0;
                MPI_Status status;
                const int code = MPI_Test(&piece_, &done, &status);
                if (code != MPI_SUCCESS) {
                    piece_ = MPI_REQUEST_NULL;
                    more_.clear();
                    detail::check_mpi(code, concat("rank ", handle_->rank, " of ", handle_->size, ", ", text()));
                }
                if (!done) return false;
                piece_ = MPI_REQUEST_NULL;
                if (!more_.empty()) {
                    piece_ = more_.front();
                    more_.erase(more_.begin());
                } else if (!sends_ && peer_ >= 0) {
                    check_length(status);
                }
            }
            return true;
        }

    private:
        friend class mpi_communicator;

        std::string text() const {
            if (peer_ < 0) return concat("part of a native collective of ", bytes_, " bytes");
            return detail::text_of_transfer(sends_, bytes_, peer_, tag_);
        }
        void check_length(const MPI_Status& status) const {
            int got = 0;
            MPI_Get_count(&status, MPI_BYTE, &got);
            if (got != last_bytes_)
                fail("rank ", handle_->rank, " of ", handle_->size, ": ", text(), ": another number came (", got,
                     " bytes in the last piece instead of ", last_bytes_, ')');
        }
        void add(MPI_Request piece) {
            if (piece_ == MPI_REQUEST_NULL)
                piece_ = piece;
            else
                more_.push_back(piece);
        }
        void cancel() {
            if (piece_ == MPI_REQUEST_NULL || !detail::mpi_runs()) return;
            more_.insert(more_.begin(), std::exchange(piece_, MPI_REQUEST_NULL));
            for (MPI_Request& piece : more_) {
                if (!sends_ && peer_ >= 0) MPI_Cancel(&piece);
                MPI_Request_free(&piece);
            }
            more_.clear();
        }

        MPI_Request piece_ = MPI_REQUEST_NULL;  // messages above 1 GiB have more
        std::vector<MPI_Request> more_;
        int last_bytes_ = 0;
        std::size_t bytes_ = 0;
        int peer_ = -1, tag_ = 0;
        bool sends_ = false;
        std::shared_ptr<detail::mpi_handle> handle_;
    };

    /// All ranks of the job. MPI must have been started.
    mpi_communicator() : mpi_communicator(std::make_shared<detail::mpi_handle>(MPI_COMM_WORLD, false)) {}

    int rank() const { return handle_->rank; }
    int size() const { return handle_->size; }
    std::string name() const { return "mpi"; }
    /// For calls of MPI that are missing here. Valid as long as this communicator.
    MPI_Comm handle() const { return handle_->comm; }

    [[nodiscard]] request isend(std::span<const std::byte> data, int peer, int tag) {
        return start(const_cast<std::byte*>(data.data()), data.size(), peer, tag, true);
    }
    [[nodiscard]] request irecv(std::span<std::byte> room, int peer, int tag) {
        return start(room.data(), room.size(), peer, tag, false);
    }

    [[nodiscard]] mpi_communicator split(int colour, int key) {
        MPI_Comm part = MPI_COMM_NULL;
        detail::check_mpi(MPI_Comm_split(handle_->comm, colour < 0 ? MPI_UNDEFINED : colour, key, &part), "split");
        if (part == MPI_COMM_NULL) detail::check_mpi(MPI_Comm_dup(MPI_COMM_SELF, &part), "split");
        return mpi_communicator(std::make_shared<detail::mpi_handle>(part, true));
    }

    /// The ranks that share memory with this one.
    [[nodiscard]] mpi_communicator split_node() {
        MPI_Comm node = MPI_COMM_NULL;
        detail::check_mpi(MPI_Comm_split_type(handle_->comm, MPI_COMM_TYPE_SHARED, handle_->rank, MPI_INFO_NULL, &node),
                          "split by node");
        return mpi_communicator(std::make_shared<detail::mpi_handle>(node, true));
    }

    [[nodiscard]] auto enter(const collective_call& call) { return detail::entered_call(handle_, call); }

    /// MPI_Allreduce, started; float, double, int32, int64 and bf16.
    template <class T>
    [[nodiscard]] request vendor_iall_reduce(std::span<T> data, reduction r = reduction::sum) {
        request all;
        all.handle_ = handle_;
        all.bytes_ = data.size_bytes();
        for (std::size_t at = 0; at < data.size(); at += piece_bytes) {
            MPI_Request piece = MPI_REQUEST_NULL;
            const int count = static_cast<int>(std::min(data.size() - at, piece_bytes));
            detail::check_mpi(MPI_Iallreduce(MPI_IN_PLACE, data.data() + at, count, detail::mpi_type<T>(),
                                             detail::mpi_op<T>(r), handle_->comm, &piece),
                              "MPI_Iallreduce");
            all.add(piece);
        }
        return all;
    }

    vendor_collectives* vendor() { return this; }

private:
    void all_reduce(vendor_span all, reduction r) override {
        std::visit([&](auto data) { all_reduce_of(data, r); }, all);
    }
    template <class T>
    void all_reduce_of(std::span<T> data, reduction r) {
        for (std::size_t at = 0; at < data.size(); at += piece_bytes)
            detail::check_mpi(
                MPI_Allreduce(MPI_IN_PLACE, data.data() + at, static_cast<int>(std::min(data.size() - at, piece_bytes)),
                              detail::mpi_type<T>(), detail::mpi_op<T>(r), handle_->comm),
                "MPI_Allreduce");
    }

    void broadcast(std::span<std::byte> bytes, int root) override {
        for (std::size_t at = 0; at < bytes.size(); at += piece_bytes)
            detail::check_mpi(MPI_Bcast(bytes.data() + at, static_cast<int>(std::min(bytes.size() - at, piece_bytes)),
                                        MPI_BYTE, root, handle_->comm),
                              "MPI_Bcast");
    }

    static constexpr std::size_t piece_bytes = std::size_t{1} << 30;  // counts of MPI-3 are ints

    explicit mpi_communicator(std::shared_ptr<detail::mpi_handle> h) : handle_(std::move(h)) {}

    request start(std::byte* data, std::size_t bytes, int peer, int tag, bool sends) {
        detail::require_transfer(rank(), size(), sends, bytes, peer, tag);
        request r;
        r.handle_ = handle_;
        r.bytes_ = bytes;
        r.peer_ = peer;
        r.tag_ = tag;
        r.sends_ = sends;
        std::size_t at = 0;
        do {  // an empty message is one empty piece
            const int count = static_cast<int>(std::min(bytes - at, piece_bytes));
            MPI_Request piece = MPI_REQUEST_NULL;
            const int code = sends ? MPI_Isend(data + at, count, MPI_BYTE, peer, tag, handle_->comm, &piece)
                                   : MPI_Irecv(data + at, count, MPI_BYTE, peer, tag, handle_->comm, &piece);
            if (code != MPI_SUCCESS) detail::check_mpi(code, concat("rank ", rank(), " of ", size(), ", ", r.text()));
            r.add(piece);
            r.last_bytes_ = count;
            at += static_cast<std::size_t>(count);
        } while (at < bytes);
        return r;
    }

    std::shared_ptr<detail::mpi_handle> handle_;
};

static_assert(Communicator<mpi_communicator>);

/// The main function of an MPI program: body(world) → exit status. An exception is printed with rank and host, and ends
/// the job.
template <class Body>
int run_mpi(int& argc, char**& argv, Body&& body) {
    try {
        default_time_limit();  // what is wrong with it is said before MPI starts: each communicator asks for it
    } catch (const error& e) {
        std::fprintf(stderr, "error: %s\n", e.what());
        return 1;
    }
    const mpi_environment environment(&argc, &argv);
    mpi_communicator world;
    std::string why;
    try {
        require(
            world.size() == 1 || environment.threads_may_communicate(),
            "this MPI does not let several threads of a rank communicate (MPI_THREAD_MULTIPLE), and gradients travel "
            "on a thread of their own; use one that was built with it");
        return body(world);
    } catch (const std::exception& e) {
        why = e.what();
    } catch (...) {
        why = "an unknown exception";
    }
    char host[256] = "?";
    gethostname(host, sizeof host - 1);
    if (world.size() == 1)
        std::fprintf(stderr, "error: %s\n", why.c_str());
    else
        std::fprintf(stderr, "rank %d of %d on %s: %s\n", world.rank(), world.size(), host, why.c_str());
    std::fflush(stderr);
    // mpirun ends the job at once, and may lose lines that it has not passed on yet.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (world.size() > 1) MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

}  // namespace cairn

#endif
