"""What a setting is called elsewhere: a name that nothing here has goes in, those that it may have meant come out.

Names are written with underscores. First come those of the same meaning in other libraries and papers, then those
that are written alike.
"""

import difflib
from collections.abc import Iterable

_OTHERS = {
    "learning_rate": "lr alpha step_size learning_rates rate",
    "actor_learning_rate": "lr learning_rate actor_lr policy_lr pi_lr",
    "critic_learning_rate": "lr learning_rate critic_lr q_lr qf_lr value_lr",
    "alpha_learning_rate": "alpha_lr ent_coef_lr temperature_lr",
    "gamma": "discount discount_factor discounting",
    "gae_lambda": "lam lmbda lambda gae gae_lam",
    "vtrace_lambda": "lam lmbda lambda",
    "total_steps": "steps timesteps total_timesteps n_timesteps num_timesteps max_steps frames total_frames env_steps "
                   "num_env_steps",
    "num_envs": "envs n_envs num_environments number_of_envs env_num num_parallel_envs",
    "rollout": "n_steps num_steps nsteps rollout_length rollout_len rollout_steps horizon unroll unroll_length "
               "steps_per_epoch t_max",
    "epochs": "n_epochs num_epochs update_epochs ppo_epochs k_epochs",
    "minibatches": "n_minibatches num_minibatches num_mini_batch mini_batches nminibatches",
    "batch_size": "batch bs batchsize minibatch_size",
    "clip": "clip_range clip_coef clip_eps clip_epsilon eps_clip clip_ratio clip_param cliprange",
    "value_coef": "vf_coef vf_coeff value_loss_coef critic_coef",
    "entropy_coef": "ent_coef ent_coeff entropy entropy_coeff entropy_cost",
    "max_grad_norm": "grad_clip clip_grad grad_norm max_norm gradient_clip clip_grad_norm",
    "anneal": "anneal_lr lr_decay lr_schedule linear_decay",
    "normalise_obs": "normalize_obs norm_obs normalize normalise obs_norm",
    "normalise_reward": "normalize_reward norm_reward normalize_rewards reward_norm",
    "capacity": "buffer_size replay_size buffer memory_size replay_buffer_size memory",
    "warmup": "learning_starts start_steps warmup_steps random_steps min_replay_size",
    "train_every": "train_freq train_frequency train_interval update_every",
    "target_every": "target_update_interval target_network_frequency target_update target_freq sync_every",
    "tau": "polyak soft_update",
    "initial_alpha": "ent_coef temperature init_temperature alpha",
    "epsilon_start": "eps_start start_e exploration_initial_eps epsilon",
    "epsilon_end": "eps_end end_e exploration_final_eps min_epsilon",
    "epsilon_fraction": "exploration_fraction eps_decay epsilon_decay",
    "hidden": "hidden_sizes hidden_size hidden_dim hidden_layers net_arch layers widths units",
    "env": "env_id env_name environment gym_id gym task",
    "seeds": "n_seeds num_seeds trials",
    "strict": "deterministic reproducible",
    "run_dir": "log_dir logdir out output output_dir save_dir save_path results_dir dir",
    "eval_every": "eval_freq eval_interval evaluation_interval",
    "eval_episodes": "n_eval_episodes num_eval_episodes evaluation_episodes",
    "episodes": "n_eval_episodes n_episodes num_episodes eval_episodes",
    "checkpoint_every": "save_freq save_every save_interval checkpoint_freq checkpoint_interval",
    "checkpoint": "load restore ckpt",
    "actors": "workers num_workers n_workers num_actors num_env_runners runners",
    "learners": "num_learners gpus num_gpus",
    "address": "ray_address cluster",
    "json": "as_json",
}


def suggest(name: str, known: Iterable[str]) -> list[str]:
    """Those of the known names that may have been meant."""
    known, name = list(known), name.replace("-", "_").lower()
    meant = [each for each in known if name in _OTHERS.get(each, "").split()]
    return meant or difflib.get_close_matches(name, known, n=1, cutoff=0.6)
