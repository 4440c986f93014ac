"""Where the instructions of a row went, by symbol (lab/bench --symbols, counter/plugin.c)."""

from __future__ import annotations

import base64
import bisect
import gzip
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from .places import COUNTER, LAB
from .world import World

PROGRAMS_AT = 0x5555_5555_4000
"""Where Linux puts every program that may lie anywhere, without randomisation."""
KERNELS_FROM = 0xFFFF_8000_0000_0000
LINUX_FROM = 0xFFFF_FFFF_8000_0000
MODULES_FROM = 0xFFFF_FFFF_C000_0000
LONGEST = 8192
"""Bytes behind a symbol's beginning that are no longer of its module."""
LEAST = 0.001
"""Share of a row's instructions from which a symbol is named."""


def build() -> None:
    """The plugin, for this machine's QEMU."""
    COUNTER.parent.mkdir(parents=True, exist_ok=True)
    source = LAB / "counter" / "plugin.c"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(COUNTER), str(source)], check=True)


@dataclass
class Table:
    """Symbols by address."""

    at: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, lines: list[str]) -> Table:
        """Of lines as nm and the kernels' own tables have them: address, kind, name and its module."""
        found = []
        for line in lines:
            parts = line.split(None, 2)
            if len(parts) == 3 and parts[1] in "tTwW":
                found.append((int(parts[0], 16), parts[2].replace("\t", " ").strip()))
        found.sort()
        return cls([at for at, _ in found], [name for _, name in found])

    def name(self, at: int) -> str | None:
        """The symbol that begins last before `at`, or there."""
        place = bisect.bisect_right(self.at, at) - 1
        if place < 0 or (at >= MODULES_FROM and at - self.at[place] >= LONGEST):
            return None
        return self.names[place]


class Program:
    """A file whose code is known by its bytes."""

    def __init__(self, path: Path, symbols: Path | None = None, base: int = PROGRAMS_AT) -> None:
        self.base = base
        self.name, self.bytes = path.name, path.read_bytes()
        self.parts: list[tuple[int, int, int]] = []
        said = subprocess.run(["readelf", "-lW", str(path)], capture_output=True, text=True, check=True).stdout
        for line in said.splitlines():
            words = line.split()
            if words[:1] == ["LOAD"]:
                offset, at, _, size = (int(word, 16) for word in words[1:5])
                self.parts.append((at, offset, size))
        self.table = Table.of(symbols.read_text().splitlines() if symbols else [])

    def symbol(self, at: int, code: bytes) -> str | None:
        """What lies there, if it is this program's code."""
        at -= self.base
        for begin, offset, size in self.parts:
            if begin <= at < begin + size:
                there = offset + at - begin
                return (self.table.name(at) or "all of it") if self.bytes[there : there + len(code)] == code else None
        return None


class Symbols:
    """The tables of each part's kernels, as dom0 says them, and the programs that run there."""

    def __init__(self, world: World) -> None:
        self.said: dict[tuple[str, str], list[str]] = {}
        self.image = world.image
        self.others = [path for name in ("iperf3", "bash") if (path := world.folder / "packages" / "usr" / "bin" / name).exists()]

    def take(self, part: str, kind: str, text: str) -> None:
        """A line of a table, which is compressed, and in base 64."""
        self.said.setdefault((part, kind), []).append(text)

    def tables(self, part: str) -> dict[str, Table]:
        """Of a part: `xen`, `linux` (dom0's) and `guest` (its modules)."""
        found = {}
        for (of, kind), lines in self.said.items():
            if of == part:
                text = gzip.decompress(base64.b64decode("".join(lines))).decode(errors="replace")
                found[kind] = Table.of(text.splitlines())
        return found

    def add_to(self, rows: list[dict], counters: list[Path]) -> None:
        """Gives each row its instructions by symbol, of what the plugin wrote of each boot."""
        ours = sorted((self.image / "grantway" / "usr" / "bin").glob("grantway*"))
        programs = [Program(path, self.image / f"{path.name}.symbols") for path in ours]
        programs += [Program(path) for path in self.others]
        # A guest that is one program lies where its file says.
        guest = self.image / "grantway-dom0" / "lab" / "unikernel"
        named = self.image / "unikernel.symbols"
        if guest.exists():
            programs.append(Program(guest, named if named.exists() else None, base=0))
        windows = [window for path in counters for window in path.read_text().split("window\n")[1:]]
        if len(windows) != len(rows):
            raise SystemExit(f"lab/bench: {len(rows)} rows, and {len(windows)} windows of the counter")
        tables: dict[str, dict[str, Table]] = {}
        for row, window in zip(rows, windows):
            if row["part"] not in tables:
                tables[row["part"]] = self.tables(row["part"])
            counts: dict[str, int] = {}
            for line in window.splitlines():
                at, code, count = line.split()
                name = whose(int(at, 16), bytes.fromhex(code), tables[row["part"]], programs)
                counts[name] = counts.get(name, 0) + int(count, 16)
            row["symbols"] = shares(counts)


def shares(counts: dict[str, int]) -> dict[str, float]:
    """Of all instructions, the largest first; what is too small to be named is one for each place."""
    total = sum(counts.values())
    found: dict[str, float] = {}
    for name, count in counts.items():
        if count < LEAST * total and ": " in name:
            name = f"{name.split(': ')[0]}: functions of less than {LEAST:.1%} each"
        found[name] = found.get(name, 0.0) + count / total
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def whose(at: int, code: bytes, tables: dict[str, Table], programs: list[Program]) -> str:
    """The place and the name of what lies there."""
    if at < KERNELS_FROM:
        for program in programs:
            if (name := program.symbol(at, code)) is not None:
                return f"{program.name}: {name}"
        return "libraries and other programs"
    if at < LINUX_FROM:
        return f"xen: {tables['xen'].name(at)}"
    names = [tables["linux"].name(at)]
    if at >= MODULES_FROM and "guest" in tables:
        # The same place of two kernels.
        names.append(tables["guest"].name(at))
    return "linux: " + (" or ".join(dict.fromkeys(name for name in names if name)) or "other modules")


def write(rows: list[dict], folder: Path) -> None:
    """A file of each row."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number, row in enumerate(rows, 1):
        name = "-".join((f"{number:02}", row["setup"], row["way"], row["frames"]))
        (folder / re.sub("[^A-Za-z0-9]+", "-", name)).write_text(table(row) + "\n")


def table(row: dict) -> str:
    """A row's symbols, aligned, in instructions of a packet."""
    each = row.get("instructions_per_packet", 0.0)
    lines = [f"{row['setup']}, {row['way']}, {row['frames']}: {each:.0f} instructions a packet"]
    groups: dict[str, float] = {}
    for name, share in row["symbols"].items():
        group = name.split(":")[0]
        groups[group] = groups.get(group, 0.0) + share
    for name, share in (*sorted(groups.items(), key=lambda item: -item[1]), *row["symbols"].items()):
        lines.append(f"{share * each:10.0f} {share:6.1%}  {name}")
    return "\n".join(lines)
