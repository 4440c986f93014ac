"""What lab/bench makes of the figures that dom0 says (dom0/lib/bench.sh)."""

from __future__ import annotations

import json
from pathlib import Path

from .report import Report
from .scenario import Scenario
from .symbols import Symbols

ASKED = ("copies", "maps", "unmaps", "copy_batches", "map_batches", "unmap_batches", "notifies")
"""What our backend counts of what it asks the hypervisor for."""
HEADINGS = (
    "setup", "way", "frames", "Mpps", "Gbit/s", "/packet", "/byte", "dom0", "guests", "grants", "calls", "signals",
    "backend", "vhost",
)


class Figures(Report):
    """Collects rows as they are said."""

    def __init__(self, verbose: bool, symbols: Symbols | None = None) -> None:
        super().__init__(verbose)
        self.rows: list[dict] = []
        self.open: dict = {}
        self.symbols: Symbols | None = symbols

    def line(self, scenario: Scenario, text: str) -> None:
        """A line that the scenario said."""
        if not text.startswith("bench "):
            super().line(scenario, text)
            return
        word, *parts = text.removeprefix("bench ").split("|")
        match word, parts:
            case "begin", [setup, way, frames]:
                self.open = {"part": scenario.name, "setup": setup, "way": way, "frames": frames}
                self.open |= {"at": [], "reports": [], "threads": [], "halves": [], "domains": {}}
            case "at", [time, packets, size]:
                self.open["at"].append((int(time), int(packets or 0), int(size or 0)))
            case "domain", [name, percent]:
                self.open["domains"][name] = float(percent)
            case "report", _:
                self.open["reports"].append(json.loads("|".join(parts)))
            case "threads", [own, kernels]:
                self.open["threads"].append((int(own), int(kernels)))
            case "symbols", [kind, encoded] if self.symbols is not None:
                self.symbols.take(scenario.name, kind, encoded)
            case "half", _:
                self.open["halves"].append(json.loads("|".join(parts))["rows"][0])
            case "end", _:
                self.rows.append(row := figures(self.open))
                if self.verbose:
                    print(f"    {row['setup']}, {row['way']}, {row['frames']}: {row['mpps']:.4f} Mpps, {row['gbps']:.3f} Gbit/s")

    def table(self) -> str:
        """All rows, aligned."""
        lines = [HEADINGS, *(cells(row) for row in self.rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
        aligned = (
            "  ".join(cell.ljust(width) if column < 3 else cell.rjust(width) for column, (cell, width) in enumerate(zip(line, widths)))
            for line in lines
        )
        return "\n".join(line.rstrip() for line in aligned)

    def write(self, path: Path) -> None:
        """The rows as JSON; units are in the names of fields."""
        document = {"bench": "lab", "host": "xen", "clock": "1 instruction = 1 ns, one processor", "rows": self.rows}
        path.write_text(json.dumps(document, indent=1) + "\n")


def figures(said: dict) -> dict:
    """A row: what one window came to."""
    row = {key: said[key] for key in ("part", "setup", "way", "frames")}
    if said["halves"]:
        backend, *frontend = said["halves"]
        row |= {"mpps": backend["mpps"], "gbps": backend["gbps"], "packets": backend["packets"]}
        row["backend"] = backend
        if frontend:
            [row["frontend"]] = frontend
        row["grant_ops_per_packet"] = sum(backend[f"{kind}_per_packet"] for kind in ("copies", "maps", "unmaps"))
        row["notifies_per_packet"] = backend["notifies_per_packet"]
    else:
        (begun, packets, size), (ended, more, larger) = said["at"]
        time, packets, size = ended - begun, more - packets, larger - size
        row |= {"mpps": 1e3 * packets / time, "gbps": 8 * size / time, "packets": packets}
        if len(said["reports"]) == 2:
            before, after = (report["backend-0"]["platform"] for report in said["reports"])
            asked = {name: (after[name] - before[name]) / max(packets, 1) for name in ASKED}
            row["grant_ops_per_packet"] = asked["copies"] + asked["maps"] + asked["unmaps"]
            # gntdev makes a hypercall of each 16 copies.
            row["notifies_per_packet"] = asked["notifies"]
            row["calls_per_packet"] = sum(asked[f"{kind}_batches"] for kind in ("copy", "map", "unmap"))
            (own, kernels), (later, kernels_later) = said["threads"]
            row["process_per_packet"] = (later - own) / max(packets, 1)
            row["vhost_per_packet"] = (kernels_later - kernels) / max(packets, 1)
            row["backend"] = {f"{name}_per_packet": value for name, value in asked.items()}
    if row["mpps"] > 0:
        shares = said["domains"]
        # Less than all of the time only where the processor waits for what is behind a network card.
        busy = 1.0
        if shares:
            row["dom0_percent"] = shares.get("Domain-0", 0.0)
            row["guests_percent"] = sum(share for name, share in shares.items() if name != "Domain-0")
            busy = sum(shares.values()) / 100
        row["instructions_per_packet"] = 1e3 * busy / row["mpps"]
        row["instructions_per_byte"] = 8 * busy / row["gbps"]
    return row


def cells(row: dict) -> list[str]:
    """A row of the table."""
    def number(key: str, form: str) -> str:
        return format(row[key], form) if key in row else "-"

    return [
        row["setup"], row["way"], row["frames"], number("mpps", ".4f"), number("gbps", ".3f"),
        number("instructions_per_packet", ".0f"), number("instructions_per_byte", ".2f"),
        number("dom0_percent", ".1f"), number("guests_percent", ".1f"), number("grant_ops_per_packet", ".2f"),
        number("calls_per_packet", ".2f"), number("notifies_per_packet", ".4f"),
        number("process_per_packet", ".0f"), number("vhost_per_packet", ".0f"),
    ]
