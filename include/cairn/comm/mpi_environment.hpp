#pragma once
// MPI as a library: the only file that includes <mpi.h>. Its start and end, name and abilities, errors, and its names
// for our element types and reductions.

#if CAIRN_HAS_MPI  // defined by the CMake target cairn::mpi; without MPI this header is empty

#include <cairn/comm/reduction.hpp>

#define OMPI_SKIP_MPICXX 1  // the C++ bindings that MPI-3 took out
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#if defined(OPEN_MPI) && __has_include(<mpi-ext.h>)
#include <mpi-ext.h>  // whether it takes memory of GPUs
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace cairn {

namespace detail {

inline void check_mpi(int code, const std::string& what) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    fail("MPI: ", what, ": ", std::string(text, static_cast<std::size_t>(length)));
}

inline bool mpi_runs() {
    int begun = 0, ended = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    return begun && !ended;
}

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

/// Whether mpirun, mpiexec or srun with PMI started this process. (Otherwise a program need not pay for MPI.)
inline bool started_by_mpi() {
    for (const char* name :
         {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "MV2_COMM_WORLD_SIZE"})
        if (std::getenv(name)) return true;
    return false;
}

/// Starts MPI unless it has been started; ends it if it was started here. Asks for MPI_THREAD_MULTIPLE: gradients
/// travel on a thread of their own.
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

}  // namespace cairn

#endif
