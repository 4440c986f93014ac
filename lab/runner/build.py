"""What has to be there before a machine can start."""

from __future__ import annotations

import subprocess

from .places import LAB
from .world import World

GONE = 3
"""How lab/setup ends where the archive has no such package."""


class Gone(Exception):
    """A package of a world that moves is no longer there."""


def prepare(world: World, with_grantway: bool, with_before: bool = False) -> None:
    """Packages and images; what those steps say is for a person."""
    # Beside the downloads; the image waits for it, and says what failed.
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    before = ["--before"] if with_before else []
    binary = subprocess.Popen([str(LAB / "binary"), *before], **quiet) if with_grantway else None
    image = [str(LAB / "image"), world.name, *before] + ([] if with_grantway else ["--without-grantway"])
    for step in ([str(LAB / "setup"), world.name], image):
        if step is image and binary is not None:
            binary.wait()
        status = subprocess.run(step, check=False).returncode
        if status == GONE and world.moves:
            raise Gone
        if status:
            raise SystemExit(f"lab: {step[0]} failed")


def offers(world: World) -> set[str]:
    """What the grantway binary of the image can do, as `needs:` names it."""
    binary = world.image / "grantway" / "usr" / "bin" / "grantway"
    if not binary.exists():
        return set()
    text = subprocess.run([binary, "backend", "--help"], capture_output=True, text=True, check=False)
    offer = {"grantway", "grantway-xen"} if "xen" in text.stdout.lower() else {"grantway"}
    if (world.image / "grantway-dom0" / "usr" / "bin" / "grantway-before").exists():
        offer.add("lab/before")
    if (world.image / "grantway-dom0" / "lab" / "package" / "usr" / "bin" / "grantway").exists():
        offer.add("package")
    return offer
