"""What has to be there before a machine can start."""

from __future__ import annotations

import subprocess

from .places import LAB
from .world import World

class Gone(Exception):
    """A world that moves cannot be made today: a package is gone, or needs another one."""


def prepare(world: World, with_grantway: bool, with_before: bool = False) -> None:
    """Packages and images; what those steps say is for a person."""
    # Beside the downloads; the image waits for it, and says what failed.
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    before = ["--before"] if with_before else []
    # Where the compiler is not downloaded with the rest.
    beside = with_grantway and world.arch == "amd64"
    binary = subprocess.Popen([str(LAB / "binary"), *before], **quiet) if beside else None
    image = [str(LAB / "image"), world.name, *before] + ([] if with_grantway else ["--without-grantway"])
    for step in ([str(LAB / "setup"), world.name], image):
        if step is image and binary is not None:
            binary.wait()
        if subprocess.run(step, check=False).returncode == 0:
            continue
        if binary is not None:
            binary.wait()
            if binary.returncode:
                raise SystemExit("lab: no binary could be built: run lab/binary")
        if world.moves:
            raise Gone
        raise SystemExit(f"lab: {step[0]} failed")


def offers(world: World) -> set[str]:
    """What the grantway binary of the image can do, as `needs:` names it."""
    if not (world.image / "grantway" / "usr" / "bin" / "grantway").exists():
        return set()
    offer = {"grantway", "grantway-xen"}
    if (world.image / "grantway-dom0" / "usr" / "bin" / "grantway-drill").exists():
        offer.add("drill")
    if (world.image / "grantway-dom0" / "usr" / "bin" / "grantway-before").exists():
        offer.add("lab/before")
    if any((world.image / "grantway-dom0" / "lab" / "package").glob("*.deb")):
        offer.add("package")
    return offer
