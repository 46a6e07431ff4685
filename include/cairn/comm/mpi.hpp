#pragma once
// Ranks as processes, over any MPI-3: the only file that includes <mpi.h>.
//   int main(int argc, char** argv) { return cairn::run_mpi(argc, argv, [&](cairn::mpi_communicator& world) { …; return
//   0; }); }
// Waiting polls for 20 µs, then sleeps for ever longer between looks, so that ranks and threads may share cores; where
// mpirun put more ranks on this machine than it has cores, it sleeps at once. It does not yield: a thread that yields
// to one that computes is away for a whole time slice, 4 ms, where one that wakes up goes first.
// A rank that leaves with an error prints it and ends the whole job; so does mpirun when a rank is killed.

#if CAIRN_HAS_MPI  // defined by the CMake target cairn::mpi; without MPI this header is empty

#include <cairn/comm/communicator.hpp>
#include <cairn/comm/reduction.hpp>
#include <cairn/core/clock.hpp>

#define OMPI_SKIP_MPICXX 1  // the C++ bindings that MPI-3 took out
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>  // whether it takes memory of GPUs
#endif

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <unistd.h>

namespace cairn {

namespace detail {

inline void check_mpi(int code, const std::string& what) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    fail("MPI: ", what, ": ", std::string(text, static_cast<std::size_t>(length)));
}

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
            if (const char* text = std::getenv(name))
                return std::atoi(text) > static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
        return false;
    }();
    return answer;
}

inline bool mpi_runs() {
    int begun = 0, ended = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    return begun && !ended;
}

/// A communicator that is freed with its last owner, and what its rank is doing.
struct mpi_handle {
    mpi_handle(MPI_Comm c, bool ours) : comm(c), owned(ours) {
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        MPI_Comm_rank(comm, &rank);
        MPI_Comm_size(comm, &size);
        limit = default_time_limit();
    }
    ~mpi_handle() {
        if (owned && mpi_runs()) MPI_Comm_free(&comm);
    }
    mpi_handle(const mpi_handle&) = delete;
    mpi_handle& operator=(const mpi_handle&) = delete;

    MPI_Comm comm;
    bool owned;
    int rank = 0, size = 1;
    double limit;                        // seconds a wait may take; 0: for ever
    std::vector<collective_call> calls;  // innermost last; whoever enters keeps the texts

    std::string place() const {
        if (calls.empty()) return "no collective";
        const collective_call& call = calls.back();
        return concat(call.name, " of ", call.count, ' ', call.type,
                      call.label.empty() ? "" : concat(" (", call.label, ')'));
    }
};

template <class T>
MPI_Datatype mpi_type() {
    if constexpr (std::same_as<T, float>)
        return MPI_FLOAT;
    else if constexpr (std::same_as<T, double>)
        return MPI_DOUBLE;
    else if constexpr (std::same_as<T, std::int32_t>)
        return MPI_INT32_T;
    else if constexpr (std::same_as<T, std::int64_t>)
        return MPI_INT64_T;
    else if constexpr (std::same_as<T, bfloat16> || std::same_as<T, float16>)
        return MPI_UINT16_T;
    else
        return MPI_BYTE;
}

/// bfloat16, float16: MPI knows neither.
template <class T, reduction R>
void combine_short(void* in, void* into, int* count, MPI_Datatype*) {
    const auto* a = static_cast<const T*>(in);
    auto* b = static_cast<T*>(into);
    for (int i = 0; i < *count; ++i) {
        const float x = a[i], y = b[i];
        b[i] = R == reduction::sum ? x + y : R == reduction::max ? std::max(x, y) : std::min(x, y);
    }
}

template <class T>
MPI_Op mpi_op(reduction r) {
    if constexpr (std::same_as<T, bfloat16> || std::same_as<T, float16>) {
        static const std::array<MPI_Op, 3> ops = [] {
            std::array<MPI_Op, 3> made{};
            MPI_Op_create(combine_short<T, reduction::sum>, 1, &made[0]);
            MPI_Op_create(combine_short<T, reduction::max>, 1, &made[1]);
            MPI_Op_create(combine_short<T, reduction::min>, 1, &made[2]);
            return made;
        }();
        return ops[static_cast<std::size_t>(r)];
    } else {
        return r == reduction::sum ? MPI_SUM : r == reduction::max ? MPI_MAX : MPI_MIN;
    }
}

}  // namespace detail

/// The MPI library as it names itself: name and version.
inline std::string mpi_library() {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(text, &length);
    const std::string all(text, static_cast<std::size_t>(length));
    return all.substr(0, all.find_first_of(",\n"));
}

/// Why this MPI cannot be handed memory of CUDA devices, naming it; empty: it says that it can
/// (MPIX_Query_cuda_support).
inline std::string why_mpi_takes_no_gpu_memory() {
#if defined(MPIX_CUDA_AWARE_SUPPORT) || (defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40000300)
    if (MPIX_Query_cuda_support() == 1) return "";
    return mpi_library() + " says that it has no CUDA support";
#else
    return mpi_library() + " does not say whether it has CUDA support";
#endif
}

/// Whether mpirun, mpiexec or srun with PMI started this process. (A program that nobody started so need not pay for
/// MPI.)
inline bool started_by_mpi() {
    for (const char* name :
         {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_SIZE"})
        if (std::getenv(name)) return true;
    return false;
}

/// Starts MPI, unless somebody has, and ends it then. Asks for MPI_THREAD_MULTIPLE: gradients travel on a thread of
/// their own.
class mpi_environment {
public:
    mpi_environment(int* argc, char*** argv) {
        int begun = 0;
        MPI_Initialized(&begun);
        if (begun) {
            MPI_Query_thread(&level_);
            return;
        }
        detail::check_mpi(MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &level_), "cannot start");
        ours_ = true;
    }
    ~mpi_environment() {
        if (ours_ && detail::mpi_runs()) MPI_Finalize();
    }
    mpi_environment(const mpi_environment&) = delete;
    mpi_environment& operator=(const mpi_environment&) = delete;

    /// Whether two threads of a rank may communicate at once.
    bool threads_may_communicate() const { return level_ >= MPI_THREAD_MULTIPLE; }

private:
    int level_ = MPI_THREAD_SINGLE;
    bool ours_ = false;
};

/// Ranks of an MPI communicator.
class mpi_communicator {
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
            return concat(sends_ ? "send of " : "receive of ", bytes_, " bytes ", sends_ ? "to rank " : "from rank ",
                          peer_, ", tag ", tag_);
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

    [[nodiscard]] auto enter(const collective_call& call) {
        struct leaving {
            explicit leaving(std::shared_ptr<detail::mpi_handle> h) : handle(std::move(h)) {}
            ~leaving() { handle->calls.pop_back(); }
            leaving(const leaving&) = delete;
            leaving& operator=(const leaving&) = delete;
            std::shared_ptr<detail::mpi_handle> handle;
        };
        handle_->calls.push_back(call);
        return leaving(handle_);
    }

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

    template <class T>
    void vendor_all_reduce(std::span<T> data, reduction r = reduction::sum) {
        for (std::size_t at = 0; at < data.size(); at += piece_bytes)
            detail::check_mpi(
                MPI_Allreduce(MPI_IN_PLACE, data.data() + at, static_cast<int>(std::min(data.size() - at, piece_bytes)),
                              detail::mpi_type<T>(), detail::mpi_op<T>(r), handle_->comm),
                "MPI_Allreduce");
    }

    template <class T>
    void vendor_broadcast(std::span<T> data, int root) {
        const auto bytes = std::as_writable_bytes(data);
        for (std::size_t at = 0; at < bytes.size(); at += piece_bytes)
            detail::check_mpi(MPI_Bcast(bytes.data() + at, static_cast<int>(std::min(bytes.size() - at, piece_bytes)),
                                        MPI_BYTE, root, handle_->comm),
                              "MPI_Bcast");
    }

    // data and all hold one block of equal size for each rank, in the order of ranks. `most`: what MPI gets in one
    // call, elements of a reduction, else bytes; more goes in several.

    /// mine ← this rank's block of the reduction of data: MPI_Reduce_scatter_block.
    template <class T>
    void vendor_reduce_scatter(std::span<const T> data, std::span<T> mine, reduction r = reduction::sum,
                               std::size_t most = piece_bytes) {
        check_blocks("reduce-scatter", data.size(), mine.size());
        if (data.size() <= most)
            return detail::check_mpi(
                MPI_Reduce_scatter_block(data.data(), mine.data(), static_cast<int>(mine.size()), detail::mpi_type<T>(),
                                         detail::mpi_op<T>(r), handle_->comm),
                "MPI_Reduce_scatter_block");
        for (int root = 0; root < size(); ++root)
            for (std::size_t at = 0; at < mine.size(); at += most)
                detail::check_mpi(MPI_Reduce(data.data() + static_cast<std::size_t>(root) * mine.size() + at,
                                             mine.data() + at, static_cast<int>(std::min(mine.size() - at, most)),
                                             detail::mpi_type<T>(), detail::mpi_op<T>(r), root, handle_->comm),
                                  "MPI_Reduce");
    }

    /// all ← the blocks of all ranks: MPI_Allgather.
    template <class T>
    void vendor_all_gather(std::span<const T> mine, std::span<T> all, std::size_t most = piece_bytes) {
        check_blocks("all-gather", all.size(), mine.size());
        const int bytes = static_cast<int>(mine.size_bytes());
        if (all.size_bytes() <= most)
            return detail::check_mpi(
                MPI_Allgather(mine.data(), bytes, MPI_BYTE, all.data(), bytes, MPI_BYTE, handle_->comm),
                "MPI_Allgather");
        const auto block = [&](int r) { return all.subspan(static_cast<std::size_t>(r) * mine.size(), mine.size()); };
        std::copy(mine.begin(), mine.end(), block(rank()).begin());
        for (int root = 0; root < size(); ++root) vendor_broadcast(block(root), root);
    }

    /// Block r of out goes to rank r, block r of in comes from there: MPI_Alltoall.
    template <class T>
    void vendor_all_to_all(std::span<const T> out, std::span<T> in, std::size_t most = piece_bytes) {
        const std::size_t n = in.size() / static_cast<std::size_t>(size());
        check_blocks("all-to-all", out.size(), n);
        check_blocks("all-to-all", in.size(), n);
        const int bytes = static_cast<int>(n * sizeof(T));
        if (in.size_bytes() <= most)
            return detail::check_mpi(
                MPI_Alltoall(out.data(), bytes, MPI_BYTE, in.data(), bytes, MPI_BYTE, handle_->comm), "MPI_Alltoall");
        std::vector<request> all;
        for (int r = 0; r < size(); ++r) {
            const std::size_t at = static_cast<std::size_t>(r) * n;
            all.push_back(cairn::irecv(*this, in.subspan(at, n), r, max_tag));
            all.push_back(cairn::isend(*this, out.subspan(at, n), r, max_tag));
        }
        for (request& one : all) one.wait();
    }

private:
    static constexpr std::size_t piece_bytes = std::size_t{1} << 30;  // counts of MPI-3 are ints

    explicit mpi_communicator(std::shared_ptr<detail::mpi_handle> h) : handle_(std::move(h)) {}

    void check_blocks(const char* what, std::size_t all, std::size_t one) const {
        require(all == one * static_cast<std::size_t>(size()), "rank ", rank(), " of ", size(), ": native ", what, ": ",
                all, " elements are not ", size(), " blocks of ", one);
    }

    request start(std::byte* data, std::size_t bytes, int peer, int tag, bool sends) {
        require(peer >= 0 && peer < size(), "rank ", rank(), " of ", size(), ": there is no rank ", peer, " (",
                sends ? "send" : "receive", " of ", bytes, " bytes, tag ", tag, ')');
        require(tag >= 0 && tag <= max_tag, "rank ", rank(), ": tag ", tag, " is outside 0 to ", max_tag);
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
    if (world.size() > 1) MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

}  // namespace cairn

#endif
