"""What is impossible is refused before anything starts, with the nearest deployment that works."""

import pytest

from msrl import distribution as distributions
from msrl.deployment import Deployment, Host
from msrl.distribution import DISTRIBUTIONS
from msrl.distribution.policy import DistributionPolicy
from msrl.errors import UsageError
from msrl.feasibility import Setting, check

COARSE, FINE = "single-learner-coarse", "single-learner-fine"
SETTING = Setting("jax:CartPole-v1", traceable=True, agents=0, num_envs=8, shards=2, learner_shards=2)


class OnDevice(DistributionPolicy):
    name, summary = "on-device", "a test's"
    counts = ("learners",)
    traceable_only = device_each = True

    def fragments(self, graph, with_actors):
        raise NotImplementedError


class ByAgent(OnDevice):
    name, axis, traceable_only, device_each = "by-agent", "agent", False, False


class Whenever(OnDevice):
    name, asynchronous, counts, traceable_only, device_each = "whenever", True, ("actors",), False, False


@pytest.fixture(autouse=True)
def table(monkeypatch):
    """The table as the tests below know it, whatever else may come with MSRL."""
    table = {name: DISTRIBUTIONS[name] for name in ("local", COARSE, FINE)}
    table |= {policy.name: policy for policy in (OnDevice, ByAgent, Whenever)}
    monkeypatch.setattr(distributions, "DISTRIBUTIONS", table)
    monkeypatch.setattr("msrl.feasibility.DISTRIBUTIONS", table)
    monkeypatch.setattr("msrl.feasibility.ray_is_installed", lambda: True)


@pytest.mark.parametrize("deployment, setting", [
    (Deployment(), None),
    (Deployment(COARSE, actors=2), SETTING),
    (Deployment(FINE, "inline", 1), SETTING),
    (Deployment("on-device", learners=2), Setting("jax:CartPole-v1", True, 0, 8, 2, 2, devices=2)),
    (Deployment("on-device", "ray", learners=2, hosts=(Host("a"), Host("b"))), SETTING),
    (Deployment("by-agent", learners=2), Setting("jax:simple_spread", True, 3, 8, 1, agent_shards=3)),
    (Deployment("by-agent"), Setting("jax:simple_spread", True, 3, 8, 1)),
    (Deployment("whenever", max_lag=0, actors=2), SETTING),
])
def test_possible(deployment, setting):
    assert check(deployment, setting).name == deployment.distribution


IMPOSSIBLE = {
    "unknown distribution": (Deployment("single-learner-course"), None, """\
There is no distribution 'single-learner-course'.
There are local, single-learner-coarse, single-learner-fine, on-device, by-agent, whenever.
Did you mean single-learner-coarse?"""),
    "unknown backend": (Deployment(backend="thread"), None, """\
There is no backend 'thread'.
There are inline, threads, ray.
Did you mean threads?
See docs/distributions.md."""),
    "unknown pass": (Deployment(passes="+fuse-instance"), None, """\
There is no pass 'fuse-instance'.
There are overlap, decide-branches, coalesce-moves, fuse-instances, call-back, fuse-stretches.
Did you mean fuse-instances?"""),
    "devices op by op": (Deployment("on-device", learners=2, passes="-fuse-stretches"), None, """\
on-device cannot do without fuse-stretches.
It is one compiled program on several devices, in which they tell one another what they have.
Leave out -fuse-stretches, or use --distribution multi-learner.
See docs/distributions.md#passes."""),
    "overlap where nobody waits": (Deployment("whenever", actors=2, passes="+overlap"), None, """\
overlap means nothing under whenever.
It is asynchronous: actors never wait for the learner, and take the newest weights there are.
Leave out +overlap, or use a synchronous distribution.
See docs/distributions.md#passes."""),
    "no actors": (Deployment(COARSE, actors=0), None, """\
actors is 0.
It must be a whole number, 1 or more.
Give it another value, or leave it out.
See docs/distributions.md."""),
    "a host of nothing": (Deployment(COARSE, "ray", hosts=(Host("a", 0),)), None, """\
devices of host a is 0.
It must be a whole number, 1 or more.
Give it another value, or leave it out.
See docs/distributions.md."""),
    "actors with local": (Deployment(actors=2), None, """\
2 actors cannot be had under local.
Under this distribution everything is in one place.
Use --distribution single-learner-coarse, or leave out --actors.
See docs/distributions.md."""),
    "learners with one learner": (Deployment(COARSE, learners=2), None, """\
2 learners cannot be had under single-learner-coarse.
Under this distribution nothing is replicated by --learners.
Use --distribution on-device, or leave out --learners.
See docs/distributions.md."""),
    "lag in step": (Deployment(FINE, max_lag=1), None, """\
--max-lag means nothing under single-learner-fine.
It is synchronous: weights are never older than the loop says.
Use --distribution whenever, or leave out --max-lag.
See docs/distributions.md."""),
    "an address for threads": (Deployment(COARSE, address="auto"), None, """\
--address is of no use to the backend threads.
It runs in this process, and only ray reaches other machines.
Use --backend ray, or leave out --address.
See docs/distributions.md."""),
    "hosts for threads": (Deployment(COARSE, hosts=(Host("a"),)), None, """\
hosts is of no use to the backend threads.
It runs in this process, and only ray reaches other machines.
Use --backend ray, or leave out hosts.
See docs/distributions.md."""),
    "more actors than shards": (Deployment(COARSE, actors=4), SETTING, """\
4 actors cannot share 2 shards.
A shard of the environments is the unit of replication, and each instance needs at least one.
Use --actors 2 or fewer, or give the algorithm more shards: --shards 4.
See docs/distributions.md."""),
    "more actors than can be shards": (Deployment(COARSE, actors=3), Setting("E", True, 0, 8, 1), """\
3 actors cannot share 1 shard.
A shard of the environments is the unit of replication, and each instance needs at least one.
Use --actors 1.
See docs/distributions.md."""),
    "an asynchronous batch of uneven parts": (Deployment("whenever", actors=2), Setting("E", True, 0, 9, 3), """\
2 actors cannot share 3 shards evenly.
First come, first served: a batch is made of parts of any of them, which must be of one size.
Use --actors with a divisor of 3, or --shards with a multiple of 2.
See docs/distributions.md."""),
    "more learners than learner shards": (Deployment("on-device", learners=4), SETTING, """\
2 learner shards cannot be divided evenly among 4 learners.
A learner shard is the unit of replication, and the algorithm says how many there are, as their number changes the \
result.
Use --learners 2, or --learner-shards 4 --shards 4 (of --num-envs, 4 must be a divisor).
See docs/distributions.md."""),
    "learners that do not divide evenly": (
        Deployment("on-device", learners=2), Setting("E", True, 0, 9, 3, 3, devices=2), """\
3 learner shards cannot be divided evenly among 2 learners.
A learner shard is the unit of replication, and the algorithm says how many there are, as their number changes the \
result.
Use --learners 3, or --learner-shards 2 --shards 4 (of --num-envs, 4 must be a divisor).
See docs/distributions.md."""),
    "a host environment on the device": (
        Deployment("on-device"), Setting("gymnasium:CartPole-v1", False, 0, 8, 2, twin="CartPole-v1"), """\
gymnasium:CartPole-v1 cannot run under on-device.
on-device compiles the whole loop for the device, and this environment is a Python object.
Use the JAX version, --env CartPole-v1, or keep the environment on the host: --distribution single-learner-fine.
See docs/distributions.md."""),
    "a host environment without a twin": (Deployment("on-device"), Setting("envpool:Pong-v5", False, 0, 8, 2), """\
envpool:Pong-v5 cannot run under on-device.
on-device compiles the whole loop for the device, and this environment is a Python object.
Keep the environment on the host: --distribution single-learner-fine.
See docs/distributions.md."""),
    "agents of one": (Deployment("by-agent", learners=2), SETTING, """\
jax:CartPole-v1 cannot run under by-agent.
The distribution is replicated over agents, and this environment has one.
Use an environment with several agents, like --env simple_spread, or --distribution single-learner-coarse, which is \
replicated over environments.
See docs/distributions.md."""),
    "more learners than agents": (
        Deployment("by-agent", learners=4), Setting("jax:simple_spread", True, 3, 8, 1, agent_shards=3), """\
3 agent shards cannot be divided among 4 learners.
An agent shard is the unit of replication here, and the algorithm says how many there are, as their number changes the \
result.
Use --learners 3 or fewer (jax:simple_spread has 3 agents).
See docs/distributions.md."""),
    "more learners than agent shards": (
        Deployment("by-agent", learners=3), Setting("jax:simple_spread", True, 3, 8, 1), """\
1 agent shard cannot be divided among 3 learners.
An agent shard is the unit of replication here, and the algorithm says how many there are, as their number changes the \
result.
Use --learners 1, or --agent-shards 3 (jax:simple_spread has 3 agents).
See docs/distributions.md."""),
    "too few devices": (Deployment("on-device", learners=2), SETTING, """\
on-device with 2 instances needs 2 devices.
Each takes one, and there is 1.
Use 1, or let the CPU count as 2: XLA_FLAGS=--xla_force_host_platform_device_count=2
See docs/distributions.md."""),
    "too few devices of a cluster": (
        Deployment("on-device", "ray", learners=2, hosts=(Host("a", 1),)), SETTING, """\
on-device with 2 instances needs 2 devices.
Each takes one, and there is 1.
Use 1, or let the CPU count as 2: XLA_FLAGS=--xla_force_host_platform_device_count=2
See docs/distributions.md."""),
    "devices that are not there": (Deployment(devices=4), SETTING, """\
devices = 4 needs 4 devices.
Each takes one, and there is 1.
Use 1, or let the CPU count as 4: XLA_FLAGS=--xla_force_host_platform_device_count=4
See docs/distributions.md."""),
}


@pytest.mark.parametrize("case", IMPOSSIBLE)
def test_impossible(case):
    deployment, setting, message = IMPOSSIBLE[case]
    with pytest.raises(UsageError) as caught:
        check(deployment, setting)
    assert str(caught.value) == message


def test_ray_that_is_not_installed(monkeypatch):
    monkeypatch.setattr("msrl.feasibility.ray_is_installed", lambda: False)
    with pytest.raises(UsageError) as caught:
        check(Deployment(COARSE, "ray", actors=2))
    assert str(caught.value) == """\
The backend ray needs Ray, which is not installed.
It is an extra, since the other backends do without it.
Install it: pip install 'msrl[ray]'. Or use --backend threads.
See docs/distributions.md."""
