"""The hosts that cluster tests run on: they reach one another, and nothing is left of them."""

import subprocess
import sys

import pytest

from tests.ray import hosts as made
from tests.ray.hosts import hosts

SERVE = """
import socket, sys
server = socket.create_server((sys.argv[1], 5077))
print("ready", flush=True)
peer, (address, _) = server.accept()
peer.sendall(address.encode())
peer.close()
"""
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], 5077), timeout=20) as line:
    print(line.makefile().read())
"""


def spaces():
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout


def test_hosts_reach_one_another_by_their_own_addresses():
    with hosts(3) as (one, two, three):
        for asker in (two, three):
            with subprocess.Popen(one.command(sys.executable, "-c", SERVE, one.address), stdout=subprocess.PIPE,
                                  text=True) as server:
                assert server.stdout.readline() == "ready\n"
                asked = subprocess.run(asker.command(sys.executable, "-c", ASK, one.address), capture_output=True,
                                       text=True, check=True, timeout=30)
                assert asked.stdout.strip() == asker.address
        assert one.space in spaces()
    assert one.space not in spaces()


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setattr(made.shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError) as caught, hosts(1):
        pass
    assert str(caught.value) == "Namespaces are made with `ip`: install iproute2."
