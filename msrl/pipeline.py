"""The whole pipeline as one function of named steps: load, wrap, lower, find shapes; then run.

`compile` turns an algorithm and an environment into a `Program`. Iterating over `Program.run()` trains it and lets the
caller look between chunks: log, evaluate, save, or stop.
"""

import copy
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from msrl import algorithms, envs
from msrl import distribution as distributions
from msrl.api import Config, Env, Trainer
from msrl.backends.eager import Eager, run_eagerly
from msrl.backends.learnt import Learnt, joined, stacked
from msrl.backends.profiling import watch
from msrl.backends.saving import Saving, check_loop
from msrl.backends.skips import Skips, timed
from msrl.backends.states import copy_array, shards_of, unstack
from msrl.backends.worker import Look, Worker, leader
from msrl.backends.workers import make_backend, make_courier, make_workers
from msrl.deployment import Deployment
from msrl.distribution.annotations import annotated
from msrl.distribution.effects import keep_effects_single
from msrl.distribution.fragments import check_fragments, check_sizes
from msrl.distribution.place import place
from msrl.engines.evaluation import Episodes, Evaluator, Watch
from msrl.engines.filling import check_counts
from msrl.engines.guard import blank
from msrl.engines.host import traceable
from msrl.engines.library import make_ops
from msrl.engines.ops import roots
from msrl.engines.platforms import start_jax
from msrl.engines.purity import find_pure_shapes
from msrl.engines.reference import Reference
from msrl.engines.tables import decided
from msrl.engines.world import make_world
from msrl.envs.host import HostEnv
from msrl.envs.wrappers import observed, stats
from msrl.errors import Span, UsageError
from msrl.feasibility import Setting, check, several_devices
from msrl.frontend.lower import lower
from msrl.ir.graph import base
from msrl.ir.interp import Names, interpret
from msrl.ir.placed import AgentAxis
from msrl.ir.verify import verify
from msrl.passes import chosen
from msrl.passes.decide_branches import decide_branches
from msrl.passes.overlap import overlap
from msrl.projection.verify import verify_placed
from msrl.runtime import threads
from msrl.runtime.bottleneck import Track
from msrl.runtime.chaos import Chaos
from msrl.runtime.checkpoints import Checkpoint
from msrl.runtime.ending import closed_at_exit
from msrl.runtime.ledger import Ledger
from msrl.runtime.weights import weights_sha256


@dataclass(frozen=True)
class Update:
    """What a run says of itself between two chunks. With several seeds, numbers are means over them."""

    env_steps: int
    metrics: dict[str, float]  # means over the reports since the last update
    episodes: int  # finished since the last update
    episode_return: float | None  # their mean
    episode_length: float | None
    accounts: dict[str, Any]  # environment steps: produced = trained + dropped + in_flight; lags, where asynchronous
    at: tuple[int, int] = (-1, 0)  # where the place that learns is: the loop, as it stands in the graph, and its pass
    updates_skipped: int = 0  # learns so far that were not finite and not applied; of all seeds


class Program:
    """A compiled trainer. Run it once; `resources` are those of the last look (weights, environment states, ...)."""

    def __init__(self, trainer: Trainer, env: Env, *, seed: int, seeds: int, strict: bool,
                 deployment: Deployment = Deployment(), checkpoint_every: int = 0,  # noqa: B008 (frozen)
                 start: Checkpoint | None = None, profile: int | None = None,
                 chaos: Chaos = Chaos(), non_finite: str = "stop", stream: int = 0,  # noqa: B008 (frozen)
                 own_process: bool = False):
        """`checkpoint_every`: updates between two checkpoints. `start`: one to go on from. `profile`: how many events
        of each instance its trace is to keep, if there is to be one. `chaos`: what is to go wrong. `stream`: how often
        a learn that is not finite has made the run go back. `own_process`: does the process have nothing else to do, so
        that its number of threads may be chosen?"""
        began, self.chaos = time.perf_counter(), chaos
        self.checkpoint_every, self.start, self.profile = checkpoint_every, start, profile
        self.trainer, self.env, self.seed, self.seeds, self.strict = trainer, env, seed, seeds, strict
        self.world = make_world(trainer, env)
        self.folded: set[tuple[str, Span]] = set()
        self.graph = lower(trainer, tuple(self.world.buffers), tuple(self.world.own), folded=self.folded)
        check_counts(self.graph, self.world)
        if "overlap" in chosen(deployment.switches(), strict):
            self.graph = overlap(self.graph)
            verify(self.graph)
        self.ops = make_ops(self.world, self.graph, non_finite=non_finite)
        self.shapes, self.purity = find_pure_shapes(self.graph, self.ops)
        self.traceable = all(traceable(node, self.ops) for node in self.graph.nodes)
        if seeds > 1 and (strict or not self.traceable):
            raise UsageError(
                f"{seeds} seeds cannot be trained at once here.",
                why="They share one compiled program, which strict mode and environments on the host do not have.",
                instead="Train them one after another: msrl.train does, and so does `msrl train --seeds`.")
        if seeds > 1 and "fuse-stretches" not in chosen(deployment.switches(), strict):
            raise UsageError(
                f"{seeds} seeds cannot be trained at once without fuse-stretches.",
                why="They share one compiled program, and may leave a loop after different numbers of passes.",
                instead="Leave out -fuse-stretches, or train them one after another: with one seed at a time.",
                docs="docs/distributions.md#passes")
        self.fingerprints = check_loop(self.graph, start)
        if own_process and seeds == 1:
            threads.choose(self.ops.tracing.work, deployment, distributions.load(deployment.distribution))
        self.stream, self.root = stream, roots(seed, seeds, stream)  # from here on JAX runs
        self._deploy(deployment)
        self.evaluator = Evaluator(self.world.agent.actor, trainer.config.agent_shards)
        self.resources: Mapping[str, Any] = {}
        self.env_steps = 0
        self.checkpoint: Checkpoint | None = None
        self._ready_seconds = time.perf_counter() - began

    def _deploy(self, deployment: Deployment) -> None:
        policy = distributions.load(deployment.distribution)
        with_actors = frozenset(name for name, buffer in self.world.buffers.items() if buffer.home == "actor")
        fragments = check_fragments(policy, policy.fragments(self.graph, with_actors), self.graph,
                                    actors=deployment.actors, learners=deployment.learners)
        fragments = check_fragments(policy, annotated(fragments, self.graph), self.graph, actors=deployment.actors,
                                    learners=deployment.learners)
        fragments = keep_effects_single(policy, fragments, self.graph, self.world.on_host(), actors=deployment.actors,
                                        learners=deployment.learners)
        agents = AgentAxis(self.ops.agents.spread(), self.ops.agents.divisible(), self.ops.layouts.seen_whole)
        graph = self.graph
        if "decide-branches" in chosen(deployment.switches(), self.strict):
            graph = decide_branches(graph, lambda name: decided(name, self.shapes.tabular, self.ops.scopes))
            verify(graph)
        self.placed = place(graph, fragments, self.ops.axes, agents)
        verify_placed(self.placed)
        learners, devices = deployment.learners, 1
        if policy.device_each and not self.strict:  # strict mode runs the shards one by one, as it does everywhere
            learners, devices = 1, deployment.learners
        self.workers = make_workers(self.placed, self.ops, self.shapes, self.root, self.strict, deployment.actors,
                                    learners, devices, policy.asynchronous, deployment.max_lag,
                                    deployment.switches(), make_courier(deployment.backend, self.chaos.link),
                                    apart=deployment.backend == "ray")
        check_sizes(policy, self.placed, self.workers[0].exchange.sizes, with_actors,
                    self.trainer.config.learner_shards)
        if self.profile is not None:
            for worker in self.workers:
                watch(worker, self.graph, self.profile)
        self.lead = leader(self.workers)
        self.saving = Saving(self.workers, self.lead, self.placed, self.checkpoint_every, self.start, {
            **self.fingerprints, "seed": self.seed, "seeds": self.seeds, "strict": self.strict,
            "stream": self.stream})
        self.backend = make_backend(deployment.backend, self.workers, self.placed, self.trainer, self.env,
                                    seed=self.seed, seeds=self.seeds, address=deployment.address,
                                    hosts=[host.name for host in deployment.hosts], chaos=self.chaos,
                                    stream=self.stream)
        self.skips = Skips(self.start, not self.saving.ordered)
        self.learners = [w for w in self.workers if "learner" in w.program.fragment.components
                         and w.program.fragment.axis == "agent"]  # each has what its agents learnt

    def ask_checkpoint(self) -> bool:
        """Asks for a checkpoint as soon as can be; False if there can be none."""
        return self.backend.ask() if hasattr(self.backend, "ask") else self.saving.schedule.ask()

    def taken(self) -> Checkpoint | None:
        """The newest checkpoint, once."""
        found, self.checkpoint = self.checkpoint, None
        return found

    def deployed(self, deployment: Deployment, start: Checkpoint | None = None) -> "Program":
        """The same strict program spread out in another way, and not yet run. What was compiled is shared: strict
        mode runs the same executables wherever it is."""
        assert self.strict
        other = copy.copy(self)
        other.start, other.checkpoint_every = start, 0
        other._deploy(deployment)
        other.resources, other.env_steps = {}, 0
        return other

    @property
    def compile_seconds(self) -> float:
        return self._ready_seconds + self.run_compile_seconds

    @property
    def run_compile_seconds(self) -> float:
        """Of the time that running took, what went into compiling."""
        return max(worker.compile_seconds for worker in self.workers)

    @closed_at_exit
    def run(self) -> Generator[Update]:
        """Trains; an Update whenever the place that learns lets the host look, and one at the end."""
        # Who stops early has then stopped all workers.
        with self.purity.unchanged(), closing(self.backend.run()) as looks:
            yield from self._follow(timed(looks, self.graph, lambda: self.env_steps, self.lead))

    def _follow(self, looks: Iterator[tuple[Worker, Look]]) -> Iterator[Update]:
        seen = np.array(self.start.about["episodes"] if self.start else (0.0, 0.0, 0.0))
        steps: dict[Worker, tuple[int, np.ndarray]] = {}  # of each worker with environments
        states: dict[Worker, list[Any]] = {}
        learnt = Learnt(self.learners, self.strict)
        for worker, look in looks:
            if worker.leads:
                self.skips.hear(worker, look)
            if "$env" in look:
                count = int(np.max(np.asarray(look.get("#env.step", 0)))) * worker.ops.world.num_envs
                steps[worker] = count, _episodes(look["$env"])
                # Another worker's arrays may be overwritten before they are asked for.
                now = worker is self.lead and not self.learners
                states[worker] = look["$env"] if now else jax.tree.map(copy_array, look["$env"])
            if worker in self.learners:
                learnt.add(worker, look)
            update = None
            if worker is self.lead:
                self.resources = look
                update = self._update(steps, states, seen)
            self.checkpoint = self.saving.collect(worker, seen.tolist()) or self.checkpoint
            if update is not None:
                if not self.learners:
                    yield update
                    continue
                learnt.wait(worker.at, (update, self.shard_states))
            for (update, self.shard_states), self.resources in learnt.ready():
                yield update
        if len(self.workers) == 1:
            return  # its last look was the end
        self.resources = {name: value for worker in self.workers for name, value in worker.resources.items()}
        ended = self.lead.exchange.ended
        if self.learners:
            self.resources.update(joined([(w, w.resources) for w in self.learners], self.strict))
        elif len(ended) > 1:  # of learners that do not wait for one another, the last to be done has the newest
            last = next(worker for worker in self.workers if worker.leads and worker.instance == ended[-1])
            self.resources.update((name, last.resources[name]) for name in ("$learner", "$weights"))
        states = {worker: worker.resources["$env"] for worker in self.workers if "$env" in worker.resources}
        if self.lead.group:  # each has a device of its own
            states = {worker: jax.tree.map(copy_array, state) for worker, state in states.items()}
        yield self._update(steps, states, seen, {})  # the metrics were in the last look of the one that leads

    def _update(self, steps: dict[Worker, tuple[int, np.ndarray]], states: dict[Worker, Any], seen: np.ndarray,
                metrics: dict[str, float] | None = None) -> Update:
        # Those who step may be heard of after the one that learns; what an earlier run made is known.
        self.env_steps = max(sum(count for count, _ in steps.values()), self.start.env_steps if self.start else 0)
        self.shard_states = [state for worker in self.workers if worker in states
                             for state in shards_of(states[worker], worker.ops.world.shards, self.seeds)]
        totals = sum((totals for _, totals in steps.values()), np.zeros(3))
        if totals[0] < seen[0]:  # of a run that goes on, not all have been heard of yet
            totals = seen.copy()
        episodes, returns, lengths = totals - seen
        seen[:] = totals
        metrics = self._metrics() if metrics is None else metrics
        return Update(self.env_steps, metrics, int(episodes), float(returns / episodes) if episodes else None,
                      float(lengths / episodes) if episodes else None, self.accounts(),
                      self.point(*self.lead.at or ("", 0)), self.skips.total)

    def point(self, loop: str, passes: int) -> tuple[int, int]:
        return self.lead.order.get(loop, -1), passes

    def accounts(self) -> dict[str, Any]:
        """What became of the environment steps, as far as they have reached the learner."""
        return self.skips.moved(self._ledger())

    def _ledger(self) -> dict[str, Any]:
        exchange = self.lead.exchange
        if not self.saving.accounted:  # where steps are made, they are learnt from
            return Ledger(self.env_steps, self.env_steps).asdict()
        with exchange.changed:
            return exchange.ledger.asdict()

    def _metrics(self) -> dict[str, float]:
        if self.strict:
            machine = self.lead.engine
            assert isinstance(machine, Reference)
            rows, machine.reports = machine.reports, []
            return {name: float(np.mean([row[name] for row in rows if name in row]))
                    for name in dict.fromkeys(name for row in rows for name in row)}
        sums: dict[str, Any] = {}
        counts: dict[str, Any] = {}
        # By NumPy: they are small, and `device_get` took a third of a look's time.
        for total, count in jax.tree.map(np.asarray, self.resources.get("$metrics") or {}).values():
            for name, value in total.items():  # the same metric may be reported in several places
                sums[name] = sums.get(name, 0.0) + np.sum(value, dtype=np.float64)
                counts[name] = counts.get(name, 0) + np.sum(count)
        return {name: float(total / counts[name]) for name, total in sums.items() if counts[name]}

    def env_states(self) -> list[list[Any]]:
        """Per seed, the environment's state of each shard."""
        if self.seeds == 1:
            return [self.shard_states]
        return list(map(list, zip(*(unstack(state, self.seeds) for state in self.shard_states), strict=True)))

    def per_seed(self, resource: str) -> list[Any]:
        """What is there once for each agent shard has a leading dimension for them."""
        value = self.resources[resource]
        if self.ops.devices:  # one copy will do
            value = jax.device_get(value)
        if self.world.over(resource[1:]) == "agent" and (self.strict or self.learners):
            value = stacked(value)
        return unstack(value, self.seeds) if self.seeds > 1 else [value]

    def evaluate(self, episodes: int = 100, watch: Watch = lambda ended: True) -> list[Episodes]:
        """Plays the newest weights of each seed, in environments of their own. `watch` hears how many have ended."""
        seeds = zip(self.per_seed("$weights"), self.env_states(), strict=True)
        return [self.evaluator(self.env.frozen(states), weights, jax.random.key(self.seed + number), episodes,
                               lambda ended, before=number * episodes: watch(before + ended))
                for number, (weights, states) in enumerate(seeds)]

    def prepare(self, episodes: int = 0) -> None:
        """Begins to compile in the background what the run starts with, and then, if there are to be any episodes, what
        evaluates it."""
        began = time.perf_counter()
        self.backend.prepare()
        if episodes and self.env.traceable:
            state = jax.eval_shape(partial(self.env.init, num_envs=self.world.envs_per_shard), jax.random.key(0))
            weights = next(shape for name, shape in self.shapes.names.items() if base(name) == "$weights")
            self.evaluator.prepare(self.env.frozen([jax.tree.map(blank, state)]), weights, episodes)
        self._ready_seconds += time.perf_counter() - began

    def tracks(self) -> list[Track]:
        """The traces of all instances, if they are kept."""
        return [Track(w.program.fragment.name, w.instance, w.trace) for w in self.workers if w.trace is not None]

    def params(self) -> list[Any]:
        """The learner's parameters, per seed."""
        return [state.params for state in self.per_seed("$learner")]

    def interpret(self, machine: Reference | None = None) -> tuple[Names, list[dict[str, float]]]:
        """The meaning: the resources and reports that the graph's interpreter gives. A machine of one's own can watch
        it being found."""
        self.purity.check_unchanged()
        machine = machine or Reference(self.ops, self.root, self.shapes.items)
        return interpret(self.graph, machine), machine.reports

    def eager(self, interaction: Eager | None = None) -> tuple[Names, list[dict[str, float]]]:
        """The same from running `train` as plain Python; an interaction of one's own can watch it."""
        self.purity.check_unchanged()
        interaction = interaction or Eager(Reference(self.ops, self.root, self.shapes.items), self.graph)
        return run_eagerly(self.trainer, interaction, self.folded)


def compile(algorithm: str | type[Trainer], env: Any, *, seed: int = 0, seeds: int = 1, strict: bool = False,
            config: Config | None = None, deployment: Deployment = Deployment(), checkpoint_every: int = 0,  # noqa: B008
            start: Checkpoint | None = None, profile: int | None = None, chaos: Chaos = Chaos(),  # noqa: B008
            non_finite: str = "stop", stream: int = 0, own_process: bool = False, **fields: Any) -> Program:
    """Compiles an algorithm for an environment. `fields` override the configuration's defaults."""
    cls = algorithms.load(algorithm) if isinstance(algorithm, str) else algorithm
    settings = algorithms.configured(cls, config, fields)
    original = envs.make(env)
    check_deployment(deployment, original, settings, strict)
    if isinstance(original, HostEnv):
        original.exact = strict
    wrapped = cls.wrap(observed(original, chaos.poison("reward"), chaos.poison("observation")), settings)
    return Program(cls(settings, wrapped.spec), wrapped, seed=seed, seeds=seeds, strict=strict,
                   deployment=deployment, checkpoint_every=checkpoint_every, start=start, profile=profile,
                   chaos=chaos, non_finite=non_finite, stream=stream, own_process=own_process)


def check_deployment(deployment: Deployment, env: Env, config: Config, strict: bool) -> None:
    """Refuses what is impossible for this environment and configuration on this machine."""
    policy = check(deployment)
    name = env.spec.id.rpartition(":")[2]
    twin = name if not env.traceable and name in envs.JAX else None  # the same environment in JAX
    on_devices = several_devices(deployment, policy) or deployment.devices is not None  # else JAX need not start yet
    # Strict mode runs shard by shard, so that it needs no device for each.
    devices = deployment.learners if strict else start_jax() if on_devices else 1
    check(deployment, Setting(env.spec.id, env.traceable, len(env.spec.agents), config.num_envs, config.shards,
                              config.learner_shards, config.agent_shards, devices, twin))


def _episodes(states: Any) -> np.ndarray:
    """Finished episodes, their returns and lengths, since the start and over all shards and seeds."""
    found = [stats(state) for state in (states if isinstance(states, tuple) else (states,))]
    return np.array([sum(np.sum(np.asarray(getattr(s, name)), dtype=np.float64) for s in found)
                     for name in ("episodes", "return_sum", "length_sum")])


__all__ = ["Deployment", "Program", "Update", "compile", "weights_sha256"]
