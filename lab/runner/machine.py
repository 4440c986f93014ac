"""The emulated machine: how QEMU is called for a boot."""

from __future__ import annotations

import subprocess
from pathlib import Path

from . import settings
from .places import BOOTS, COUNTER
from .world import World

PC = "qemu-system-x86_64"

XEN = "loglvl=warning guest_loglvl=info conring_size=1m"
"""For the hypervisor, beside dom0's memory."""

OUTSIDE = """
ip tuntap add mode tap nic0
ip addr add 10.0.0.254/24 dev nic0
ip link set nic0 up
setpriv --pdeathsig KILL iperf3 -s &
exec "$@"
"""
"""What is behind a machine's network card: a network namespace, and iperf3 in it."""

UNTESTED = "cryptomgr.notests initcall_blacklist=crypto_kdf108_init,x509_key_init"
"""A kernel's tests of its own ciphers: half a second of each boot here."""

LINUX = f"mitigations=off norandmaps {UNTESTED} console=hvc0 loglevel=5"
"""For dom0's kernel, beside the words that dom0/init reads."""


def profile(boot: str) -> dict[str, str]:
    """The settings of a file of lab/boots."""
    return settings.read(BOOTS, boot, "boot")


def command(world: World, boot: str, words: dict[str, str], console: str, results: str) -> list[str]:
    """QEMU's command line; `words` go to dom0/init, both lines are files."""
    given, memory = profile(boot), profile(boot)["dom0_memory"]
    emulator = given.get("emulator", PC)
    by = pc if emulator == PC else arm
    xen = f"dom0_mem={memory}M,max:{memory}M dom0_max_vcpus={given['smp']}"
    line = [emulator, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]
    line += ["-machine", given.get("machine", "pc"), "-cpu", given["cpu"], "-accel", given["accel"]]
    line += ["-smp", given["smp"], "-m", given["memory"]]
    if "icount" in given:
        line += ["-icount", given["icount"]]
    if "nic" in given:
        line = ["unshare", "-n", "sh", "-euc", OUTSIDE, "outside", *line]
        line += ["-netdev", "tap,id=nic,ifname=nic0,script=no,downscript=no"]
        line += ["-device", f"{given['nic']},netdev=nic,romfile="]
    return line + ["-kernel", str(world.image / "xen"), "-serial", console] + by(world.image, xen, words, results)


def linux(words: dict[str, str]) -> str:
    """The command line of dom0's kernel."""
    line = " ".join([LINUX, *(f"lab.{key}={value}" for key, value in words.items())])
    # A comma ends an option of QEMU's, unless it is doubled.
    return line.replace(",", ",,")


def pc(image: Path, xen: str, words: dict[str, str], results: str) -> list[str]:
    """Modules as multiboot has them, and a second serial line for the results."""
    words = words | {"results": "ttyS1"}
    return [
        "-append", f"{xen} console=com1 com1=115200,8n1 spec-ctrl=no {XEN}",
        "-initrd", f"{image / 'vmlinux'} {linux(words)},{image / 'dom0.cpio'}",
        "-serial", results,
    ]  # fmt: skip


def arm(image: Path, xen: str, words: dict[str, str], results: str) -> list[str]:
    """Modules where the device tree says, and virtio for the results: there is one serial line."""
    words = words | {"results": "vport0p1"}
    return [
        "-append", f"{xen} console=dtuart {XEN}",
        "-device", f"guest-loader,addr=0x49000000,kernel={image / 'vmlinux'},bootargs={linux(words)}",
        "-device", f"guest-loader,addr=0x4d000000,initrd={image / 'dom0.cpio'}",
        "-device", "virtio-serial-device", "-chardev", results.replace(":", ",id=results,path=", 1),
        "-device", "virtserialport,chardev=results",
    ]  # fmt: skip


def start(world: World, boot: str, words: dict[str, str], folder: Path) -> subprocess.Popen[bytes]:
    """Starts it; the console and the results go to files of `folder`."""
    for name in ("console", "results"):
        (folder / name).unlink(missing_ok=True)
    lines = [f"file:{folder / name}" for name in ("console", "results")]
    counting = ["-plugin", f"{COUNTER},out={folder / 'counter'}"] if "symbols" in words else []
    with open(folder / "qemu", "wb") as log:
        return subprocess.Popen(
            command(world, boot, words, *lines) + counting, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
