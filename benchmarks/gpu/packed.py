#!/usr/bin/env python3
"""Programs that benchmarks/gpu/pack has bundled: finds the libraries of NVIDIA's that they need, and runs one.

    PACK/launch train WORKLOAD.toml --set train.device=cuda     # a copy of this file, in the pack
    PACK/launch mpirun -np 2 PACK/benchmarks/train ...
    PACK/launch                                                 # says what is found, and what is missing

Looked through, in this order: LD_LIBRARY_PATH; the wheels of this python3, site-packages/nvidia/*/lib; the CUDA Toolkit (CUDA_HOME, that of nvcc,
/usr/local/cuda). The rest of what the programs need lies in PACK/lib. Neither the system nor python3 needs anything installed for it.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

PLACES = {"cairn_gpu_laws": "tests", "gpu_kernels": "benchmarks", "gpu_step": "benchmarks", "train": "benchmarks", "mpirun": "mpi/bin"}
X86_64_V3 = {"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}  # and what came before them


class Unfit(Exception):
    """This pack is none, is broken, or cannot run on this machine: why, and what to do."""


def opened(path, room):
    """The folder of a pack that is one, or that is unpacked into the folder `room`."""
    if path.is_file():
        try:
            with tarfile.open(path) as archive:
                archive.extractall(room, filter="data") if hasattr(tarfile, "data_filter") else archive.extractall(room)
        except (OSError, EOFError, tarfile.TarError) as error:
            raise Unfit(f"{path} cannot be unpacked: {error}; make it anew with benchmarks/gpu/pack") from error
        path = pathlib.Path(room)
    if not (path / "pack.json").is_file() and len(inner := [p for p in path.glob("*/pack.json")] if path.is_dir() else []) == 1:
        path = inner[0].parent
    if not (path / "pack.json").is_file():
        raise Unfit(f"{path} is no pack: benchmarks/gpu/pack makes a folder with a pack.json, or an archive of one")
    return path.resolve()


def told_by(pack):
    """What `pack` wrote down of it."""
    try:
        return json.loads((pack / "pack.json").read_text())
    except (OSError, ValueError) as error:
        raise Unfit(f"{pack / 'pack.json'}: {error}; make the pack anew") from error


def folders_of_nvidia():
    """Where libraries of NVIDIA's may lie, in the order in which they are taken."""
    found = [pathlib.Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    for place in sys.path:
        found += sorted(pathlib.Path(place or ".").glob("nvidia/*/lib"))
    toolkits = [pathlib.Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    if nvcc := shutil.which("nvcc"):
        toolkits.append(pathlib.Path(nvcc).resolve().parents[1])
    toolkits.append(pathlib.Path("/usr/local/cuda"))
    for toolkit in toolkits:
        found += [toolkit / "lib64", toolkit / "lib", toolkit / "targets" / "x86_64-linux" / "lib"]
    return list(dict.fromkeys(folder.resolve() for folder in found if folder.is_dir()))


def environment(pack):
    """Of this process, and where the pack's programs find libraries and Open MPI its parts. Unfit: libraries that are nowhere."""
    folders, needed = folders_of_nvidia(), told_by(pack)["outside"]
    missing = [name for name in needed if not any((folder / name).exists() for folder in folders)]
    if missing:
        raise Unfit(f"{', '.join(missing)}: in none of\n  " + "\n  ".join(map(str, folders or ["(no folder of NVIDIA's at all)"])) +
                    f"\nName the folder in LD_LIBRARY_PATH, or run this with the python3 that has PyTorch ({sys.executable} is used now)")
    used = [folder for folder in folders if any(folder.glob("lib*.so*"))]
    mpi = pack / "mpi"
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, [pack / "lib", *used])), "OPAL_PREFIX": str(mpi), "OPAL_BINDIR": str(mpi / "bin"),
            "OPAL_LIBDIR": str(mpi / "lib"), "OPAL_PKGLIBDIR": str(mpi / "lib" / "openmpi3"), "OPAL_DATADIR": str(mpi / "share"),
            "OPAL_PKGDATADIR": str(mpi / "share" / "openmpi"), "OPAL_SYSCONFDIR": str(mpi / "etc"), "PMIX_PKGLIBDIR": str(mpi / "lib" / "pmix"),
            "PATH": f"{mpi / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}"}


def program(pack, name):
    path = pack / PLACES.get(name, "benchmarks") / name
    if not path.is_file():
        raise Unfit(f"{name} is not in the pack {pack}; there are {', '.join(n for n in PLACES if (pack / PLACES[n] / n).is_file())}")
    return path


def check(pack):
    """Unfit where the processor, the system's libraries or NVIDIA's are not what the programs need. Returns the environment to run them in."""
    told = told_by(pack)
    if told["host"] == "x86-64-v3":
        flags = set(re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)[1].split())
        if lacks := X86_64_V3 - flags:
            raise Unfit(f"the pack is for processors with {', '.join(sorted(lacks))}, which this one lacks: pack --host x86-64")
    there = environment(pack)
    for name in PLACES:
        path = pack / PLACES[name] / name
        if not path.exists():
            continue
        try:  # what ldd does, which not every machine has
            result = subprocess.run([path], env={**there, "LD_TRACE_LOADED_OBJECTS": "1"}, capture_output=True, text=True, timeout=60)
        except OSError as error:
            raise Unfit(f"{path} cannot be started: {error}") from error
        lines = [line.strip() for line in (result.stdout + result.stderr).splitlines()]
        if wrong := [line for line in lines if "not found" in line] or (lines if result.returncode else []):
            raise Unfit(f"{name} of the pack cannot be loaded here (made with {told['made_with']}):\n  " + "\n  ".join(wrong[:10]))
    return there


def main():
    pack = pathlib.Path(__file__).resolve().parent
    try:
        if not (pack / "pack.json").exists():
            raise Unfit(f"{pack} is no pack: this file is for the copy of it that lies in one, as launch")
        there = check(pack)
        if len(sys.argv) < 2:
            told = told_by(pack)
            print(f"{pack}: programs of Cairn {told['commit']} for GPUs {told['architectures']}; all libraries are found in")
            print("  " + "\n  ".join(there["LD_LIBRARY_PATH"].split(":")))
            return 0
        path = program(pack, sys.argv[1])
    except Unfit as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        return 1
    os.execve(path, [str(path), *sys.argv[2:]], there)


if __name__ == "__main__":
    sys.exit(main())
