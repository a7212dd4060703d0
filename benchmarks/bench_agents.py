"""Workload 6: MAPPO on simple_spread with 3, 6, 12, 24 and 48 agents: does the time of a step grow as observations do?

python -m benchmarks.bench_agents [--rounds 5] [--seconds 3] [--quick]

Each agent sees all others, so that N agents have 6 N² numbers to see. 16 environments × 25 steps, all else as it
usually is, each number of agents as one compiled program. Rows are the growth of the time per environment step over
that of the numbers observed, both against 3 agents: at most 1. The plot has the times themselves.
"""

from benchmarks.ours import Ours
from benchmarks.plots import lines_plot
from benchmarks.ratios import Effort, Row, alternate, figure, spread
from benchmarks.report import RESULTS, Report, command
from msrl.envs.simple_spread import SimpleSpread

AGENTS = (3, 6, 12, 24, 48)
ENVS, ROLLOUT = 16, 25


def observed(agents: int) -> int:
    """Numbers that all agents see in one step."""
    return agents * SimpleSpread(agents).spec.observation.shape[0]


def measure(effort: Effort, report: Report) -> None:
    passes = {3: 20, 6: 12, 12: 5, 24: 2, 48: 1}  # looks of some tenths of a second
    programs = {agents: Ours(f"{agents} agents", "mappo", SimpleSpread(agents), steps=ENVS * ROLLOUT,
                             passes=passes[agents], own_process=False, num_envs=ENVS, rollout=ROLLOUT)
                for agents in AGENTS}
    speeds = alternate(list(programs.values()), effort)
    times = {agents: [1 / speed for speed in speeds[program.name]] for agents, program in programs.items()}
    first = AGENTS[0]
    for agents in AGENTS[1:]:
        growth = observed(agents) / observed(first)
        low, middle, high = spread([a / b / growth for a, b in zip(times[agents], times[first], strict=True)])
        report.add(Row(f"MAPPO simple_spread, {agents} agents", f"{growth:.0f} × the time with 3",
                       f"{spread(times[agents])[1] * 1e6:.0f} µs/step",
                       f"{spread(times[first])[1] * 1e6 * growth:.0f} µs/step", middle, low, high, 1.0, at_least=False))
    for program in programs.values():
        program.close()
    middles = [spread(times[agents])[1] * 1e6 for agents in AGENTS]
    sizes = [observed(agents) for agents in AGENTS]
    even = [middles[0] * size / sizes[0] for size in sizes]
    report.figures.update(agents=AGENTS, observed=sizes, microseconds=middles)
    RESULTS.mkdir(exist_ok=True)
    lines_plot(sizes, {"measured": middles, "as observations grow": even}, RESULTS / "agents.png",
               "numbers observed in a step, by 3 to 48 agents", "µs per environment step")
    report.limit(f"MAPPO: from {figure(sizes[0])} to {figure(sizes[-1])} numbers observed in a step, its time goes "
                 f"from {middles[0]:.0f} to {middles[-1]:.0f} µs.")


if __name__ == "__main__":
    command("agents", measure, __doc__, Effort(rounds=5, seconds=3.0))
