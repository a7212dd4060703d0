"""PPO on CartPole spread out over Ray workers of one core each: `python -m benchmarks.apart SETTINGS`, which are JSON.

{"deployment": fields of it, "chaos": what messages go over, "seconds": that a turn takes, "settings": of the algorithm}

Says as JSON how many environment steps it made per second, in several turns after one that does not count. Whoever
starts it gives each worker its core, by PJRT_NPROC=1: what has two instances then has two cores, as two machines would.
"""

import json
import sys

import msrl
from benchmarks.ours import Ours
from msrl.runtime import cache

TURNS = 3


def main() -> None:
    given = json.loads(sys.argv[1])
    settings = {**given["settings"], "hidden": tuple(given["settings"]["hidden"])}
    cache.enable()  # a program over other links is the same program
    program = Ours("apart", "ppo", "CartPole-v1", steps=settings["num_envs"] * settings["rollout"], passes=1,
                   deployment=msrl.Deployment(**given["deployment"]), chaos=given["chaos"], own_process=False,
                   **settings)
    program.turn(given["seconds"])
    print(json.dumps([program.turn(given["seconds"]) for _ in range(TURNS)]), flush=True)
    program.close()


if __name__ == "__main__":
    main()
