"""The last verdict of each scenario in a world, from which docs/compatibility.md is made."""

from __future__ import annotations

import json
import subprocess
import time

from .places import LAB
from .world import World


class Verdicts:
    """A file beside the world's part of the cache, which may be made anew."""

    def __init__(self, world: World) -> None:
        self.path = world.folder.with_suffix(".json")
        try:
            read = json.loads(self.path.read_text())
        except (OSError, ValueError):
            read = {}
        self.last: dict[str, dict] = read if isinstance(read, dict) else {}

    def note(self, scenario: str, verdict: str, why: str = "") -> None:
        """`verdict` is ok, failed or `not judged`, with its reason."""
        self.last[scenario] = {"verdict": verdict, "why": why, "day": time.strftime("%Y-%m-%d"), "commit": commit()}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        written = self.path.with_suffix(".new")
        written.write_text(json.dumps(self.last, indent=1, sort_keys=True) + "\n")
        written.replace(self.path)


def commit() -> str:
    """The checkout's, with a + where it has changes; empty where git cannot say."""
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--abbrev=7", "--exclude=*"],
        cwd=LAB, capture_output=True, text=True, check=False,
    )
    return asked.stdout.strip()
