"""Files of `name = value` lines: boots and worlds."""

from __future__ import annotations

from pathlib import Path


def read(folder: Path, name: str, kind: str, file: str = "") -> dict[str, str]:
    """The settings of `folder/name`, or of `file` in it; ends the program where there is none."""
    path = folder / name / file if file else folder / name
    if not path.exists():
        known = ", ".join(sorted(p.name for p in folder.iterdir()))
        raise SystemExit(f"lab: no {kind} {name}; there are: {known}")
    lines = [line.split("#")[0] for line in path.read_text().splitlines()]
    pairs = [line.split("=", 1) for line in lines if "=" in line]
    return {key.strip(): value.strip() for key, value in pairs}
