"""Several hosts on one machine: network namespaces on a bridge, each with an address of its own.

`with hosts(3) as names:` makes them and takes them away again. Where namespaces are not allowed this fails and says
what is missing; it never skips, since then nothing would show that a cluster works.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

NETWORK = "10.213.77"


@dataclass(frozen=True)
class HostName:
    space: str
    address: str

    def command(self, *words: str) -> list[str]:
        """The command, to be run on this host."""
        return ["ip", "netns", "exec", self.space, *words]


@contextlib.contextmanager
def hosts(count: int) -> Iterator[list[HostName]]:
    tag = f"{os.getpid() % 100000}"
    bridge, names = f"msb{tag}", [HostName(f"msrl{tag}-{n}", f"{NETWORK}.{n + 1}") for n in range(count)]
    if shutil.which("ip") is None:
        raise RuntimeError("Namespaces are made with `ip`: install iproute2.")
    with contextlib.ExitStack() as stack:
        # The bridge is in a namespace too: what the machine itself routes is left alone.
        _space(stack, f"msrl{tag}-b")
        inside = ["ip", "-n", f"msrl{tag}-b"]
        _run(*inside, "link", "add", bridge, "type", "bridge")
        _run(*inside, "link", "set", bridge, "up")
        for number, host in enumerate(names):
            _space(stack, host.space)
            port = f"msp{tag}-{number}"
            _run(*inside, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host.space)
            _run(*inside, "link", "set", port, "master", bridge, "up")
            _run("ip", "-n", host.space, "address", "add", f"{host.address}/24", "dev", "eth0")
            _run("ip", "-n", host.space, "link", "set", "lo", "up")
            _run("ip", "-n", host.space, "link", "set", "eth0", "up")
        yield names


def _space(stack: contextlib.ExitStack, name: str) -> None:
    _run("ip", "netns", "add", name)
    stack.callback(_run, "ip", "netns", "delete", name)


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Hosts need network namespaces, and `{' '.join(words)}` failed: {done.stderr.strip()} "
                           "Run as root, in a container with CAP_NET_ADMIN and CAP_SYS_ADMIN.")
