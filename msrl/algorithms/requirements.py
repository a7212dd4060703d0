"""What an algorithm cannot take, said before anything is built.

In: the specification of an environment. Out: nothing, or an EnvError that names what the algorithm can take.
"""

import numpy as np

from msrl.api import Box, Discrete, EnvSpec, MultiDiscrete
from msrl.errors import EnvError


def use(spec: EnvSpec) -> str:
    """The advice for whoever has this environment: algorithms that do take it, and never one that refuses it, too."""
    vector, flat = not _is_image(spec), not isinstance(spec.action, Box) or len(spec.action.shape) == 1
    taken = {"mappo": bool(spec.agents) and vector and flat, "ppo": not spec.agents and flat,
             "dqn": not spec.agents and isinstance(spec.action, Discrete),
             "sac": not spec.agents and vector and flat and isinstance(spec.action, Box) and bounded(spec.action)}
    names = [name for name, takes in taken.items() if takes]
    if names:
        return f"Use {' or '.join(names)}, or another environment."
    return ("No algorithm here takes it. Flatten it with a wrapper, or write an algorithm of your own: "
            "msrl new my_algo.py")


def _is_image(spec: EnvSpec) -> bool:
    return isinstance(spec.observation, Box) and len(spec.observation.shape) == 3


def require_one_agent(algorithm: str, spec: EnvSpec) -> None:
    if spec.agents:
        raise EnvError(
            f"{algorithm} cannot take {spec.id}: it has {len(spec.agents)} agents.",
            why=f"{algorithm} learns for one agent, whose observations have no agent dimension.",
            instead=use(spec),
        )


def require_agents(algorithm: str, spec: EnvSpec) -> None:
    if not spec.agents:
        raise EnvError(
            f"{algorithm} cannot take {spec.id}: it has one agent.",
            why=f"{algorithm}'s critic sees the observations of several agents side by side.",
            instead=use(spec),
        )


def require_action(algorithm: str, spec: EnvSpec, *kinds: type) -> None:
    """The action space is one of `kinds`; a Box must be a vector."""
    space = spec.action
    if isinstance(space, kinds) and (not isinstance(space, Box) or len(space.shape) == 1):
        return
    names = {Discrete: "Discrete", MultiDiscrete: "MultiDiscrete", Box: "Box of rank 1"}
    raise EnvError(
        f"{algorithm} cannot take {spec.id}: its actions are {space}.",
        why=f"{algorithm} takes actions of these spaces: {', '.join(names[kind] for kind in kinds)}.",
        instead=use(spec),
    )


def require_vector_observations(algorithm: str, spec: EnvSpec) -> None:
    if _is_image(spec):
        raise EnvError(
            f"{algorithm} cannot take {spec.id}: its observations are images, {spec.observation}.",
            why=f"{algorithm}'s networks are fully connected, and take vectors and choices.",
            instead=use(spec),
        )


def require_bounds(algorithm: str, spec: EnvSpec) -> None:
    if not bounded(spec.action):
        raise EnvError(
            f"{algorithm} cannot take {spec.id}: its actions {spec.action} have no finite bounds.",
            why=f"{algorithm} squashes its actions into [-1, 1], and stretches them to the bounds.",
            instead="Use ppo, or a wrapper that says what the bounds are.",
        )


def bounded(space: Box) -> bool:
    """Whether every entry of the space has finite bounds."""
    return bool(np.all(np.isfinite(space.low)) and np.all(np.isfinite(space.high)))
