"""A distribution of one's own: the replay in a place by itself, between the actors and the learner.

    python examples/own_distribution.py           a few seconds of DQN, spread out over four places
    python examples/own_distribution.py 20000     the same for 20 000 environment steps

From the command line: `msrl train dqn --env CartPole-v1 --shards 2 --actors 2
--distribution examples/own_distribution.py:ReplayApart`, and `msrl graph` with the same flags draws it.
"""

import sys

import msrl
from msrl.distribution.policy import DistributionPolicy, rest
from msrl.ir.placed import Fragment


class ReplayApart(DistributionPolicy):
    name = "replay-apart"
    summary = "Environments and actors replicated; replays in a place of their own; one learner."

    def fragments(self, graph, with_actors):
        acting = ("env", "actor", *sorted(with_actors))
        replays = tuple(name for name, kind in graph.components if kind == "buffer" and name not in with_actors)
        apart = (Fragment("replay", replays),) if replays else ()
        return Fragment("actor", acting, axis="env"), *apart, Fragment("learner", rest(graph, (*acting, *replays)))


def main(total_steps: int = 4000) -> None:
    program = msrl.compile("dqn", "CartPole-v1", total_steps=total_steps, num_envs=8, shards=2, warmup=256,
                           capacity=2048, distribution=f"{__file__}:ReplayApart", actors=2)
    for fragment in program.placed.fragments:
        print(f"{fragment.name}: {', '.join(fragment.components)}")
    for move in program.placed.moves:
        print(f"{move.kind} {move.value} from {move.source} to {move.target}")
    updates = list(program.run())
    print(f"{updates[-1].env_steps} steps; return of 20 episodes: {program.evaluate(20)[0].returns.mean():.1f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
