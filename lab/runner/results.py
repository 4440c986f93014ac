"""What dom0 reports on its second serial line (see dom0/results.sh)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Mark:
    """`@@ WORD...`: something begins or ends."""

    words: list[str]


@dataclass(frozen=True)
class Text:
    """`| TEXT`: a line of the scenario, or of the file named last."""

    text: str


class Reader:
    """Reads a growing file by whole lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.offset = 0
        self.rest = b""

    def read(self) -> Iterator[Mark | Text]:
        """What came since the last call."""
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                data = file.read()
        except FileNotFoundError:
            return
        self.offset += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            text = line.decode(errors="replace").rstrip("\r")
            if text.startswith("@@ "):
                yield Mark(text[3:].split())
            elif text.startswith("| "):
                yield Text(text[2:])
