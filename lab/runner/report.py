"""What a person sees."""

from __future__ import annotations

from pathlib import Path

from .boot import Verdict
from .history import History
from .scenario import Scenario
from .verdicts import Verdicts

TAIL = 12
"""Lines of each log that a failure shows."""
SHOWN = ("trace", "backend", "dom0-dmesg", "guest-*.log", "xl-create-*", "hotplug", "cleanup", "hypervisor")
"""The logs that say most, in this order."""


class Report:
    """Prints verdicts as they come, and counts them."""

    def __init__(
        self, verbose: bool, history: History | None = None, verdicts: Verdicts | None = None
    ) -> None:
        self.verbose = verbose
        self.history = history
        self.verdicts = verdicts
        self.said: dict[str, list[str]] = {}
        self.passed = self.failed = self.skipped = 0

    def line(self, scenario: Scenario, text: str) -> None:
        """A line that the scenario said."""
        self.said.setdefault(scenario.name, []).append(text)
        if self.verbose:
            print(f"    {text}", flush=True)

    def skip(self, scenario: Scenario, why: str) -> None:
        """It could not run here."""
        self.skipped += 1
        print(f"skipped {scenario.name}: {why}", flush=True)

    def note(self, scenario: Scenario, verdict: str, why: str = "") -> None:
        """Keeps what it came to."""
        if self.verdicts is not None:
            self.verdicts.note(scenario.name, verdict, why)

    def not_judged(self, scenario: Scenario, why: str) -> None:
        """It could not be tried, or says nothing of us."""
        self.skipped += 1
        self.note(scenario, "not judged", why)
        print(f"not judged {scenario.name}: {why}", flush=True)

    def late(self, scenario: Scenario) -> None:
        """There was no time for it."""
        self.skipped += 1
        print(f"not run (time) {scenario.name}: make lab SCENARIO={scenario.name}", flush=True)

    def verdict(self, verdict: Verdict, logs: Path) -> None:
        """It ran."""
        name = verdict.scenario.name
        said = self.said.get(name, [])
        folder = logs / name
        folder.mkdir(exist_ok=True)
        (folder / "said").write_text("".join(f"{line}\n" for line in said))
        if verdict.outcome == "skipped":
            why = said[-1].removeprefix("skip: ") if said else "by itself"
            self.not_judged(verdict.scenario, why)
            return
        if verdict.outcome == "ok":
            self.passed += 1
            if self.history is not None:
                self.history.note(name)
            self.note(verdict.scenario, "ok")
            print(f"ok {name} ({verdict.seconds:.0f} s)", flush=True)
            if not self.verbose:
                self.block(said)
            return
        self.failed += 1
        self.note(verdict.scenario, "FAILED", verdict.outcome)
        print(f"FAILED {name} ({verdict.outcome} after {verdict.seconds:.0f} s)", flush=True)
        if not self.verbose:
            self.block(said)
        for pattern in SHOWN:
            for path in sorted(folder.glob(pattern)):
                self.tail(path)
        if verdict.outcome not in ("failed", "timeout"):
            self.tail(logs / "console")
            self.tail(logs / "qemu")
        print(f"  all of it: {folder}", flush=True)

    def tail(self, path: Path) -> None:
        """The end of a log."""
        lines = path.read_text(errors="replace").splitlines() if path.exists() else []
        if lines:
            print(f"  -- {path.name}")
            self.block(lines[-TAIL:])

    @staticmethod
    def block(lines: list[str]) -> None:
        """Lines, set in."""
        for line in lines:
            print(f"    {line[:200]}")

    def total(self) -> str:
        """The last line."""
        text = f"{self.passed} passed, {self.failed} failed"
        return f"{text}, {self.skipped} skipped" if self.skipped else text
