"""PPO that never learns: what is left is what environments, actors and buffers do."""

from typing import Any

from msrl.algorithms import load

PPO: Any = load("ppo")


class Rollouts(PPO):
    def train(self, msrl):
        obs = msrl.env_reset()
        for _ in range(self.config.updates):
            for _ in range(self.config.rollout):
                act = msrl.agent_act(obs)
                step = msrl.env_step(act.action)
                msrl.replay_buffer_insert(obs=obs, action=act.action, log_prob=act.log_prob, reward=step.reward,
                                          terminated=step.terminated, done=step.done, final_obs=step.final_obs)
                obs = step.obs
            msrl.report(reward=msrl.replay_buffer_sample().reward.mean())
