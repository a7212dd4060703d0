"""PPO as one would write it by hand in torch, without a library: vectorised environments, one network each for the
policy and the value, and no more than the algorithm needs.

Gymnasium resets on the step after an episode has ended, at which the action does not matter: such rows have no weight.
"""

import contextlib
from itertools import pairwise

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical, Independent, Normal

GAMMA, LAMBDA, CLIP, VALUE, NORM, RATE = 0.99, 0.95, 0.2, 0.5, 0.5, 3e-4


def network(sizes: list[int]) -> nn.Sequential:
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


class Peer:
    version = f"(torch {torch.__version__.partition('+')[0]})"

    def __init__(self, envs: gymnasium.vector.VectorEnv, s: dict):
        self.envs, self.s, self.quantum = envs, s, s["envs"] * s["rollout"]
        space, width = envs.single_action_space, envs.single_observation_space.shape[0]
        self.discrete = isinstance(space, gymnasium.spaces.Discrete)
        self.policy = network([width, *s["hidden"], int(space.n) if self.discrete else space.shape[0]])
        self.value = network([width, *s["hidden"], 1])
        self.log_std = nn.Parameter(torch.zeros(0 if self.discrete else space.shape[0]))
        self.params = [*self.policy.parameters(), *self.value.parameters(), self.log_std]
        self.optimiser = torch.optim.Adam(self.params, RATE, fused=True)
        self.obs, self.fresh = self.observed(envs.reset(seed=0)[0]), np.zeros(s["envs"], bool)

    def observed(self, obs: np.ndarray) -> torch.Tensor:
        return torch.as_tensor(obs, dtype=torch.float32)

    def chances(self, obs: torch.Tensor) -> Categorical | Independent:
        out = self.policy(obs)
        if self.discrete:
            return Categorical(logits=out, validate_args=False)
        return Independent(Normal(out, self.log_std.exp(), validate_args=False), 1, validate_args=False)

    @torch.no_grad()
    def collect(self) -> tuple[torch.Tensor, ...]:
        """A row per step of an environment: observation, action, its log-probability, advantage, return."""
        seen, done, rewards, ends, weights = [], [], [], [], []
        for _ in range(self.s["rollout"]):
            chances = self.chances(self.obs)
            action = chances.sample()
            seen.append((self.obs, action, chances.log_prob(action)))
            weights.append(~self.fresh)
            obs, reward, terminated, truncated, _ = self.envs.step(action.numpy())
            self.obs, self.fresh = self.observed(obs), terminated | truncated
            rewards.append(reward)
            ends.append(terminated)
            done.append(self.fresh)
        obs, action, log_prob = map(torch.stack, zip(*seen))
        value = self.value(torch.cat([obs, self.obs[None]])).squeeze(-1).numpy()  # (T + 1, B)
        change = np.stack(rewards) + GAMMA * value[1:] * ~np.stack(ends) - value[:-1]
        advantage, after = np.empty_like(value[:-1]), np.zeros_like(value[0])
        for t in reversed(range(len(change))):
            advantage[t] = after = change[t] + GAMMA * LAMBDA * ~done[t] * after
        kept = torch.as_tensor(np.stack(weights)).flatten()
        rows = obs, action, log_prob, torch.as_tensor(advantage), torch.as_tensor(advantage + value[:-1])
        return tuple(each.flatten(0, 1)[kept] for each in rows)

    def learn(self, obs: torch.Tensor, action: torch.Tensor, log_prob: torch.Tensor, advantage: torch.Tensor,
              target: torch.Tensor) -> None:
        chances = self.chances(obs)
        ratio = (chances.log_prob(action) - log_prob).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
        loss = VALUE * (self.value(obs).squeeze(-1) - target).square().mean() - gain
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.params, NORM)
        self.optimiser.step()

    def run(self, steps: int) -> int:
        updates = max(1, steps // self.quantum)
        for _ in range(updates):
            rows = self.collect()
            for _ in range(self.s["epochs"]):
                for chosen in torch.randperm(len(rows[0])).split(self.s["minibatch"]):
                    if len(chosen) > 1:
                        self.learn(*(each[chosen] for each in rows))
        return updates * self.quantum

    def threads(self, count: int) -> None:
        torch.set_num_threads(count)

    def close(self) -> None:
        self.envs.close()


def ppo(s: dict) -> Peer:
    """PPO: env, envs, rollout, epochs, minibatch (rows), hidden. Some environments come as arrays, which is faster."""
    for mode in ("vector_entry_point", "sync"):
        with contextlib.suppress(gymnasium.error.Error):
            return Peer(gymnasium.make_vec(s["env"], num_envs=s["envs"], vectorization_mode=mode), s)
    raise ValueError(f"Gymnasium has no {s['env']}.")
