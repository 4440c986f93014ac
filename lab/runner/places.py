"""Where things are, whichever world runs; what belongs to one is in world.py."""

from pathlib import Path

LAB = Path(__file__).resolve().parent.parent
SCENARIOS = LAB / "scenarios"
BENCHES = LAB / "benches"
BOOTS = LAB / "boots"
WORLDS = LAB / "worlds"
CACHE = LAB.parent / ".cache" / "lab"
COUNTER = CACHE / "counter.so"
"""The plugin that counts instructions (symbols.py)."""
