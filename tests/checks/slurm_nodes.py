"""A real Slurm of two nodes on this machine, in a folder and on ports of its own: what the checks that need one start and stop."""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

root = pathlib.Path(__file__).resolve().parents[2]
CONFIGURATION = """ClusterName=cairn
SlurmctldHost=localhost
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/sock/munge,cred_expire=5
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SlurmctldPort={port}
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
TmpFS={folder}/tmp/%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
KillWait=5
ReturnToService=2
JobRequeue=1
SlurmdParameters=config_overrides
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={first} CPUs=2 RealMemory=2000
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={second} CPUs=2 RealMemory=2000
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


class Wrong(Exception):
    """What must not happen."""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def is_running(pid):
    """Not, too, of a zombie that nobody reaps."""
    try:
        return not re.search(r"^State:\s+Z", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    except OSError:
        return False


class Slurm:
    """munged, slurmctld and two slurmd in a folder, for as long as the block lasts."""

    def __init__(self, folder):
        self.folder, self.daemons = folder, []
        self.environment = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf", "CAIRN_CEILINGS": "0", "OMP_WAIT_POLICY": "passive", "CAIRN_CACHE": f"{folder}/cache",
                            "OMPI_MCA_btl_tcp_if_include": "lo"}  # both nodes are here

    def __enter__(self):
        for name, mode in (("munge", 0o700), ("sock", 0o755), ("state", 0o755), ("cache", 0o755), *((f"{kind}/n{n}", 0o755) for kind in ("spool", "tmp") for n in (1, 2))):
            (self.folder / name).mkdir(mode=mode, parents=True)
        key = self.folder / "munge" / "key"
        key.touch(mode=0o400)
        key.write_bytes(os.urandom(128))
        port, first, second = free_ports(3)
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(folder=self.folder, port=port, first=first, second=second))
        try:
            self.munge = self.start_munge()
            self.start("slurmctld", "-D", "-i")
            for node in ("n1", "n2"):
                self.start("slurmd", "-D", "-N", node)
            wait_for(lambda: self.said("sinfo", "-h", "-o", "%T %D") == "idle 2", 60, "two idle nodes")
        except BaseException:
            self.__exit__()
            raise
        return self

    def start_munge(self):
        place, socket = self.folder / "munge", self.folder / "sock/munge"
        process = self.start("munged", "-F", "-f", "-S", socket, f"--key-file={place / 'key'}", *(f"--{kind}-file={place / kind}" for kind in ("log", "pid", "seed")))
        wait_for(socket.exists, 20, "munged")
        return process

    def start(self, name, *words):
        with open(self.folder / f"{name}.output", "a") as output:
            self.daemons.append(subprocess.Popen([shutil.which(name, path="/usr/sbin:/usr/bin:/sbin"), *map(str, words)], env=self.environment, stdin=subprocess.DEVNULL,
                                                 stdout=output, stderr=output, start_new_session=True))
        return self.daemons[-1]

    def said(self, *words):
        try:
            return subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=60).stdout.strip()
        except subprocess.TimeoutExpired:
            return ""

    def __exit__(self, *_):
        steps = []
        try:
            if len(self.daemons) > 1:
                self.said("scancel", "--user=root", "--signal=KILL")
                self.said("scancel", "--user=root")
                deadline = time.monotonic() + 20
                while self.said("squeue", "-h") and time.monotonic() < deadline:
                    time.sleep(0.2)
        finally:
            for daemon in reversed(self.daemons):
                steps += children(daemon.pid)
                daemon.terminate()
            for daemon in reversed(self.daemons):
                try:
                    daemon.wait(10)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
            for pid in [*steps, *of_folder(self.folder)]:  # steps outlive their slurmd
                if is_running(pid):
                    os.kill(pid, signal.SIGKILL)

    def submit(self, script, *words, options=(), **environment):
        """The number of the job."""
        result = subprocess.run(["sbatch", "--parsable", *options, f"--output={self.folder}/job-%j.log", str(root / "benchmarks/slurm" / script), *map(str, words)], cwd=root,
                                env={**self.environment, **environment}, capture_output=True, text=True, timeout=60)
        if result.returncode:
            raise Wrong(f"sbatch {script}: {result.stderr}")
        return result.stdout.strip().split(";")[0]

    def job(self, number):
        """What scontrol says of it: JobState, Restarts and so on."""
        return dict(word.split("=", 1) for word in self.said("scontrol", "show", "job", number).split() if "=" in word)

    def wait(self, number, seconds):
        """Until the job has completed. Another end is an error, with its log."""
        def ended():
            states = set(re.findall(r"JobState=(\S+)", self.said("scontrol", "show", "job", number)))
            if states & {"FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}:
                raise Wrong(f"job {number} is {states}:\n{self.logs()}")
            return states == {"COMPLETED"}
        wait_for(ended, seconds, f"the end of job {number}", self.logs)

    def logs(self):
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in sorted(self.folder.glob("*.log"), key=lambda p: p.stat().st_mtime)[-5:])


def children(pid):
    """Processes that it started, and theirs."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in task.read_text().split():
                found += [int(child), *children(int(child))]
        except OSError:
            continue
    return found


def of_folder(folder):
    """Processes whose environment names this Slurm, such as steps of a slurmd that has ended."""
    found, mark = [], f"SLURM_CONF={folder}/slurm.conf".encode()
    for place in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if int(place.name) != os.getpid() and mark in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
        except OSError:
            continue
    return [pid for pid in found if is_running(pid)]


def wait_for(condition, seconds, what, context=lambda: ""):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Wrong(f"{what}: not after {seconds} s\n{context()}")
        time.sleep(0.1)


def missing():
    """Why there can be no Slurm here; None where there can."""
    path = "/usr/sbin:/usr/bin:/sbin:/bin"
    names = [name for name in ("munged", "slurmctld", "slurmd", "sbatch", "srun", "mpirun") if not shutil.which(name, path=path)]
    return f"no {', '.join(names)} (apt-get install slurm-wlm munge)" if names else "Slurm is started as root alone" if os.geteuid() else None
