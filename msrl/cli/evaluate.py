"""`msrl eval`: plays the weights of a run folder."""

import sys
from typing import Any

import numpy as np

from msrl.cli.options import EvalOptions, read
from msrl.errors import UsageError
from msrl.playing import Player, load_players
from msrl.runtime import cache
from msrl.runtime.files import dumps
from msrl.runtime.reading import read_config


def main(args: list[str], began: float) -> int:
    options: EvalOptions = read(EvalOptions, args, "msrl eval")
    if options.episodes < 1:
        raise UsageError(f"--episodes is {options.episodes}.", why="It must be 1 or more.")
    about = read_config(options.run)
    cache.enable()
    players = load_players(options.run, options.env, options.algorithm)
    out = sys.stderr if options.json else sys.stdout
    out.write(f"algorithm    {about['algorithm']}, trained on {about['env_id']}\n"
              f"environment  {players[0].env.spec.id}\n")
    try:
        rows = [judge(player, options.episodes) for player in players]
    finally:
        players[0].env.close()
    for row in rows:
        label = f"return       seed {row['seed']}: " if len(rows) > 1 else "return       "
        out.write(f"{label}{row['eval_return_mean']:.1f} ± {row['eval_return_std']:.1f} over {options.episodes} "
                  f"episodes, {row['eval_length_mean']:.0f} steps long\n")
    out.flush()
    if options.json:
        means = [row["eval_return_mean"] for row in rows]
        first = rows[0] if len(rows) == 1 else {"eval_return_mean": float(np.mean(means))}
        sys.stdout.write(dumps({
            "algorithm": about["algorithm"], "env": options.env or about["env"], "env_id": players[0].env.spec.id,
            "trained_on": about["env_id"], "run_dir": str(options.run), **first, "eval_episodes": options.episodes,
            "per_seed": rows}) + "\n")
        sys.stdout.flush()
    return 0


def judge(player: Player, episodes: int) -> dict[str, Any]:
    played = player.play(episodes)
    returns, lengths = np.asarray(played.returns), np.asarray(played.lengths)
    return {"seed": player.seed, "eval_return_mean": float(returns.mean()), "eval_return_std": float(returns.std()),
            "eval_return_min": float(returns.min()), "eval_return_max": float(returns.max()),
            "eval_length_mean": float(lengths.mean())}
