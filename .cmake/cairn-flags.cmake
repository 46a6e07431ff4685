# Flags of this repository's own programs and tests, never exported: warnings, the instruction set of this machine,
# sanitizers, and the libraries that only programs use.

include(CheckCXXCompilerFlag)
include(CheckCXXSourceCompiles)

add_library(cairn_flags INTERFACE)
target_compile_features(cairn_flags INTERFACE cxx_std_20)
# Two thirds of the time in which clang compiles `train` go into a pass over OpenMP's calls that makes nothing faster.
check_cxx_compiler_flag("-Xclang -mllvm -Xclang -openmp-opt-disable" CAIRN_CLANG_OPENMP_OPT)  # by -Xclang, since ccache drops -mllvm's argument
if(CAIRN_CLANG_OPENMP_OPT AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    target_compile_options(cairn_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -mllvm -Xclang -openmp-opt-disable>")
endif()
# Aggregates with defaults are named by designators in part (config{.rate = 0.1}): no warning about the rest.
target_compile_options(cairn_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wnon-virtual-dtor -Wconversion -Wno-missing-field-initializers
    $<$<NOT:$<BOOL:$<TARGET_PROPERTY:UNITY_BUILD>>>:-Wshadow>  # in unity builds names of one file hide those of others
    $<$<CXX_COMPILER_ID:Clang>:-Wno-pass-failed>  # no remark where an omp simd loop is not vectorised at -O1
    # GCC 12 warns wrongly about "text" + std::string (its bug 105651).
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)

if(CAIRN_NATIVE)
    check_cxx_compiler_flag(-march=native CAIRN_ACCEPTS_MARCH_NATIVE)
    if(CAIRN_ACCEPTS_MARCH_NATIVE)
        target_compile_options(cairn_flags INTERFACE -march=native)
        # Compilers stop at 256-bit vectors on AVX-512 machines unless told; kernels here gain from 512.
        set(CMAKE_REQUIRED_FLAGS -march=native)
        check_cxx_source_compiles("#ifndef __AVX512F__\n#error\n#endif\nint main() {}" CAIRN_MACHINE_HAS_AVX512)
        unset(CMAKE_REQUIRED_FLAGS)
        if(CAIRN_MACHINE_HAS_AVX512)
            target_compile_options(cairn_flags INTERFACE -mprefer-vector-width=512)
        endif()
    else()
        message(STATUS "Cairn: the compiler has no -march=native: programs run with the baseline instruction set")
    endif()
endif()

add_library(cairn_sanitizers INTERFACE)
if(CAIRN_SANITIZE)
    list(JOIN CAIRN_SANITIZE "," sanitizers)
    target_compile_options(cairn_sanitizers INTERFACE
        -fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(cairn_sanitizers INTERFACE -fsanitize=${sanitizers})
endif()

# Programs and tests see everything, and CLI11 besides. Without one of these libraries the programs are left out.
add_library(cairn_trainer INTERFACE)
target_link_libraries(cairn_trainer INTERFACE cairn::train cairn::mpi cairn_flags cairn_sanitizers)
add_library(cairn_programs INTERFACE)
target_link_libraries(cairn_programs INTERFACE cairn_trainer)
if(NOT CAIRN_SANITIZE MATCHES "thread")  # whose tests have no layers
    target_link_libraries(cairn_programs INTERFACE cairn::compiled)
    target_link_libraries(cairn_trainer INTERFACE cairn_compiled_linalg)  # and layers in float; other parts are its own
endif()
foreach(part ${cairn_part_targets})
    target_link_libraries(${part} PRIVATE cairn_flags cairn_sanitizers)
endforeach()
option(CAIRN_UNOPTIMISED_TESTS "For build types without optimisation: compiles with it what tests spend their time in" OFF)
if(CAIRN_UNOPTIMISED_TESTS)  # all tests compute with these
    target_compile_options(cairn_compiled_layers_float PRIVATE -O1)
    target_compile_options(cairn_compiled_layers_double PRIVATE -O1)
endif()
find_package(CLI11 CONFIG QUIET)
set(CAIRN_PROGRAM_LIBRARIES_FOUND FALSE)
if(NOT CLI11_FOUND)
    message(STATUS "Cairn: CLI11 not found (Debian: apt-get install libcli11-dev): programs are left out")
else()
    target_link_libraries(cairn_trainer INTERFACE CLI11::CLI11)
    if(CAIRN_HAS_TOMLPLUSPLUS AND CAIRN_HAS_JSON AND CAIRN_HAS_FMT)
        set(CAIRN_PROGRAM_LIBRARIES_FOUND TRUE)
    else()
        message(STATUS "Cairn: programs are left out, they need toml++, nlohmann-json and fmt")
    endif()
endif()

# The host's sessions, which the program train and a dozen files of its tests would each instantiate, in parts that
# compilers work on side by side. Objects, not archives: a part enters by name what no other file refers to.
if(CAIRN_PROGRAM_LIBRARIES_FOUND)
    set(parts models optimizers compressors data session)
    list(TRANSFORM parts REPLACE "(.+)" "benchmarks/train/compiled_\\1.cpp")
    # In half of the time; steps wait for nothing here: kernels are in the other parts and in layers_float. Those are
    # linked before it, and of a function that several files hold the linker keeps the first.
    set_source_files_properties(benchmarks/train/compiled_session.cpp PROPERTIES COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)
    add_library(cairn_session_float32 OBJECT EXCLUDE_FROM_ALL ${parts})
    add_library(cairn_session_bf16 OBJECT EXCLUDE_FROM_ALL benchmarks/train/compiled_session_bf16.cpp
        benchmarks/train/compiled_models_bf16.cpp)
    add_library(cairn_session INTERFACE)
    target_link_libraries(cairn_session INTERFACE cairn_trainer)
    foreach(precision float32 bf16)
        target_link_libraries(cairn_session_${precision} PRIVATE cairn_trainer)
        target_sources(cairn_session INTERFACE $<TARGET_OBJECTS:cairn_session_${precision}>)
    endforeach()
endif()
