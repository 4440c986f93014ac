"""A world: the hypervisor, the kernel and the tools that scenarios run in (lab/worlds)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from . import settings
from .places import CACHE, WORLDS

DEFAULT = "bookworm"


@dataclass(frozen=True)
class World:
    """One folder of lab/worlds, and its part of the cache."""

    name: str
    arch: str
    """Debian's word for its processors."""
    moves: bool
    """Its packages come and go: one that is gone fails nothing."""
    boot: str | None
    """The file of lab/boots that all its scenarios run under, not their own."""
    scenarios: tuple[str, ...]
    """The ones that it is for; all, where there is none."""

    @property
    def folder(self) -> Path:
        return CACHE / self.name

    @property
    def image(self) -> Path:
        return self.folder / "image"

    @property
    def logs(self) -> Path:
        """Of the last run."""
        return self.folder / "logs"

    def versions(self) -> dict[str, str]:
        """Of the packages that it was made of."""
        path = self.folder / "versions"
        lines = path.read_text().splitlines() if path.exists() else []
        return dict(line.split(" ", 1) for line in lines)

    def key(self, scenario: str) -> str:
        """The name of a scenario in this world, among all worlds."""
        return scenario if self.name == DEFAULT else f"{self.name}/{scenario}"


def named(name: str) -> World:
    """The world of that name; ends the program where there is none."""
    words = settings.read(WORLDS, name, "world", "world")
    scenarios = tuple(words.get("scenarios", "").split())
    return World(name, words["arch"], words.get("moves") == "yes", words.get("boot"), scenarios)
