"""One boot: runs its scenarios, and judges a dom0 that no longer answers."""

from __future__ import annotations

import math
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from . import machine
from .results import Mark, Reader, Text
from .scenario import Scenario, by_boot, in_order
from .world import World

START = 600
"""Seconds that hypervisor and dom0 may take to come up."""
LEAST = 600
"""Seconds that every scenario may take at least (dom0/perform): a guard against hanging."""
GRACE = 60
"""Seconds past its limit after which a scenario's dom0 counts as stuck, on an idle machine."""


@dataclass(frozen=True)
class Verdict:
    """How a scenario ended."""

    scenario: Scenario
    outcome: str
    """ok, skipped, or why it failed: failed, timeout, stuck, crashed, QEMU's end."""
    seconds: float


class Boot:
    """A boot under way; `run` gives what it came to."""

    def __init__(
        self, world: World, name: str, scenarios: list[Scenario], words: dict[str, str], logs: Path, until: float
    ) -> None:
        self.name = name
        self.waiting = list(scenarios)
        self.logs = logs
        self.until = until
        """When it is too late to begin another one."""
        self.late = False
        self.slow = 1.0
        self.verdicts: list[Verdict] = []
        self.current: Scenario | None = None
        self.file: Path | None = None
        self.begun = time.monotonic()
        self.limit = START
        plan = ":".join(s.name for s in scenarios)
        logs.mkdir(parents=True, exist_ok=True)
        self.reader = Reader(logs / "results")
        self.qemu = machine.start(world, name, {"plan": plan, **words}, logs)

    def run(self, seen) -> list[Scenario]:
        """Until the machine is off; `seen` is told each verdict and each line.

        Gives the scenarios that this boot did not come to.
        """
        why = "crashed"
        while True:
            over = self.qemu.poll() is not None
            for item in self.reader.read():
                self.take(item, seen)
            if self.late:
                self.qemu.kill()
                self.qemu.wait()
                return self.waiting
            if over:
                if self.qemu.returncode < 0 and why == "crashed":
                    why = f"QEMU was killed by signal {-self.qemu.returncode}"
                break
            if time.monotonic() > self.begun + self.limit:
                why = "stuck"
                self.qemu.kill()
                self.qemu.wait()
                continue
            time.sleep(0.1)
        if self.current is None and not self.verdicts and self.waiting:
            # It never came up: that is the first one's failure, or we would try for ever.
            self.current = self.waiting.pop(0)
        if self.current is not None:
            self.close(why, time.monotonic() - self.begun, seen)
        return self.waiting

    def take(self, item: Mark | Text, seen) -> None:
        """Takes one line of the results."""
        if isinstance(item, Text):
            if self.file is not None:
                with open(self.file, "a") as file:
                    file.write(item.text + "\n")
            elif self.current is not None:
                seen.line(self.current, item.text)
            return
        match item.words:
            case ["ready", _, slow]:
                self.slow = float(slow)
            case ["begin", _] if time.monotonic() > self.until:
                self.late = True
            case ["begin", name]:
                self.current = next(s for s in self.waiting if s.name == name)
                self.waiting.remove(self.current)
                self.expect(max(self.current.timeout * self.slow, LEAST) + GRACE * self.slow)
                (self.folder()).mkdir(exist_ok=True)
            case ["file", name]:
                self.file = self.folder() / name
            case ["end", _, outcome, seconds, _]:
                self.close(outcome, float(seconds), seen)
                self.expect(GRACE * self.slow)
            case ["bye"]:
                self.expect(GRACE * self.slow)

    def folder(self) -> Path:
        """Where the current scenario's files go."""
        return self.logs / (self.current.name if self.current else "none")

    def expect(self, seconds: float) -> None:
        """Something has to happen within this time."""
        self.begun = time.monotonic()
        self.limit = seconds

    def close(self, outcome: str, seconds: float, seen) -> None:
        """Writes the current scenario's verdict down."""
        assert self.current is not None
        verdict = Verdict(self.current, outcome, seconds)
        self.verdicts.append(verdict)
        seen.verdict(verdict, self.logs)
        self.current = None
        self.file = None


def run_all(
    world: World, scenarios: list[Scenario], words: dict[str, str], report, under: str | None = None,
    until: float = math.inf,
) -> None:
    """Runs scenarios in as few boots as may be, all under one kind of boot if so told.

    None begins after `until`, by the clock that never goes back; the scenarios then run in
    the order in which they come.
    """
    shutil.rmtree(world.logs, ignore_errors=True)
    boots = by_boot(scenarios) if until == math.inf else in_order(scenarios)
    count = 0
    while boots:
        name, group = boots.pop(0)
        if time.monotonic() > until:
            for scenario in group:
                report.late(scenario)
            continue
        count += 1
        boot = Boot(world, under or name, group, words, world.logs / f"{count}-{name}", until)
        try:
            left = boot.run(report)
        finally:
            boot.qemu.kill()
        if left:
            boots.insert(0, (name, left))
