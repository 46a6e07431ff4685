"""What this machine has: the GPU, its driver, and which libraries of NVIDIA's programs get."""

import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys


class NoGpu(Exception):
    pass


def by_driver():
    """Name and compute capability of the first GPU, without nvidia-smi: asked of the driver itself."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise NoGpu(f"no nvidia-smi, and no driver either ({error}): run it on a machine with an NVIDIA GPU") from error
    device, major, minor, name = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256)
    for function, *arguments in (("cuInit", 0), ("cuDeviceGet", ctypes.byref(device), 0), ("cuDeviceGetName", name, 256, device),
                                 ("cuDeviceGetAttribute", ctypes.byref(major), 75, device), ("cuDeviceGetAttribute", ctypes.byref(minor), 76, device)):
        if status := getattr(driver, function)(*arguments):
            raise NoGpu(f"no nvidia-smi, and the driver's {function} ended with {status}: it sees no GPU that this process may use")
    try:
        version = re.search(r"Kernel Module\s+(?:for \S+\s+)?([0-9.]+)", pathlib.Path("/proc/driver/nvidia/version").read_text())[1]
    except (OSError, TypeError):
        version = "unknown"
    return {"gpu": name.value.decode(), "driver": version, "compute": f"{major.value}.{minor.value}", "gpus": 1}


def gpu():
    """gpu, driver, compute (9.0) and the number of gpus. NoGpu says why there is none."""
    try:
        said = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader"], capture_output=True, text=True,
                              timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return by_driver()
    lines = [[word.strip() for word in line.split(",")] for line in said.stdout.splitlines() if line.count(",") == 2]
    if said.returncode or not lines:
        raise NoGpu(f"nvidia-smi ended with {said.returncode} and names no GPU: {(said.stdout + said.stderr).strip()[:500]}")
    count = len(lines)
    if (visible := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        count = min(count, len([name for name in visible.split(",") if name]))
    return {"gpu": lines[0][0], "driver": lines[0][1], "compute": lines[0][2], "gpus": count}


# Each by a function of its own; the argument is where it writes, None for those that return it.
VERSIONS = {"libcudart.so.13": ("cudaRuntimeGetVersion", "int"), "libcublasLt.so.13": ("cublasLtGetVersion", None), "libcusolver.so.12": ("cusolverGetVersion", "int"),
            "libcudnn.so.9": ("cudnnGetVersion", None), "libnccl.so.2": ("ncclGetVersion", "int"), "libcuda.so.1": ("cuDriverGetVersion", "int")}


def loaded_by(program, environment):
    """name -> path of each library that a program gets, as ldd says it."""
    said = subprocess.run([program], env={**environment, "LD_TRACE_LOADED_OBJECTS": "1"}, capture_output=True, text=True, timeout=60).stdout
    return dict(re.findall(r"(\S+) => (/\S+)", said))


def ask_libraries(paths):
    """Runs in a process of its own, with the programs' environment: prints version and path of each library, or why it cannot be loaded."""
    found = {}
    for name, (function, how) in VERSIONS.items():
        try:
            ask = getattr(ctypes.CDLL(paths.get(name, name)), function)
            ask.restype, number = (ctypes.c_size_t, None) if how is None else (ctypes.c_int, ctypes.c_int())
            version = ask() if how is None else (ask(ctypes.byref(number)), number.value)[1]
            found[name] = {"version": version, "path": paths.get(name)}
        except (OSError, AttributeError) as error:
            found[name] = {"missing": str(error)}
    print(json.dumps(found))


def libraries(programs, environment):
    """What programs in this environment get: {"libcudnn.so.9": {"version": 91900, "path": ...}}; {"missing": why} where they get none."""
    try:
        paths = {name: path for program in programs if program.exists() for name, path in loaded_by(program, environment).items() if name in VERSIONS}
        code = f"import sys; sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r}); import machine; machine.ask_libraries({paths!r})"
        said = subprocess.run([sys.executable, "-c", code], env={**environment, "PYTHONDONTWRITEBYTECODE": "1"}, capture_output=True, text=True, timeout=120, check=True)
        return json.loads(said.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return {"unknown": f"{error} {getattr(error, 'stderr', '')}".strip()}
