"""Several hosts: namespaces with addresses of their own, a Ray head on one and a Ray worker on each of the others.

The coordinator joins by address, as it would from a shell. What instances compute there has the bits of one process.
"""

import contextlib
import itertools
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from msrl.pipeline import Deployment, compile, weights_sha256
from tests.ray.hosts import HostName, hosts

PORT = 6379
PPO = dict(num_envs=4, shards=2, rollout=4, total_steps=48, hidden=(8,), epochs=1, minibatches=2)
JOBS = {
    "single-learner-coarse": (dict(actors=2), {}),
    "multi-learner": (dict(learners=2), dict(learner_shards=2)),
}

# What runs on the head, as a user's script would: one program after the other, and where its workers were.
COORDINATE = """
import json, sys
import ray
from msrl.backends import ray_backend
from msrl.deployment import Host
from msrl.pipeline import Deployment, compile, weights_sha256

address, hosts, settings, jobs = json.loads(sys.argv[1])
settings["hidden"] = tuple(settings["hidden"])
ray_backend.join_cluster(address, 0)
address_of = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
for distribution, (counts, more) in jobs.items():
    deployment = Deployment(distribution, "ray", address=address, hosts=tuple(map(Host, hosts)), **counts)
    program = compile("ppo", "CartPole-v1", strict=True, deployment=deployment, **settings, **more)
    run = program.run()
    next(run)
    group, = (g for g in ray.util.placement_group_table().values() if g["state"] == "CREATED")
    used = [address_of[node] for _, node in sorted(group["bundles_to_node_id"].items())]
    *_, last = run
    print(json.dumps([distribution, used, last.env_steps, weights_sha256(program.params())]), flush=True)
ray.shutdown()
"""


def ray_on(host: HostName, folder: str, *words: str) -> list[str]:
    # A folder each: these hosts share their files, and would take one another's sockets.
    return host.command(str(Path(sys.executable).parent / "ray"), "start", "--block", "--disable-usage-stats",
                        "--num-cpus=1", "--object-store-memory=100000000", f"--node-ip-address={host.address}",
                        f"--temp-dir={folder}/{host.address}", *words)


@contextlib.contextmanager
def cluster(count: int) -> Iterator[list[HostName]]:
    """A head and workers; gone at the end, whatever happens."""
    with contextlib.ExitStack() as stack:
        folder = tempfile.mkdtemp(prefix="mr")  # short, as the paths of sockets must be
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("RAY_AUTH_MODE", "token")  # as docs/distributions.md has it; whoever starts something inherits it
        patch.setenv("RAY_AUTH_TOKEN_PATH", write_token(folder))
        names = stack.enter_context(hosts(count))
        for host in names:
            stack.callback(end_all_on, host)
        head, *others = names
        for commands in (
                [ray_on(head, folder, "--head", f"--port={PORT}", "--include-dashboard=false")],
                [ray_on(host, folder, f"--address={head.address}:{PORT}") for host in others]):
            started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                       for command in commands]
            for process in started:
                stack.enter_context(ended(process))
            for process in started:
                said = list(itertools.takewhile(lambda line: "Ray runtime started" not in line, process.stdout))
                assert process.poll() is None, "".join(said)
        yield names


def importing() -> dict[str, str]:
    """The environment of processes that import this package from the source tree."""
    path = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path}


def write_token(folder: str) -> str:
    file = Path(folder) / "token"
    file.write_text(secrets.token_hex(32))
    return str(file)


@contextlib.contextmanager
def ended(process: subprocess.Popen) -> Iterator[None]:
    with process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                process.kill()


def pids_on(host: HostName) -> list[int]:
    found = subprocess.run(["ip", "netns", "pids", host.space], capture_output=True, text=True, check=True)
    return [int(pid) for pid in found.stdout.split()]


def end_all_on(host: HostName) -> None:
    for pid in pids_on(host):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)


def test_instances_on_three_hosts_have_the_bits_of_one_process():
    with cluster(3) as names:
        head = names[0]
        asked = [f"{head.address}:{PORT}", [host.address for host in names], PPO, JOBS]
        coordinator = subprocess.Popen(head.command(sys.executable, "-c", COORDINATE, json.dumps(asked)),
                                       env=importing(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with ended(coordinator):
            wanted = []
            for distribution, (counts, more) in JOBS.items():
                program = compile("ppo", "CartPole-v1", strict=True,
                                  deployment=Deployment(distribution, "inline", **counts), **PPO, **more)
                *_, last = program.run()
                wanted.append([distribution, last.env_steps, weights_sha256(program.params())])
            out, errors = coordinator.communicate(timeout=600)
        assert coordinator.returncode == 0, errors
        found = [json.loads(line) for line in out.splitlines()]
    assert [[name, steps, weights] for name, _, steps, weights in found] == wanted
    one, two, three = (host.address for host in names)
    assert [used for _, used, _, _ in found] == [[one, two, three], [one, two]]
    assert not any(host.space in subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
                   for host in names)


JOIN = """
from msrl.backends import ray_backend
from msrl.errors import UsageError

try:
    ray_backend.join_cluster("127.0.0.1:6379", 1)
except UsageError as problem:
    print(problem)
"""


def test_who_has_no_token_is_told_where_it_comes_from(tmp_path):
    without = {name: value for name, value in importing().items() if not name.startswith("RAY_AUTH_TOKEN")}
    done = subprocess.run([sys.executable, "-c", JOIN], capture_output=True, text=True, check=False, timeout=180,
                          env={**without, "RAY_AUTH_MODE": "token", "HOME": str(tmp_path)})
    assert done.stdout == """\
The Ray cluster at 127.0.0.1:6379 asks for a token.
Whoever reaches a cluster can run code in it, so it lets in those who know its token; this process has none, or another.
Set what the cluster was started with: RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH=FILE.
See docs/distributions.md#ray.
""", done.stderr
