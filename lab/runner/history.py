"""When each scenario last passed on this machine, whichever checkout ran it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from .places import LAB
from .scenario import Scenario
from .world import World


def place() -> Path:
    """Outside the checkout: a clean one begins where the last one ended."""
    if given := os.environ.get("GRANTWAY_LAB_HISTORY"):
        return Path(given)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "grantway" / "lab-passed.json"


class History:
    """Seconds since 1970, by name."""

    def __init__(self, path: Path, world: World) -> None:
        self.path = path
        self.world = world
        try:
            read = json.loads(path.read_text())
        except (OSError, ValueError):
            read = {}
        self.passed: dict[str, float] = read if isinstance(read, dict) else {}

    def note(self, name: str) -> None:
        """It passed just now. A failed one is not noted, so it comes first next time."""
        self.passed[self.world.key(name)] = time.time()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            written = self.path.with_suffix(".new")
            written.write_text(json.dumps(self.passed, indent=1, sort_keys=True) + "\n")
            written.replace(self.path)
        except OSError as error:
            print(f"lab: {self.path}: {error}; the next run has today's order again", flush=True)

    def order(self, scenarios: list[Scenario]) -> list[Scenario]:
        """Those that passed least lately first; those that never did before all others.

        Among these another one begins at each commit, so that a machine which is always new
        does not always leave out the same ones.
        """
        if not scenarios:
            return []
        start = commits() % len(scenarios)
        turned = scenarios[start:] + scenarios[:start]
        return sorted(turned, key=lambda s: self.passed.get(self.world.key(s.name), 0.0))


def commits() -> int:
    """How many commits the checkout has; 0 where git cannot say."""
    asked = subprocess.run(
        ["git", "rev-list", "--count", "HEAD"], cwd=LAB, capture_output=True, text=True, check=False
    )
    return int(asked.stdout) if asked.returncode == 0 else 0
