"""One test: a judge, workers as it asks for them, and the pipes between them."""

import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass

from . import sandbox
from .build import CLOCK

JUDGE = sandbox.Limits(600, 3600, 4096, output_kilobytes=4096)
LAST_WORDS = 5  # seconds for the judge, once the workers are gone


@dataclass
class Verdict:
    passed: bool
    message: str
    seconds: float


class Session:
    """Runs a test of `judge`, a program, with `worker`, another."""

    def __init__(self, lab, test, judge, worker, seed, folder, record=None):
        self.lab, self.test, self.judge, self.worker, self.seed, self.folder, self.record = lab, test, judge, worker, seed, folder, record
        seconds = test.seconds or lab.limits.test_seconds
        self.limits = sandbox.Limits(seconds, CLOCK * seconds, lab.limits.test_megabytes, lab.limits.processes, lab.limits.output_kilobytes)
        self.workers, self.open = {}, set()

    def pipe(self):
        ends = os.pipe()
        self.open.update(ends)
        return ends

    def shut(self, *descriptors):
        for descriptor in descriptors:
            self.open.discard(descriptor)
            os.close(descriptor)

    def run(self):
        try:
            with sandbox.Group(self.limits, self.lab.ranks) as group:
                return self.watch(group)
        finally:
            self.shut(*self.open)

    def watch(self, group):
        verdict, self.pipes = bytearray(), []
        control, of_judge = self.pipe(), self.pipe()
        descriptors = [control[1], of_judge[1]]
        for _ in range(self.lab.ranks):
            (worker_in, judge_out), (judge_in, worker_out) = self.pipe(), self.pipe()
            self.pipes.append((worker_in, worker_out))
            descriptors += [judge_in, judge_out]
        environment = {"CAIRN_LAB_SEED": str(self.seed), "CAIRN_LAB_JUDGE": " ".join(map(str, descriptors))}
        if self.record:
            environment["CAIRN_LAB_RECORD"] = str(self.record)
        judge = group.start([self.judge, self.test.name.replace(",", "\\,")], self.folder, JUDGE, descriptors, environment,
                            read=(*sandbox.LIBRARIES, self.judge), write=(self.record,) if self.record else (), confined=not self.record, counted=False)
        self.shut(*descriptors)
        group.listen(of_judge[0], verdict.extend)
        group.listen(control[0], lambda ranks: [self.start(group, rank) for rank in ranks])
        while (judge.popen.poll() is None or group.pending()) and not group.step():
            pass
        ended_by, group.ended_by = group.reached(), None
        if ended_by:  # the judge finds that its workers are gone, and says what they were doing
            for process in self.workers.values():
                process.popen.kill()
            end = time.monotonic() + LAST_WORDS
            while (judge.popen.poll() is None or group.pending()) and time.monotonic() < end:
                group.step()
        for process in self.workers.values():  # one that has closed its pipe ends soon
            if process.popen.poll() is None:
                try:
                    process.popen.wait(0.2)
                except subprocess.TimeoutExpired:
                    pass
        group.drain()
        return self.verdict(bytes(verdict), ended_by, group, judge)

    def start(self, group, rank):
        pipes = self.pipes[rank]
        user = sandbox.private_user(rank + 1)
        self.workers[rank] = group.start([self.worker, *pipes], self.folder, descriptors=pipes, confined=True, user=user,
                                         read=(*sandbox.LIBRARIES, self.worker))
        self.shut(*pipes)

    def verdict(self, words, ended_by, group, judge):
        seconds = time.monotonic() - group.started
        try:
            said = json.loads(words.decode(errors="replace"), strict=False)
        except json.JSONDecodeError:
            said = {"passed": False, "checks": 0, "message": "", "dead": "", "doing": ""}
            if not ended_by:
                said["message"] = f"The judge ended without a verdict: {sandbox.reason(None, judge.popen.returncode or 0, seconds, 0)}\n{judge.text()[-2000:]}"
        if said["passed"] and said["checks"] > 0 and not ended_by:
            return Verdict(True, f"passed, {said['checks']} checks", seconds)
        message = said["message"] or "No check of this test was reached."
        why = self.why(ended_by, said, group)
        if why:
            task = self.lab.tasks.get(self.test.task, self.test.task)
            message = f"Task \"{task}\": {why}\n{message}"
            if said["doing"]:
                message += f"\nThis happened with {said['doing']}."
        return Verdict(False, message + self.printed(message), seconds)

    def why(self, ended_by, said, group):
        """What ended the workers that did not reply."""
        if ended_by:
            return sandbox.reason(ended_by, 0, time.monotonic() - group.started, group.megabytes)
        for rank in map(int, said["dead"].split()):
            status = self.workers[rank].popen.returncode
            where = f"rank {rank}: " if len(self.workers) > 1 else ""
            if status is None:
                return f"{where}it closed the pipe to the tests"
            if status == -signal.SIGKILL and self.workers[rank].cpu_seconds > self.limits.cpu_seconds - 0.5:
                status = -signal.SIGXCPU
            return where + (sandbox.reason(None, status, 0, 0) or "the program ended before it replied: does something call exit?")
        return None

    def printed(self, message):
        out = ""
        for rank, process in sorted(self.workers.items()):
            text = "\n".join(line for line in process.text().splitlines() if line not in message)[-1500:].strip()
            if text:
                out += f"\nIt printed{f' on rank {rank}' if len(self.workers) > 1 else ''}:\n{text}"
        return out[:4000]
