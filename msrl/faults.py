"""Updates that were not finite, on disk: written where a run meets one, and done again from there.

    faults/update-N/   as a checkpoint is (msrl/runtime/checkpoints.py): the learner's state shortly before the update,
                       the batches since then, the key; and what it takes to find the algorithm

In: a run's error, or such a folder. Out: the folder, or which values of the update are not finite this time. Reading
executes nothing of the folder; code that it names is executed only if the user has named it, too (`msrl.trust`).
"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from msrl import algorithms, pipeline
from msrl.api.ranges import SEEDS, Range
from msrl.engines.finite import flags_of, names_of
from msrl.engines.library import Ops
from msrl.engines.ops import roots, strong
from msrl.engines.reference import Reference
from msrl.errors import NonFiniteError, UsageError
from msrl.jobs import Job, about, lasting_algorithm, prepare
from msrl.runtime import checkpoints
from msrl.runtime.checkpoints import Checkpoint
from msrl.runtime.packing import pack, unpack
from msrl.runtime.reading import COUNT, NATURAL, Malformed, check_fields, check_links, check_plain
from msrl.trust import needs_flag, read_settings, resolve

FOLDER, WHOLE = "faults", "all"
SAID = {"seed": SEEDS, "env_steps": Range(0, whole=True), "names": list, "shards": list, "agent_shards": list,
        "strict": bool, "batches": COUNT, "run": dict}  # what there is to know of an update, beside its arrays


def kept(problem: NonFiniteError, run: Path | None, job: Job, seed: int, stream: int) -> NonFiniteError:
    """Writes it to the run folder, if there is one: the error, with what can be done now. `seed`: which of the job's
    seeds is the first of those at work."""
    if run is None:
        instead = "With a run folder, the batch and the learner's state are kept, and the update can be done again."
    else:
        place = write(run, problem, job, job.seed + seed + problem.fault.seed, stream)
        said = {"algorithm": lasting_algorithm(job), "env": about(job)["env_id"]}
        files = [f"--{flag}={value}" for flag, value in said.items() if needs_flag(flag, value)]
        instead = f"The batch, the learner's state and the key are in {place}.\n" \
            f"To do it again: {shlex.join(['msrl', 'replay', str(place), *files])}"
    error = problem.retold(instead=instead)
    assert isinstance(error, NonFiniteError)
    return error


def write(run: Path, problem: NonFiniteError, job: Job, seed: int, stream: int) -> Path:
    fault, described = problem.fault, about(job)
    place = run / FOLDER / f"{'' if job.seeds == 1 else f'seed-{seed}-'}update-{fault.update}"
    parts = {"learner": {WHOLE: pack(fault.state, "The learner's state")},
             "key": {WHOLE: pack(roots(seed, 1, stream), "The key")},
             "batches": {str(number): pack(batch, "A batch") for number, batch in enumerate(fault.batches)}}
    checkpoints.write_checkpoint(place, Checkpoint(fault.site, fault.update, parts, {
        "seed": seed, "env_steps": fault.env_steps, "names": list(fault.names), "shards": list(fault.shards),
        "agent_shards": list(fault.agent_shards), "strict": fault.strict, "batches": len(fault.batches),
        "line": str(problem.span) if problem.span else None,
        "run": {name: described[name] for name in ("algorithm", "env_id", "config")}}))
    return place


@dataclass(frozen=True)
class Replayed:
    algorithm: str
    env_id: str
    update: int
    env_steps: int
    line: str | None
    recorded: tuple[str, ...]  # what was not finite in the run
    found: tuple[str, ...]  # and what is not, now


def replay(path: Path, algorithm: str | None = None, env: str | None = None) -> Replayed:
    """Does an update again that was written down."""
    try:
        check_links(path, (checkpoints.MANIFEST, checkpoints.STATE))
        kept = checkpoints.read(path)
        said, run = kept.about, kept.about.get("run")
        check_plain(said)
        check_fields(said, SAID)
        check_fields(run, {"algorithm": str, "env_id": str, "config": dict})
        check_parts(kept)
    except (checkpoints.Unsound, Malformed) as problem:
        why = str(problem) if isinstance(problem, checkpoints.Unsound) else f"What its manifest is about: {problem}."
        raise UsageError(f"{path} is not an update that was written down.", why=why,
                         instead="Name a folder under RUN_DIR/faults.") from problem
    again = f"msrl replay {shlex.quote(str(path))}"
    algorithm = resolve("algorithm", run["algorithm"], algorithm, again)
    env = resolve("env", run["env_id"], env, again)
    settings = read_settings(algorithms.load(algorithm), run["config"], path)
    job = prepare(algorithm, env, seed=said["seed"], strict=said["strict"], config=settings)
    try:
        program = pipeline.compile(job.cls, job.base, seed=job.seed, strict=job.strict, config=job.config,
                                   non_finite="ignore")
        if kept.loop not in program.shapes.learns:
            raise UsageError(f"The update in {path} is of another loop.",
                             why="What `train` says has changed since it was made.",
                             instead="Use the algorithm's source that the run was made with.")
        check_shards(program, said, path)
        found = do_again(program, kept)
    finally:
        job.base.close()
    return Replayed(run["algorithm"], run["env_id"], kept.update, kept.env_steps, said["line"], tuple(said["names"]),
                    found)


def check_parts(kept: Checkpoint) -> None:
    """Is there all that an update takes?"""
    wanted = {"learner": [WHOLE], "key": [WHOLE], "batches": [str(number) for number in range(kept.about["batches"])]}
    missing = [name for name, shards in wanted.items() if sorted(kept.parts.get(name, ())) != sorted(shards)]
    if missing:
        raise Malformed(f"it has not all of the {missing[0]}")
    for name in ("shards", "agent_shards"):
        found = kept.about[name]
        if len(found) != 2 or not all(NATURAL.holds(each) for each in found) or not found[0] < found[1]:
            raise Malformed(f"its {name} are {found}")
    if not all(isinstance(each, str) and each.isprintable() for each in kept.about["names"]):
        raise Malformed("its names are no text")
    if kept.about.get("line") is not None:
        check_fields(kept.about, {"line": str})


def check_shards(program: pipeline.Program, said: dict[str, Any], path: Path) -> None:
    """Does the program have those that the update is of?"""
    there = program.ops.world.shards, program.ops.world.agent_shards
    if said["shards"][1] > there[0] or said["agent_shards"][1] > there[1]:
        raise UsageError(f"The update in {path} is of other shards.",
                         why=f"They are {said['shards']} and {said['agent_shards']}, and its settings have {there[0]} "
                             f"and {there[1]}.",
                         instead="Name a folder under RUN_DIR/faults, as the run has written it.")


def do_again(program: pipeline.Program, kept: Checkpoint) -> tuple[str, ...]:
    """The names of what is not finite."""
    said, node = kept.about, program.shapes.learns[kept.loop]
    ops = part(program.ops, said)
    key = unpack(None, kept.parts["key"][WHOLE], "The key")
    machine = Reference(ops, key, {}, fused=not program.strict)
    state = unpack(state_form(program, ops, node.reads[0]), kept.parts["learner"][WHOLE], "The learner's state")
    form = jax.tree.map(lambda _: 0, tuple(program.shapes.names.get(name, 0) for name in node.args))
    for number in range(said["batches"]):
        args = strong(unpack(form, kept.parts["batches"][str(number)], "A batch"))
        count = np.int32(kept.update - said["batches"] + number)
        out, written = machine.apply("learner", "learn", args, {}, (state, count), ops.layouts.of(node))
        state = written[0]
    flags, names = flags_of(args, out, state), names_of(ops.world.agent.learner, args, out, state)
    return tuple(name for name, bad in zip(names, np.asarray(flags), strict=True) if bad)


def part(ops: Ops, said: dict[str, Any]) -> Ops:
    """Those of the shards that the batches are of."""
    shards, agents = range(*said["shards"]), range(*said["agent_shards"])
    ops = ops.part(shards) if len(shards) < ops.world.shards else ops
    return ops.part_of_agents(agents) if len(agents) < ops.world.agent_shards else ops


def state_form(program: pipeline.Program, ops: Ops, name: str) -> Any:
    """A tree like the learner's state: strict mode keeps agent shards one by one."""
    form = jax.tree.map(lambda _: 0, program.shapes.names[name])
    several = program.strict and ops.world.config.agent_shards > 1
    return (form,) * ops.world.agent_shards if several else form
