"""Two measures of simple_spread, both played in the mpe2 original: a random policy, and a script that walks each agent
to the landmark assigned to it."""

import itertools
from collections.abc import Callable

import numpy as np
from mpe2 import simple_spread_v3

# mpe2's discrete actions.
STAY, LEFT, RIGHT, DOWN, UP = range(5)


def play(choose: Callable[[dict[str, np.ndarray]], dict[str, int]], episodes: int) -> float:
    """The mean over episodes of the return, averaged over agents."""
    env = simple_spread_v3.parallel_env()
    totals = []
    for seed in range(episodes):
        obs, _ = env.reset(seed=seed)
        total = 0.0
        while env.agents:
            obs, rewards, _, _, _ = env.step(choose(obs))
            total += float(np.mean(list(rewards.values())))
        totals.append(total)
    env.close()
    return float(np.mean(totals))


def random_return(episodes: int) -> float:
    draw = np.random.default_rng(0)
    return play(lambda obs: {agent: int(draw.integers(5)) for agent in obs}, episodes)


def scripted_return(episodes: int) -> float:
    return play(walk, episodes)


def walk(obs: dict[str, np.ndarray]) -> dict[str, int]:
    """Each agent towards its landmark, under the assignment with the least total distance."""
    agents = list(obs)
    count = len(agents)
    # An observation is: own velocity, own position, landmarks' relative positions, ...
    towards = np.stack([obs[agent][4:4 + 2 * count].reshape(count, 2) for agent in agents])  # (agent, landmark, 2)
    far = np.linalg.norm(towards, axis=-1)
    best = min(itertools.permutations(range(count)), key=lambda order: sum(far[a, m] for a, m in enumerate(order)))
    return {agent: step(towards[a, best[a]], obs[agent][:2]) for a, agent in enumerate(agents)}


def step(towards: np.ndarray, velocity: np.ndarray) -> int:
    """The action that brings a damped, pushed body to where `towards` points."""
    wanted = towards - 0.3 * velocity  # brake before arriving
    if np.abs(wanted).max() < 0.05:
        return STAY
    if abs(wanted[0]) > abs(wanted[1]):
        return RIGHT if wanted[0] > 0 else LEFT
    return UP if wanted[1] > 0 else DOWN
