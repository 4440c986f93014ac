"""The emulated machine: how QEMU is called for a boot."""

from __future__ import annotations

import subprocess
from pathlib import Path

from . import settings
from .places import BOOTS
from .world import World

XEN = "spec-ctrl=no console=com1 com1=115200,8n1 loglvl=warning guest_loglvl=info conring_size=1m"
"""For the hypervisor, beside dom0's memory."""

UNTESTED = "cryptomgr.notests initcall_blacklist=crypto_kdf108_init,x509_key_init"
"""A kernel's tests of its own ciphers: half a second of each boot here."""

LINUX = f"mitigations=off norandmaps {UNTESTED} console=hvc0 loglevel=5"
"""For dom0's kernel, beside the words that dom0/init reads."""


def profile(boot: str) -> dict[str, str]:
    """The settings of a file of lab/boots."""
    return settings.read(BOOTS, boot, "boot")


def command(world: World, boot: str, words: dict[str, str], serial: list[str]) -> list[str]:
    """QEMU's command line; `words` go to dom0/init, `serial` are the two lines."""
    given, image = profile(boot), world.image
    memory = given["dom0_memory"]
    linux = " ".join([LINUX, *(f"lab.{key}={value}" for key, value in words.items())])
    # A comma ends a module's command line, unless it is doubled.
    linux = linux.replace(",", ",,")
    line = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    line += ["-machine", "pc", "-cpu", given["cpu"], "-accel", given["accel"]]
    line += ["-smp", given["smp"], "-m", given["memory"]]
    if "icount" in given:
        line += ["-icount", given["icount"]]
    line += ["-kernel", str(image / "xen"), "-append", f"dom0_mem={memory}M,max:{memory}M dom0_max_vcpus={given['smp']} {XEN}"]
    line += ["-initrd", f"{image / 'vmlinux'} {linux},{image / 'dom0.cpio'}"]
    for target in serial:
        line += ["-serial", target]
    return line


def start(world: World, boot: str, words: dict[str, str], folder: Path) -> subprocess.Popen[bytes]:
    """Starts it; the console and the results go to files of `folder`."""
    for name in ("console", "results"):
        (folder / name).unlink(missing_ok=True)
    serial = [f"file:{folder / 'console'}", f"file:{folder / 'results'}"]
    with open(folder / "qemu", "wb") as log:
        return subprocess.Popen(
            command(world, boot, words, serial), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
