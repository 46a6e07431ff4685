#!/usr/bin/env python3
"""Checks who includes whom: folders against a table, foreign headers against the one place they may enter, and cycles.

    tests/checks/include_directions.py [--graph] [ROOT]

The rules are those of course/decisions and CONTRIBUTING.md: core -> device -> {nn, optim, compress} -> {stash, models},
core -> comm -> parallel -> train. Prints each offence as file:line: what; exits 1 if there is one.
--graph prints the folder graph that was found instead.
"""

import argparse
import pathlib
import re
import sys

# Folder under include/cairn -> folders it may include, besides itself. "*" is everything but the umbrella header.
FOLDERS = {
    "core": [],
    "device": ["core"],
    "nn": ["core", "device"],
    "optim": ["core", "device"],
    "compress": ["core", "device"],
    "stash": ["core", "device", "nn", "compress"],
    "models": ["core", "device", "nn"],
    "comm": ["core"],
    "comm/collectives": ["core", "comm", "compress"],
    "parallel": ["core", "device", "comm", "comm/collectives", "compress"],
    "parallel/pipeline": ["core", "device", "nn", "comm", "comm/collectives", "compress", "parallel"],
    "parallel/tensor": ["core", "device", "nn", "comm", "comm/collectives", "compress", "parallel"],
    "parallel/spatial": ["core", "device", "nn", "comm", "comm/collectives", "compress", "parallel"],
    "admm": ["core", "device", "nn", "comm", "comm/collectives", "compress", "parallel"],
    "data": ["core"],
    "objectives": ["core", "device", "nn", "data"],
    "state": ["core", "comm", "comm/collectives"],
    "perf": ["core", "device"],
    "train": ["*"],
}

# Single headers that hold a concept, a description or plain data, open to folders that may not see their whole folder.
CONCEPTS = {
    "cairn/nn/layer.hpp": ["stash", "parallel", "perf", "train"],
    "cairn/nn/saved_tensors.hpp": ["stash", "parallel", "perf", "train"],
    "cairn/nn/cost.hpp": ["stash", "parallel", "perf", "train"],
    "cairn/optim/optimizer.hpp": ["parallel", "train"],
    "cairn/optim/precondition/kfac_layer.hpp": ["parallel", "train"],
    "cairn/optim/precondition/kfac_assignment.hpp": ["perf"],
    "cairn/data/dataset.hpp": ["train"],
    "cairn/perf/machine_description.hpp": ["comm", "train"],
    "cairn/comm/collectives/sent.hpp": ["perf"],  # bytes of collectives, for perf/data_movement.hpp
    "cairn/comm/collectives/selection.hpp": ["comm"],  # the table of collectives, for comm/simgrid.hpp
    "cairn/device/cuda/runtime.hpp": ["comm"],  # streams, events and errors of the GPU, for comm/nccl_connection.hpp
}

# CPU headers never include CUDA, and no device includes another; but cuda is a grid, and runs its kernels.
DEVICES = ["cpu", "grid", "cuda"]

# Foreign headers, by pattern: where under include/cairn they may be included. Where no file is named, any one file of
# the folder may, but only one: a foreign library has one door.
DOORS = [
    ("MPI", r"mpi(-ext)?\.h", "comm/mpi_environment.hpp"),
    ("NCCL", r"nccl\.h", "comm/nccl_connection.hpp"),
    ("SimGrid", r"simgrid/.*", "comm/simgrid_engine.hpp"),
    ("CUDA", r"cuda(_runtime)?\.h", "device/cuda/driver.hpp"),
    ("CUDA tensor cores", r"(cuda_bf16|mma)\.h", "device/grid/tile_product.hpp"),
    ("cuBLAS", r"cublas.*", "device/cuda/cublaslt.hpp"),
    ("cuDNN", r"cudnn.*", "device/cuda/cudnn.hpp"),
    ("cuSOLVER", r"cusolver.*", "device/cuda/linalg.hpp"),
    ("oneDNN", r"(oneapi/dnnl/.*|dnnl.*)", "device/cpu/onednn.hpp"),
    ("CBLAS", r"(cblas|f77blas|openblas_config|lapacke?)\.h", "device/cpu/"),
    ("xtensor", r"(xtensor|xtl)/.*", "core/xt.hpp"),
    ("xtensor-blas", r"xtensor-blas/.*", "device/cpu/linalg.hpp"),
    ("OpenMP", r"omp\.h", "core/parallel.hpp"),
    ("libjpeg", r"(jpeglib|turbojpeg|jerror)\.h", "data/"),
    ("libpng", r"png\.h", "data/"),
    ("libarchive", r"archive(_entry)?\.h", "data/"),
    ("HDF5", r"(hdf5|hdf5_hl|H5\w+)\.h", "data/"),
    ("FFTW", r"fftw3.*\.h", "data/"),
    ("zlib", r"zlib\.h", "data/"),
    ("zstd", r"zstd.*\.h", ""),
    ("ISA-L", r"isa-l(/.*)?\.h", "state/erasure.hpp"),
    ("xxHash", r"(xxhash|xxh3)\.h", "state/xxh3.hpp"),
    ("toml++", r"toml\+\+/.*", "train/"),
    ("nlohmann-json", r"nlohmann/.*", "train/"),
    ("fmt", r"fmt/.*", "train/"),
]

# A folder's own library rather than a wrapped one: any of the folder's files may include it.
WIDE_DOORS = ["toml++", "nlohmann-json", "fmt"]

STANDARD = set(
    """algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono cinttypes climits
    clocale cmath codecvt compare complex concepts condition_variable coroutine csetjmp csignal cstdarg cstddef cstdint
    cstdio cstdlib cstring ctime cuchar cwchar cwctype deque exception execution filesystem format forward_list fstream
    functional future initializer_list iomanip ios iosfwd iostream istream iterator latch limits list locale map memory
    memory_resource mutex new numbers numeric optional ostream queue random ranges ratio regex scoped_allocator semaphore
    set shared_mutex source_location span sstream stack stdexcept stop_token streambuf string string_view syncstream
    system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray variant vector
    version""".split()
)
SYSTEM = re.compile(r"(sys/\w+|unistd|fcntl|signal|poll|pthread|sched|dlfcn|netdb|arpa/\w+|netinet/\w+|linux/\w+|\w*intrin|"
                    r"cxxabi|fnmatch|stdio)(\.h)?$")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def includes_of(path):
    """(line number, bracket, header) of each #include; comments of the block kind are not expected around them."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if found := INCLUDE.match(line):
            yield number, found[1], found[2]


def folder_of(header):
    """The entry of FOLDERS that a path below cairn/ belongs to, "" for files directly in cairn/."""
    parts = header.split("/")[1:-1]
    for length in range(len(parts), 0, -1):
        if (name := "/".join(parts[:length])) in FOLDERS:
            return name
    return "/".join(parts)


def device_of(header):
    parts = header.split("/")
    return parts[2] if len(parts) > 3 and parts[1] == "device" and parts[2] in DEVICES else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).resolve().parents[2], type=pathlib.Path)
    parser.add_argument("--graph", action="store_true")
    options = parser.parse_args()

    offences = []
    files = sorted((options.root / "include").rglob("*.hpp"))
    if not files:
        sys.exit(f"no headers under {options.root / 'include'}")
    graph, folders, doors = {}, {}, {}

    for path in files:
        header = path.relative_to(options.root / "include").as_posix()
        folder = folder_of(header)
        below = header.split("/", 1)[1]
        umbrella = folder == ""
        if not umbrella and folder not in FOLDERS:
            offences.append(f"include/{header}: folder {folder} has no entry in FOLDERS of {__file__}")
            continue
        graph[header] = []
        for line, bracket, target in includes_of(path):
            at = f"include/{header}:{line}"
            if target.startswith("cairn/"):
                if bracket == '"':
                    offences.append(f'{at}: "{target}" should be <{target}>')
                if not (options.root / "include" / target).exists():
                    offences.append(f"{at}: <{target}> does not exist")
                    continue
                graph[header].append((target, line))
                to = folder_of(target)
                folders.setdefault(folder, set()).add(to)
                if to == "":
                    if not umbrella and target != "cairn/version.hpp":
                        offences.append(f"{at}: the umbrella <{target}> is for users, not for the library")
                elif not umbrella and folder != to and "*" not in FOLDERS[folder] and to not in FOLDERS[folder]:
                    if folder not in CONCEPTS.get(target, []):
                        allowed = ", ".join(FOLDERS[folder]) or "nothing else"
                        offences.append(f"{at}: {folder} may include {allowed}; not {to} (<{target}>)")
                if device_of(header) and device_of(target) and device_of(header) != device_of(target) and (device_of(header), device_of(target)) != ("cuda", "grid"):
                    offences.append(f"{at}: device {device_of(header)} includes device {device_of(target)}")
                continue
            for name, pattern, door in DOORS:
                if re.fullmatch(pattern, target):
                    doors.setdefault(name, {}).setdefault(below, line)
                    if not below.startswith(door) or (door.endswith(".hpp") and below != door):
                        offences.append(f"{at}: <{target}>: {name} enters only in include/cairn/{door}")
                    break
            else:
                if target not in STANDARD and not SYSTEM.match(target):
                    offences.append(f"{at}: <{target}>: neither the standard library nor a known foreign header; "
                                    "library headers use the standard library only (else add it to DOORS)")

    for name, places in doors.items():
        if len(places) > 1 and name not in WIDE_DOORS:
            offences.append(f"{name} enters in {len(places)} places: " + ", ".join(f"include/cairn/{p}" for p in sorted(places)))

    # Cycles: depth-first search, each reported once.
    colour, trail = {}, []

    def visit(header):
        colour[header] = "open"
        trail.append(header)
        for target, line in graph.get(header, []):
            if colour.get(target) == "open":
                offences.append(f"include/{header}:{line}: cycle " + " -> ".join(trail[trail.index(target):] + [target]))
            elif target not in colour and target in graph:
                visit(target)
        trail.pop()
        colour[header] = "done"

    for header in graph:
        if header not in colour:
            visit(header)

    # Outside the library: peers share no code with Cairn; oracles do not include what they check.
    for path in sorted((options.root / "benchmarks" / "peers").rglob("*.[ch]pp")):
        for line, _, target in includes_of(path):
            if target.startswith("cairn/"):
                offences.append(f"{path.relative_to(options.root)}:{line}: a peer shares no code with Cairn (<{target}>)")
    for path in sorted((options.root / "tests" / "oracle").rglob("*.hpp")):
        for line, _, target in includes_of(path):
            if target.startswith("cairn/") and not re.match(r"cairn/(core/|device/\w+\.hpp|data/image\.hpp)", target):
                offences.append(f"{path.relative_to(options.root)}:{line}: an oracle is plain loops, not <{target}>")

    if options.graph:
        for folder in sorted(folders):
            print(f"{folder or '(umbrella)':18} -> {', '.join(sorted(to or '(top)' for to in folders[folder]))}")
    print("\n".join(offences) if offences else f"{len(files)} headers, no offence")
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
