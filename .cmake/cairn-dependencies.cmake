# What Cairn is built on, found the same way for a build of this repository and for a project that calls
# find_package(cairn): this file is installed beside cairn-config.cmake. Because Cairn is headers only, the machine
# that compiles decides what is there; a missing optional library costs one status line and a slower or narrower path.
#
# Each optional library X becomes a target cairn::X that carries CAIRN_HAS_X=1 and what to link, or only CAIRN_HAS_X=0.
# Places off the beaten track: -DX_ROOT=/prefix, the environment variable X_ROOT, or CMAKE_PREFIX_PATH.
# Set CAIRN_WITH_X=OFF to do without a library that is installed.

set(cairn_targets_global_before ${CMAKE_FIND_PACKAGE_TARGETS_GLOBAL})
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL TRUE)

# cairn_optional(<name> <found> <what is missed without it> <Debian package> <libraries>...): the target cairn::<name>
function(cairn_optional target found missed package)
    string(TOUPPER ${target} upper)
    if(DEFINED CAIRN_WITH_${upper} AND NOT CAIRN_WITH_${upper})
        set(found FALSE)
        set(why "switched off by CAIRN_WITH_${upper}")
    else()
        set(why "not found (Debian: apt-get install ${package}; elsewhere: -D${upper}_ROOT=/prefix)")
    endif()
    add_library(cairn::${target} INTERFACE IMPORTED GLOBAL)
    if(found)
        set_target_properties(cairn::${target} PROPERTIES INTERFACE_COMPILE_DEFINITIONS CAIRN_HAS_${upper}=1)
        target_link_libraries(cairn::${target} INTERFACE ${ARGN})
        set(CAIRN_HAS_${upper} TRUE PARENT_SCOPE)
    else()
        set_target_properties(cairn::${target} PROPERTIES INTERFACE_COMPILE_DEFINITIONS CAIRN_HAS_${upper}=0)
        set(CAIRN_HAS_${upper} FALSE PARENT_SCOPE)
        if(NOT cairn_FIND_QUIETLY)
            message(STATUS "Cairn: ${target} ${why}: ${missed}")
        endif()
    endif()
endfunction()

# cairn_find(<NAME> HEADERS <any of> LIBRARIES <any of> [SUFFIXES <folders>]): <NAME>_FOUND and the target
# cairn_<NAME>_library, without the compile checks of CMake's own modules, so that configuring takes a moment.
function(cairn_find name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;LIBRARIES;SUFFIXES")
    set(hints ${${name}_ROOT} $ENV{${name}_ROOT})
    set(suffixes ${arg_SUFFIXES})
    list(TRANSFORM suffixes PREPEND include/ OUTPUT_VARIABLE include_suffixes)
    list(TRANSFORM suffixes PREPEND lib/ OUTPUT_VARIABLE library_suffixes)
    find_path(${name}_INCLUDE_DIR NAMES ${arg_HEADERS} HINTS ${hints} PATH_SUFFIXES include ${include_suffixes} ${suffixes})
    find_library(${name}_LIBRARY NAMES ${arg_LIBRARIES} NAMES_PER_DIR HINTS ${hints}
                 PATH_SUFFIXES lib ${library_suffixes} ${suffixes})
    mark_as_advanced(${name}_INCLUDE_DIR ${name}_LIBRARY)
    if(${name}_INCLUDE_DIR AND ${name}_LIBRARY)
        set(${name}_FOUND TRUE PARENT_SCOPE)
        add_library(cairn_${name}_library UNKNOWN IMPORTED GLOBAL)
        set_target_properties(cairn_${name}_library PROPERTIES
            IMPORTED_LOCATION "${${name}_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${${name}_INCLUDE_DIR}")
    else()
        set(${name}_FOUND FALSE PARENT_SCOPE)
    endif()
endfunction()

# A required library that is missing is one message with the command that installs it.
macro(cairn_missing what package)
    set(cairn_dependency_error "Cairn needs ${what}. Debian: apt-get install ${package}. Elsewhere: give its prefix in CMAKE_PREFIX_PATH.")
    if(CMAKE_FIND_PACKAGE_NAME STREQUAL "cairn")
        set(cairn_FOUND FALSE)
        set(cairn_NOT_FOUND_MESSAGE "${cairn_dependency_error}")
        return()
    endif()
    message(FATAL_ERROR "${cairn_dependency_error}")
endmacro()

# ---------------------------------------------------------------------------------------------------- required
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads QUIET)
if(NOT Threads_FOUND)
    cairn_missing("a threads library" "libc6-dev")
endif()

# xtensor's package files would look for a BLAS of their own and add it; its headers are all that is needed. 0.24 has
# flat folders, 0.26 and later have not. XTENSOR_USE_XSIMD stays unset in every translation unit.
if(NOT TARGET cairn::xtensor)
    find_path(XTENSOR_INCLUDE_DIR NAMES xtensor/xtensor_config.hpp xtensor/core/xtensor_config.hpp
              HINTS ${xtensor_ROOT} ${xtensor_DIR}/../../..)
    find_path(XTL_INCLUDE_DIR NAMES xtl/xtl_config.hpp HINTS ${xtl_ROOT} ${xtensor_ROOT} ${xtensor_DIR}/../../..)
    if(NOT XTENSOR_INCLUDE_DIR OR NOT XTL_INCLUDE_DIR)
        cairn_missing("xtensor" "libxtensor-dev")
    endif()
    find_path(XTENSOR_BLAS_INCLUDE_DIR NAMES xtensor-blas/xlinalg.hpp HINTS ${xtensor-blas_ROOT} ${xtensor-blas_DIR}/../../..)
    if(NOT XTENSOR_BLAS_INCLUDE_DIR)
        cairn_missing("xtensor-blas" "libxtensor-blas-dev")
    endif()
    mark_as_advanced(XTENSOR_INCLUDE_DIR XTL_INCLUDE_DIR XTENSOR_BLAS_INCLUDE_DIR)
    set(cairn_xtensor_includes ${XTENSOR_INCLUDE_DIR} ${XTL_INCLUDE_DIR} ${XTENSOR_BLAS_INCLUDE_DIR})
    list(REMOVE_DUPLICATES cairn_xtensor_includes)
    add_library(cairn::xtensor INTERFACE IMPORTED GLOBAL)
    set_target_properties(cairn::xtensor PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${cairn_xtensor_includes}")
endif()

# Checksums of saved states; its header alone is used.
if(NOT TARGET cairn::xxhash)
    find_path(XXHASH_INCLUDE_DIR NAMES xxhash.h HINTS ${XXHASH_ROOT} $ENV{XXHASH_ROOT} PATH_SUFFIXES include)
    if(NOT XXHASH_INCLUDE_DIR)
        cairn_missing("xxHash" "libxxhash-dev")
    endif()
    mark_as_advanced(XXHASH_INCLUDE_DIR)
    add_library(cairn::xxhash INTERFACE IMPORTED GLOBAL)
    set_target_properties(cairn::xxhash PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${XXHASH_INCLUDE_DIR}")
endif()

# BLAS with the C interface, and LAPACK: OpenBLAS holds all three. Else the reference libraries or what FindLAPACK
# knows.
if(NOT TARGET cairn::blas)
    cairn_find(OPENBLAS HEADERS cblas.h LIBRARIES openblas SUFFIXES openblas openblas-pthread openblas-openmp)
    if(OPENBLAS_FOUND)
        set(cairn_blas_libraries cairn_OPENBLAS_library)
    else()
        cairn_find(CBLAS HEADERS cblas.h LIBRARIES cblas blas flexiblas)
        find_package(LAPACK QUIET)
        if(CBLAS_FOUND AND LAPACK_FOUND)
            set(cairn_blas_libraries cairn_CBLAS_library LAPACK::LAPACK)
        elseif(CBLAS_FOUND OR LAPACK_FOUND)
            cairn_missing("CBLAS (cblas.h) and LAPACK; only one of them was found" "libopenblas-dev")
        else()
            cairn_missing("a BLAS with its C interface and LAPACK" "libopenblas-dev")
        endif()
    endif()
    add_library(cairn::blas INTERFACE IMPORTED GLOBAL)
    set_target_properties(cairn::blas PROPERTIES INTERFACE_COMPILE_DEFINITIONS CAIRN_HAS_CBLAS=1)
    target_link_libraries(cairn::blas INTERFACE ${cairn_blas_libraries})
endif()

# ---------------------------------------------------------------------------------------------------- optional
if(NOT TARGET cairn::onednn)
    find_package(OpenMP QUIET COMPONENTS CXX)
    cairn_optional(openmp "${OpenMP_CXX_FOUND}" "everything runs on one thread" "g++ or libomp-dev" OpenMP::OpenMP_CXX)

    # oneDNN's own package file asks for OpenCL on Debian; its header and library are all that is needed.
    cairn_find(ONEDNN HEADERS dnnl.hpp oneapi/dnnl/dnnl.hpp LIBRARIES dnnl mkldnn)
    set(cairn_onednn_found FALSE)
    if(ONEDNN_FOUND)
        foreach(header oneapi/dnnl/dnnl_version.h dnnl_version.h)
            if(EXISTS "${ONEDNN_INCLUDE_DIR}/${header}")
                file(STRINGS "${ONEDNN_INCLUDE_DIR}/${header}" lines REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH)")
                string(REGEX REPLACE "[^0-9;]" "" numbers "${lines}")
                list(JOIN numbers "." CAIRN_ONEDNN_VERSION)
                break()
            endif()
        endforeach()
        if(CAIRN_ONEDNN_VERSION VERSION_GREATER_EQUAL 2.0 AND CAIRN_ONEDNN_VERSION VERSION_LESS 4.0)
            set(cairn_onednn_found TRUE)
        elseif(NOT cairn_FIND_QUIETLY)
            message(STATUS "Cairn: oneDNN ${CAIRN_ONEDNN_VERSION} in ${ONEDNN_INCLUDE_DIR} is not used; 2.x and 3.x are supported")
        endif()
    endif()
    cairn_optional(onednn "${cairn_onednn_found}" "convolutions and GEMM take the slower built-in kernels" "libdnnl-dev"
                   cairn_ONEDNN_library)

    cairn_find(ISAL HEADERS isa-l/erasure_code.h LIBRARIES isal)
    cairn_optional(isal "${ISAL_FOUND}" "parity of several lost hosts is slower" "libisal-dev" cairn_ISAL_library)
    find_package(ZLIB QUIET)
    cairn_optional(zlib "${ZLIB_FOUND}" "no compressed .gz and .npz files" "zlib1g-dev" ZLIB::ZLIB)
    find_package(JPEG QUIET)
    cairn_optional(jpeg "${JPEG_FOUND}" "no JPEG images" "libjpeg-dev" JPEG::JPEG)
    find_package(PNG QUIET)
    cairn_optional(png "${PNG_FOUND}" "no PNG images" "libpng-dev" PNG::PNG)
    find_package(LibArchive QUIET)
    cairn_optional(archive "${LibArchive_FOUND}" "no images inside .tar archives" "libarchive-dev" LibArchive::LibArchive)
    cairn_find(HDF5 HEADERS hdf5.h LIBRARIES hdf5_serial hdf5 SUFFIXES hdf5/serial)
    cairn_optional(hdf5 "${HDF5_FOUND}" "no HDF5 files" "libhdf5-dev" cairn_HDF5_library)
    cairn_find(FFTW HEADERS fftw3.h LIBRARIES fftw3f)
    cairn_optional(fftw "${FFTW_FOUND}" "no generated cosmology volumes" "libfftw3-dev" cairn_FFTW_library)
    cairn_find(ZSTD HEADERS zstd.h LIBRARIES zstd)
    cairn_optional(zstd "${ZSTD_FOUND}" "no zstd compression" "libzstd-dev" cairn_ZSTD_library)

    cairn_find(SQLITE HEADERS sqlite3.h LIBRARIES sqlite3)
    cairn_optional(sqlite "${SQLITE_FOUND}" "the program states is left out" "libsqlite3-dev" cairn_SQLITE_library)

    # Simulations: linked by those who want them alone. SimGrid's release 4 has another interface.
    cairn_find(SIMGRID HEADERS simgrid/s4u.hpp LIBRARIES simgrid)
    set(cairn_simgrid_found FALSE)
    if(SIMGRID_FOUND)
        file(STRINGS "${SIMGRID_INCLUDE_DIR}/simgrid/version.h" lines REGEX "define SIMGRID_VERSION_(MAJOR|MINOR|PATCH)")
        string(REGEX REPLACE "[^0-9;]" "" numbers "${lines}")
        list(JOIN numbers "." CAIRN_SIMGRID_VERSION)
        if(CAIRN_SIMGRID_VERSION VERSION_GREATER_EQUAL 3.32 AND CAIRN_SIMGRID_VERSION VERSION_LESS 4.0)
            set(cairn_simgrid_found TRUE)
        elseif(NOT cairn_FIND_QUIETLY)
            message(STATUS "Cairn: SimGrid ${CAIRN_SIMGRID_VERSION} in ${SIMGRID_INCLUDE_DIR} is not used; 3.32 and later 3.x are supported")
        endif()
    endif()
    cairn_optional(simgrid "${cairn_simgrid_found}" "no simulations" "libsimgrid-dev" cairn_SIMGRID_library)

    find_package(tomlplusplus CONFIG QUIET)
    cairn_optional(tomlplusplus "${tomlplusplus_FOUND}" "no workload files" "libtomlplusplus-dev" tomlplusplus::tomlplusplus)
    find_package(nlohmann_json CONFIG QUIET)
    cairn_optional(json "${nlohmann_json_FOUND}" "no records of runs" "nlohmann-json3-dev" nlohmann_json::nlohmann_json)
    find_package(fmt CONFIG QUIET)
    cairn_optional(fmt "${fmt_FOUND}" "no progress display" "libfmt-dev" fmt::fmt)
endif()

# MPI is slow to look for, so only where it is wanted: by this repository's own build, or as a component.
if(CAIRN_FIND_MPI AND NOT TARGET cairn::mpi)
    find_package(MPI QUIET COMPONENTS CXX)
    cairn_optional(mpi "${MPI_CXX_FOUND}" "training stays on one node" "libopenmpi-dev openmpi-bin" MPI::MPI_CXX)
endif()

set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ${cairn_targets_global_before})
