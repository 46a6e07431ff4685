"""Processes of the peers in Python: the environment that PyTorch runs best in, ranks joined by Gloo, timed steps."""

import ctypes
import os
import pathlib
import platform
import signal
import statistics
import sys
import tempfile
import time


def restart_tuned(threads, tuned_allocator=True):
    """Sets what libraries read while a process starts, and starts this one once more; as process.hpp beside this file."""
    if os.environ.get("CAIRN_PEER_ENVIRONMENT"):
        return
    os.environ |= {"CAIRN_PEER_ENVIRONMENT": "1", "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads),
                   "GLOO_SOCKET_IFNAME": "lo", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    jemalloc = pathlib.Path(f"/usr/lib/{platform.machine()}-linux-gnu/libjemalloc.so.2")
    if not tuned_allocator:
        pass
    elif jemalloc.exists():
        os.environ["LD_PRELOAD"] = ":".join(filter(None, [str(jemalloc), os.environ.get("LD_PRELOAD")]))
        os.environ["MALLOC_CONF"] = "metadata_thp:auto,dirty_decay_ms:-1,muzzy_decay_ms:-1"
    else:
        os.environ["GLIBC_TUNABLES"] = ("glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776:"
                                        "glibc.malloc.top_pad=67108864:glibc.malloc.hugetlb=1")
    os.execv(sys.executable, [sys.executable, *sys.argv])


def peak_bytes():
    """Of this process, resident."""
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def run_ranks(ranks, threads, work):
    """Forks `ranks` processes, which call work(rank). Returns an exit status; where one rank fails, all end."""
    import torch  # once for all ranks, which are forked before it starts a thread
    import torch.distributed as dist

    def one(rank, meeting):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: none outlives its parent
        torch.set_num_threads(threads)
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
        work(rank)
        dist.barrier()
        dist.destroy_process_group()

    with tempfile.TemporaryDirectory() as folder:
        children = set()
        for rank in range(ranks):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    one(rank, pathlib.Path(folder) / "meeting")
                    status = 0
                except Exception as error:
                    print(f"rank {rank}: {type(error).__name__}: {error}", file=sys.stderr)
                finally:
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(status)
            children.add(child)
        failed = 0
        while children:
            child, status = os.wait()
            children.discard(child)
            if status and not failed:
                failed = 1
                for other in children:
                    os.kill(other, signal.SIGKILL)
        return failed


def timed(step, warm_up, steps):
    """Median seconds of a step, after some untimed ones; ranks, where there are any, begin together. Collective."""
    import torch.distributed as dist

    for _ in range(warm_up):
        step()
    if dist.is_initialized():
        dist.barrier()
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)
