"""Processes that form one group of JAX's: where they listen."""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.2"  # which no machine's name leads to
MEMBER = """
import json, sys
import jax, psutil
from msrl.engines.group import join_processes

meeting, number, host = sys.argv[1:]
join_processes(meeting, 2, int(number), host)
from jax.experimental.multihost_utils import process_allgather
import numpy as np
found = process_allgather(np.array([int(number) + 1])).ravel().tolist()
lines = psutil.Process().net_connections("tcp")
print(json.dumps([found, [line.laddr.ip for line in lines if line.status == psutil.CONN_LISTEN]]), flush=True)
process_allgather(np.array([0]))  # the other has looked, too
"""


def join(*before: str) -> list[tuple[list[int], set[str]]]:
    """What two processes tell one another, and where each of them listens."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        meeting = f"{HOST}:{probe.getsockname()[1]}"
    members = [subprocess.Popen([*before, sys.executable, "-c", MEMBER, meeting, str(number), HOST], cwd=ROOT,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for number in range(2)]
    try:
        told = [member.communicate(timeout=120) for member in members]
    finally:
        for member in members:
            member.kill()
    assert all(member.returncode == 0 for member in members), [err[-2000:] for _, err in told]
    return [(found, {address.removeprefix("::ffff:") for address in listening})
            for found, listening in (json.loads(out.splitlines()[-1]) for out, _ in told)]


def test_they_listen_where_they_are_told_to():
    assert join() == [([1, 2], {HOST})] * 2


def renames() -> list[str]:
    """A command that runs another one on a machine whose name leads nowhere."""
    line = ["unshare", "--uts", "sh", "-c", 'hostname nowhere.invalid && exec "$@"', "sh"]
    if shutil.which("unshare") is None or subprocess.run([*line, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs a machine's name of its own, which takes root")
    return line


def test_a_machine_whose_name_leads_nowhere():
    assert join(*renames()) == [([1, 2], {HOST})] * 2
