"""Steps through a training loop as the plain Python it is.

    python examples/debug_eager.py          runs two updates of PPO, printing what every interaction gives
    python examples/debug_eager.py --pdb    stops in the debugger at the first line of `train`

In a loop of one's own, `print` and `breakpoint()` do as well: `msrl.eager(...)` runs it, and so does
`msrl train ... --eager`. What the loop computes eagerly is, to the bit, what the interpreter of its graph computes.
Components are compiled op by op; `jax.disable_jit()` around the run makes their insides plain Python as well, and far
slower.
"""

import pdb
import sys

import jax
import numpy as np

import msrl
from msrl.backends.eager import Eager
from msrl.engines.reference import Reference

SMALL = dict(total_steps=128, num_envs=4, rollout=16)  # two updates


class Watched(Eager):
    """The interaction API with a look at what passes through it."""

    def env_step(self, action):
        step = super().env_step(action)
        print(f"env_step     action {np.asarray(action)}, ended {np.asarray(step.done).astype(int)}")
        return step

    def agent_learn(self, batch, *extra):
        shapes = ", ".join(f"{name} {leaf.shape}" for name, leaf in batch.asdict().items())
        print(f"agent_learn  batch of {shapes}")
        metrics = super().agent_learn(batch, *extra)
        print(f"             loss {metrics['loss']:.4f}")
        return metrics


def main(debugger: bool = False) -> None:
    program = msrl.compile("ppo", "CartPole-v1", **SMALL)
    watched = Watched(Reference(program.ops, program.root, program.shapes.items), program.graph)
    if debugger:
        pdb.Pdb(skip=["jax.*", "msrl.backends.*"]).runcall(program.eager, watched)
    else:
        program.eager(watched)

    resources, _ = program.interpret()
    same = jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), watched.resources["$weights"],
                                     resources["$weights"]))
    print(f"the same weights as the graph's interpreter gives, to the bit: {same}")
    assert same


if __name__ == "__main__":
    main(debugger="--pdb" in sys.argv[1:])
