"""Scenarios, and what their headers ask for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .places import BENCHES, SCENARIOS

HEADER = re.compile(r"^# ([a-z]+): +(.+?) *$")
KNOWN = {"boot", "timeout", "needs", "last", "order", "named"}


@dataclass(frozen=True)
class Scenario:
    """One script of lab/scenarios."""

    name: str
    summary: str
    """Its first line."""
    boot: str
    """The file of lab/boots that it runs under."""
    timeout: int
    """Seconds, counted in dom0."""
    needs: frozenset[str]
    """`grantway` or `grantway-xen`, where it cannot run without."""
    last: bool
    """It leaves a dom0 that nothing else can use."""
    order: int
    """Where it stands among benches, and among scenarios: the later, the less is missed without it."""
    named: bool
    """It runs only where it is named."""


def read(path: Path) -> Scenario:
    """Reads the comment that a script begins with."""
    words: dict[str, str] = {}
    summary = ""
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        if found := HEADER.match(line):
            key, value = found.groups()
            if key not in KNOWN:
                raise SystemExit(f"{path}: unknown header `{key}`; known: {', '.join(sorted(KNOWN))}")
            words[key] = value
        elif not summary:
            summary = line.lstrip("# ")
    return Scenario(
        name=path.stem,
        summary=summary,
        boot=words.get("boot", "pv"),
        timeout=int(words.get("timeout", "120")),
        needs=frozenset(words.get("needs", "").split()),
        last=words.get("last", "no") == "yes",
        order=int(words.get("order", "0")),
        named=words.get("named", "no") == "yes",
    )


def benches() -> list[Scenario]:
    """What lab/bench measures, in the order of its table."""
    found = [read(path) for path in BENCHES.glob("*.sh")]
    return sorted(found, key=lambda s: s.order)


def every() -> list[Scenario]:
    """All of them, the lab's own proof first, then by their order and name."""
    own = ["boot", "stock-netback"]
    found = [read(path) for path in SCENARIOS.glob("*.sh")]
    return sorted(found, key=lambda s: (s.name not in own, s.order, s.name))


def select(names: list[str], found: list[Scenario]) -> list[Scenario]:
    """Those of these names, in the order of `found`; where there is no name, all that need none."""
    if unknown := set(names) - {s.name for s in found}:
        known = ", ".join(s.name for s in found)
        raise SystemExit(f"lab: no scenario {', '.join(sorted(unknown))}; there are: {known}")
    return [s for s in found if s.name in names or not (names or s.named)]


def by_boot(scenarios: list[Scenario]) -> list[tuple[str, list[Scenario]]]:
    """The boots to make, each with its scenarios; those that spoil dom0 end theirs."""
    boots: list[tuple[str, list[Scenario]]] = []
    for name in sorted({s.boot for s in scenarios}, key=[s.boot for s in scenarios].index):
        mine = [s for s in scenarios if s.boot == name]
        spoilers = [s for s in mine if s.last]
        rest = [s for s in mine if not s.last]
        boots.append((name, rest + spoilers[:1]))
        boots.extend((name, [s]) for s in spoilers[1:])
    return boots


def in_order(scenarios: list[Scenario]) -> list[tuple[str, list[Scenario]]]:
    """The same where the order counts, at the price of some more boots."""
    boots: list[tuple[str, list[Scenario]]] = []
    for scenario in scenarios:
        last = boots[-1] if boots else None
        if last and last[0] == scenario.boot and not last[1][-1].last:
            last[1].append(scenario)
        else:
            boots.append((scenario.boot, [scenario]))
    return boots
