"""Workload 5: SAC on HalfCheetah, one environment, one learning per step, batches of 256, 256-256 networks.

python -m benchmarks.bench_sac [--rounds 9] [--seconds 4] [--quick]

Gymnasium's environment on both sides, against Stable-Baselines3 at the same settings. Beside it, the update by itself:
its floating-point operations, as the shapes of its matrix products give them, against what the machine does in one
large matrix product in the same run.
"""

import time

import jax
import jax.numpy as jnp

import msrl
from benchmarks.ours import Ours, profiled, shares
from benchmarks.peer import start
from benchmarks.ratios import Effort, alternate, compare, figure, spread
from benchmarks.report import Report, command
from msrl.api import Record

BATCH, CAPACITY, WARMUP, WIDTH = 256, 100_000, 256, 256
ENV, OBS, ACTIONS = "HalfCheetah-v5", 17, 6
SETTINGS = dict(num_envs=1, batch_size=BATCH, hidden=(WIDTH, WIDTH), capacity=CAPACITY, actor_learning_rate=3e-4,
                critic_learning_rate=3e-4, alpha_learning_rate=3e-4)


def flops() -> float:
    """Of one update, in matrix products alone: forwards once, backwards once for weights and once for inputs."""
    actor = 2 * BATCH * (OBS * WIDTH + WIDTH * WIDTH + WIDTH * 2 * ACTIONS)
    critics = 2 * 2 * BATCH * ((OBS + ACTIONS) * WIDTH + WIDTH * WIDTH + WIDTH)
    # Target: actor and critics forwards. Critics: 3 passes. Actor: its own 3, and critics forwards and to their inputs.
    return actor + critics + 3 * critics + 3 * actor + 2 * critics


def updates_alone():
    """One update in a compiled loop of 20, on a batch that stays: seconds each."""
    learner = msrl.compile("sac", f"gymnasium:{ENV}", total_steps=WARMUP + 1, warmup=WARMUP,
                           **SETTINGS).world.agent.learner
    rows = dict(obs=(OBS,), action=(ACTIONS,), reward=(), next_obs=(OBS,))
    batch = Record(terminated=jnp.zeros(BATCH, bool),
                   **{name: jax.random.normal(jax.random.key(1), (BATCH, *shape)) for name, shape in rows.items()})
    count = 20

    def loop(state):
        return jax.lax.fori_loop(0, count, lambda i, s: learner.learn(s, jax.random.key(i), batch)[0], state)

    run, state = jax.jit(loop, donate_argnums=0), learner.init(jax.random.key(0))
    return lambda: _time(run, state) / count


def products_alone(rows: int = 4096, side: int = 1024):
    """One matrix product: seconds for each floating-point operation of it."""
    a, b = jnp.ones((rows, side)), jnp.ones((side, side))
    multiply = jax.jit(lambda a: a @ b)
    return lambda: _time(multiply, a) / (2 * rows * side * side)


def _time(function, argument) -> float:
    given = jax.tree.map(jnp.copy, argument)
    began = time.perf_counter()
    jax.block_until_ready(function(given))
    return time.perf_counter() - began


def measure(effort: Effort, report: Report) -> None:
    ours = Ours("ours", "sac", f"gymnasium:{ENV}", steps=1, passes=50, warmup=WARMUP, **SETTINGS)
    sb3 = start(report, "SB3", "benchmarks.peers.sb3:sac", env=ENV, batch=BATCH, hidden=[WIDTH, WIDTH],
                capacity=CAPACITY, warmup=WARMUP, quantum=WARMUP // 2)
    contestants = [each for each in (ours, sb3) if each is not None]
    speeds = alternate(contestants, effort)
    if sb3 is not None:
        report.add(compare("SAC HalfCheetah", sb3.name, speeds["ours"], speeds[sb3.name], 1.5))
    for each in contestants:
        each.close()
    update, product = updates_alone(), products_alone()
    update(), product()
    rates = [(flops() / update(), 1 / product()) for _ in range(3 * effort.rounds)]
    report.add(compare("SAC's update alone", "one matrix product of 4096×1024×1024", *zip(*rates, strict=True),
                       unit="FLOP/s"))
    alone = [flops() / rate for rate, _ in rates]
    parts = profiled("sac", f"gymnasium:{ENV}", WARMUP + 1000, warmup=WARMUP, **SETTINGS)
    report.limit(f"SAC HalfCheetah: {shares(parts)} of the time. The update alone has {figure(flops())}FLOP and takes "
                 f"{spread(alone)[1] * 1e3:.2f} ms.")


if __name__ == "__main__":
    command("sac", measure, __doc__, Effort(seconds=4.0))
