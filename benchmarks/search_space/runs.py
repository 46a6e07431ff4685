"""Trainings of a search. What is done is told by their directories alone:
    record.json says that it is finished    trained
    diverged                                it has diverged: train's message
    states/ has a version                   begun: train --resume
    else                                    not begun; what is there is removed
"""

import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import saved_versions
from measured_runs import cache, default_mpirun, dies_with_parent
from search_space.space import Bad
from training_runs import DIVERGED, is_better


class Runs:
    """`options`: out, train, jobs, threads, ranks; `lock`: an open file, which each training holds open while it lives."""

    def __init__(self, space, options, lock=None):
        self.space, self.options, self.lock = space, options, lock
        self.known = {}

    def directory(self, node):
        return self.options.out / self.space.name(node)

    def result(self, node):
        """Figures of a finished training; {"diverged": …} of one that has diverged; None of others."""
        if node not in self.known:
            found = self.read(node)
            if found is None:
                return None
            self.known[node] = found
        return self.known[node]

    def read(self, node):
        directory = self.directory(node)
        try:
            result = json.loads((directory / "record.json").read_text())["result"]
            if result["finished"] and abs(result["epochs"] - node.epochs) < 1e-6:
                return result
        except (OSError, ValueError, KeyError, TypeError):
            pass
        diverged = directory / "diverged"
        return {"diverged": diverged.read_text()} if diverged.exists() else None

    def value(self, node):
        """Of the figure that trials are compared by, the larger the better; None where it is not trained, -inf where it diverged."""
        result, figure = self.result(node), self.space.figure
        if result is None or "diverged" in result:
            return None if result is None else -math.inf
        if figure not in result:
            raise Bad(f"{self.directory(node)}/record.json has no {figure}; it has {', '.join(key for key in result if key.startswith(('test_', 'train_')))}")
        return result[figure] * (-1 if is_better(figure, 0, 1) else 1)

    def settings(self, node, leave_out=("init",)):
        # One test, at the end of a stage; all a search needs of a run is its last version.
        all_settings = {"train.test_every": 1000000, "state.keep": ["last 1"], **self.space.common, "train.epochs": self.space.epochs, **node.settings}
        return [word for key, value in all_settings.items() if key not in leave_out for word in ("--set", f"{key}={json.dumps(value)}")]

    def launch(self):
        ranks = [*default_mpirun().split(), "-np", str(self.options.ranks)] if self.options.ranks > 1 else []
        return [*ranks, str(self.options.train)]

    def check(self, node):
        """Raises Bad where `train` refuses the settings; trains nothing."""
        command = [str(self.options.train), str(self.space.workload), "--plan", "--ranks", str(self.options.ranks), *self.settings(node, ("init", "data.path")), *self.init(node)]  # --plan reads no data
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise Bad(f"{self.space.file}: of {len(node.path)} stages, with {node.settings}:\n{done.stderr.strip()[-1500:]}\nNothing was trained.")

    @staticmethod
    def init(node):
        init = node.settings.get("init") if len(node.path) == 1 else None
        return ["--init", init] if init else []

    def command(self, node):
        directory = self.directory(node)
        always = ["--epochs", str(node.epochs), "--threads", str(self.options.threads)]
        if saved_versions.by_step(directory / "states"):
            return [*self.launch(), "--resume", str(directory), *always]
        if directory.exists():
            shutil.rmtree(directory)
        start = ["--from", f"{self.directory(node.parent)}@{self.result(node.parent)['steps']}"] if node.parent else self.init(node)
        return [*self.launch(), str(self.space.workload), *start, *self.settings(node), "--out", str(directory), *always]

    def kernels(self, node):
        """The kernels' choices of a first stage, and of the same trained alone: others have other last bits. Later stages have them from its version."""
        copy = self.options.out / f"kernels-{self.space.name(type(node)(node.path))}"
        if not copy.exists():
            copy.mkdir(parents=True)
            for file in cache().glob("*.tsv"):
                shutil.copy(file, copy)
        return copy

    def start(self, node, place):
        """A process that trains it, in the `place`-th share of the cores."""
        environment = {"CAIRN_CEILINGS": "0", **os.environ}
        if not node.parent:
            environment["CAIRN_CACHE"] = str(self.kernels(node))
        cores, each = sorted(os.sched_getaffinity(0)), self.options.ranks * self.options.threads
        mine = cores[place * each:(place + 1) * each] if self.options.jobs > 1 else cores

        def prepare():
            if len(mine) == each:
                os.sched_setaffinity(0, mine)
            dies_with_parent()  # it saves and ends

        output = tempfile.TemporaryFile()
        process = subprocess.Popen(self.command(node), stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment,
                                   preexec_fn=prepare, pass_fds=[self.lock.fileno()] if self.lock else ())
        process.output = output
        return process

    def ended(self, node, process):
        """Whether the training is done; Bad where it failed."""
        process.output.seek(0)
        said = process.output.read().decode(errors="replace").strip()[-3000:]
        process.output.close()
        if process.returncode == 0 and self.result(node):
            return
        if process.returncode == 1 and DIVERGED.search(said):
            new = self.directory(node) / "diverged.new"
            new.write_text(said)
            new.rename(new.with_name("diverged"))
            return
        if process.returncode in (130, -signal.SIGTERM):
            raise KeyboardInterrupt
        raise Bad(f"{' '.join(map(str, process.args))}\nended with {process.returncode}:\n{said}")


def versions(directory):
    """[(name, bytes, digest)] of a run's versions."""
    return [(version.name, *saved_versions.manifest(version)[:2]) for version in saved_versions.by_step(pathlib.Path(directory) / "states").values()]
