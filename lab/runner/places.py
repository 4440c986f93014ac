"""Where things are."""

from pathlib import Path

LAB = Path(__file__).resolve().parent.parent
SCENARIOS = LAB / "scenarios"
BENCHES = LAB / "benches"
BOOTS = LAB / "boots"
CACHE = LAB.parent / ".cache" / "lab"
IMAGE = CACHE / "image"
LOGS = CACHE / "logs"
