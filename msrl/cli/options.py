"""What each command takes, as dataclasses, and how they are read from the command line.

The flags of `train`, `graph` and `verify` depend on the algorithm, since every field of its Config is one: the
algorithm is looked for first, then a dataclass with its Config is made. Read by tyro; flags that nothing knows are
refused before that, with the nearest ones named.
"""

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import OmitArgPrefixes, Positional, arg

from msrl.cli import deploying
from msrl.cli.deploying import PlacementOptions
from msrl.cli.helptext import REGISTRY
from msrl.deployment import Deployment
from msrl.errors import UsageError
from msrl.synonyms import suggest

Algorithm = Annotated[Positional[str], arg(metavar="ALGORITHM", help="A name from `msrl list`, or file.py:Class.")]
Environment = Annotated[str, arg(metavar="ENV")]
NonFinite = Literal["stop", "skip", "rollback", "ignore"]
AS_BEFORE = arg(help_behavior_hint="(default: as the run had it)")


@dataclass(frozen=True)
class TrainOptions:
    env: Environment
    """The environment: a name from `msrl list`, for instance CartPole-v1."""
    seed: int = 0
    """Where all random numbers start from."""
    seeds: int = 1
    """Train this many, from --seed on: at once in one compiled program if possible, else one after another."""
    strict: bool = False
    """Run op by op under pinned settings, so that results are the same to the bit on every machine of a kind."""
    eager: bool = False
    """Run the loop as plain Python, in which breakpoint() and print work, and write no run folder. Far slower: give it
    a small --total-steps."""
    run_dir: Annotated[Path | None, arg(metavar="DIR")] = None
    """Where to write the run folder: runs/<algorithm>-<env>-<seed>-<time> unless given. It must be empty."""
    json: bool = False
    """Print a JSON object as the last line of standard output; what is for people goes to standard error."""
    eval_every: int = 0
    """Updates between two evaluations while training; 0 evaluates only at the end."""
    eval_episodes: int = 100
    """Episodes per evaluation."""
    checkpoint_every: int = 0
    """Updates (passes of the loop) between two checkpoints, from which `msrl resume` goes on; 0 makes one only where
    the run is interrupted, and at its end."""
    checkpoint_keep: int = 3
    """How many of the newest checkpoints are kept; the best one is kept, too."""
    restarts: int = 3
    """How often a run goes on from its last snapshot after a worker was lost; 0 ends it with the first."""
    env_timeout: float = 0.0
    """Seconds that a step of an environment on the host may take before it is replaced; 0 for any number."""
    chaos: Annotated[str, arg(metavar="FAULTS")] = ""
    """What is to go wrong, to see that a run survives it: kill:actor@200,hang:env@50,nan:reward@80,delay:moves=5ms, for
    instance (`msrl docs reliability`)."""
    profile: bool = False
    """Write what every instance did and when to RUN_DIR/trace.json, and say at the end which fragment is the
    bottleneck."""
    non_finite: NonFinite = "stop"
    """What becomes of an update with a NaN or an infinity in its batch, its metrics or the new parameters: stop ends
    the run, skip leaves the update out, rollback goes back to the last snapshot (--restarts times), ignore looks at
    none."""
    grace: Annotated[str, arg(metavar="TIME")] = "0"
    """How long a stop may take once a signal has asked for it, like 30s; then it stops at once, with its last
    checkpoint. 0 for any time."""


@dataclass(frozen=True)
class ResumeOptions:
    """Go on with a run that was stopped, here or spread out in another way. A finished one is trained further with
    --total-steps. Every other setting of the run's algorithm is a flag as well."""

    run: Annotated[Positional[Path], arg(metavar="RUN_DIR")]
    """A run folder that `msrl train` made."""
    checkpoint: Annotated[str | None, arg(metavar="NAME")] = None
    """A folder under RUN_DIR/checkpoints; the newest unless given."""
    auto: bool = False
    """If the newest checkpoint is damaged, go on from the newest one that is not."""
    algorithm: Annotated[str | None, arg(metavar="ALGORITHM")] = None
    """The run's algorithm; needed where it is a file that you have not named on this machine."""
    env: Annotated[str | None, arg(metavar="ENV")] = None
    """The run's environment; the same goes for it."""
    non_finite: Annotated[NonFinite | None, AS_BEFORE] = None
    """What becomes of an update that is not finite, if that is to be another thing than before."""
    eval_every: Annotated[int | None, AS_BEFORE] = None
    """Updates between two evaluations while training."""
    eval_episodes: Annotated[int | None, AS_BEFORE] = None
    """Episodes per evaluation."""
    checkpoint_every: Annotated[int | None, AS_BEFORE] = None
    """Updates between two checkpoints."""
    checkpoint_keep: Annotated[int | None, AS_BEFORE] = None
    """How many of the newest checkpoints are kept."""
    restarts: Annotated[int | None, AS_BEFORE] = None
    """How often a run goes on from its last snapshot after a worker was lost."""
    env_timeout: Annotated[float | None, AS_BEFORE] = None
    """Seconds that a step of an environment on the host may take before it is replaced."""
    grace: Annotated[str, arg(metavar="TIME")] = "0"
    """How long a stop may take once a signal has asked for it, like 30s; then it stops at once, with its last
    checkpoint. 0 for any time."""
    json: bool = False
    """Print a JSON object as the last line of standard output; what is for people goes to standard error."""


@dataclass(frozen=True)
class EvalOptions:
    """Play what a run has learnt."""

    run: Annotated[Positional[Path], arg(metavar="RUN_DIR")]
    """A run folder that `msrl train` made."""
    episodes: int = 100
    """Episodes to play, with each seed of the run."""
    env: Annotated[str | None, arg(metavar="ENV")] = None
    """Another environment with the same spaces; that of the run unless given."""
    algorithm: Annotated[str | None, arg(metavar="ALGORITHM")] = None
    """The run's algorithm; needed where it is a file that you have not named on this machine."""
    json: bool = False
    """Print a JSON object as the last line of standard output."""


@dataclass(frozen=True)
class ReplayOptions:
    """Do an update again that was not finite."""

    fault: Annotated[Positional[Path], arg(metavar="FAULT_DIR")]
    """A folder under RUN_DIR/faults."""
    algorithm: Annotated[str | None, arg(metavar="ALGORITHM")] = None
    """The run's algorithm; needed where it is a file that you have not named on this machine."""
    env: Annotated[str | None, arg(metavar="ENV")] = None
    """The run's environment; the same goes for it."""


@dataclass(frozen=True)
class GraphOptions:
    env: Environment
    """The environment: a name from `msrl list`, for instance CartPole-v1."""
    format: Literal["text", "mermaid", "json", "html"] = "text"
    """Text is for reading, mermaid and html draw, JSON is for other programs."""
    fragment: Annotated[str | None, arg(metavar="NAME")] = None
    """Print what one fragment does, as Python, instead of the graph."""


@dataclass(frozen=True)
class VerifyOptions:
    env: Environment
    """The environment: a name from `msrl list`, for instance CartPole-v1."""
    distributions: Annotated[tuple[str, ...], arg(metavar="D ...")] = ()
    """Distributions from `msrl list`, or file.py:Class; unless given, all that are synchronous and fit."""
    backends: Annotated[tuple[str, ...], arg(metavar="B ...")] = ("eager", "anew", "sizes", "process", "inline",
                                                                  "threads")
    """What runs the fragments (inline, threads, ray), and what else the interpreter is held against: plain Python
    (eager), ops compiled anew, another number of environments (sizes), another process."""
    instances: Annotated[tuple[int, ...], arg(metavar="N ...")] = ()
    """Numbers of instances of what is replicated; unless given, 1, 2 and 4, as far as there are shards."""
    updates: Annotated[int | None, arg(metavar="N")] = None
    """Passes of the loop that learns; 3, unless --total-steps is given."""
    every_call: bool = False
    """Compare what every call is given and makes, too, and not only what is left at the end."""
    each_anew: bool = False
    """Trace and compile the ops of every case anew, and not of the row `anew` alone."""
    seed: int = 0
    """Where all random numbers start from."""
    address: Annotated[str | None, arg(metavar="RAY")] = None
    """A Ray cluster to join; one is started on this machine unless given."""


@dataclass(frozen=True)
class ListOptions:
    """Show the algorithms, environments and distributions."""


@dataclass(frozen=True)
class NewOptions:
    """Write a small algorithm of your own to start from."""

    file: Annotated[Positional[Path], arg(metavar="FILE.py")]
    """The file to write; it must not exist."""
    name: str = "MyAlgo"
    """The name of the class."""


@dataclass(frozen=True)
class DocsOptions:
    """Print a page of the documentation."""

    page: Annotated[Positional[str], arg(metavar="PAGE[#SECTION]")] = ""
    """The page, as messages name it; without one, all are listed."""


TRAIN, GRAPH = "Train an algorithm on an environment.", "Print the graph that an algorithm's loop is compiled to."
VERIFY = "Check that an algorithm gives the same bits however it is deployed."


def read(cls: type, args: list[str], prog: str) -> Any:
    """The options in `args`; leaves with tyro's message if they cannot be read."""
    check_flags(args, flags_of(cls), prog)
    return tyro.cli(cls, args=args, prog=prog, description=cls.__doc__, registry=REGISTRY)


def read_two(options: type, placement: type[PlacementOptions], args: list[str], prog: str
             ) -> tuple[Any, dict[str, Any], Deployment | None]:
    """The same with a deployment: the options, the deployment's fields that were given, and its file if one was."""
    args = deploying.joined(args)
    check_flags(args, flags_of(options) | flags_of(placement), prog)
    both = dataclasses.make_dataclass("Options", [
        ("options", Annotated[OmitArgPrefixes[options], arg(name="run")]),
        ("placement", Annotated[OmitArgPrefixes[placement], arg(name="deployment")],
         dataclasses.field(default=placement()))])
    found: Any = tyro.cli(both, args=args, prog=prog, description=options.__doc__, registry=REGISTRY)
    file = found.placement.deployment
    return found.options, deploying.given(found.placement, args), Deployment.from_file(file) if file else None


@dataclass(frozen=True)
class Given:
    """What a command was given that begins with an algorithm."""

    algorithm: str
    options: Any
    config: Any
    deployment: Deployment
    flags: dict[str, Any]  # the deployment's fields that were given as flags
    named: frozenset[str]  # the fields of all of them that were given


def read_with_algorithm(options: type, placement: type[PlacementOptions] | None, args: list[str], prog: str,
                        about: str) -> Given:
    """The same for commands that begin with an algorithm: the fields of its Config and of a deployment are flags, too.
    The deployment, if the command has one, is read first, as it does not need JAX."""
    asked = {"-h", "--help"} & set(args)
    deployment, flags = (Deployment(), {}) if asked or placement is None else deploying.read(placement, args)
    args = deploying.joined(args)
    from msrl import algorithms  # waits for JAX, as every command that gets here must
    from msrl.api import Config

    name = find_algorithm(args, list(algorithms.ALGORITHMS))
    if name is None and not asked:
        raise UsageError(f"{prog} needs an algorithm.", why=f"There are {', '.join(algorithms.ALGORITHMS)}.",
                         instead=f"For instance: {prog} ppo --env CartPole-v1")
    config = algorithms.load(name).Config if name else Config
    kinds = [options, placement] if placement else [options]
    names = {each.name for kind in kinds for each in dataclasses.fields(kind)}
    taken = names & {each.name for each in dataclasses.fields(config)}
    if taken:
        raise UsageError(f"{config.__name__} has a field {sorted(taken)[0]!r}.",
                         why=f"It is an option of `{prog}`, and a flag has one meaning.",
                         instead="Give the field another name.")
    both = dataclasses.make_dataclass("Options", [
        ("algorithm", Algorithm), ("options", Annotated[OmitArgPrefixes[options], arg(name="run")]),
        *([("placement", Annotated[OmitArgPrefixes[placement], arg(name="deployment")],
            dataclasses.field(default=placement()))] if placement else []),
        ("config", Annotated[OmitArgPrefixes[config], arg(name=name or "every algorithm")],
         dataclasses.field(default=config()))])
    prog = f"{prog} {name}" if name else prog
    about = about if name else f"{about} `{prog} ppo --help` shows all flags of ppo, and so on for " \
        f"{', '.join(algorithms.ALGORITHMS)}, or path/to/file.py:TrainerClass."
    check_flags(args, set().union(*map(flags_of, (*kinds, config))), prog)
    found: Any = tyro.cli(both, args=args, prog=prog, description=about, registry=REGISTRY)
    words = (word.partition("=")[0].removeprefix("--").replace("-", "_") for word in args if word.startswith("--"))
    return Given(found.algorithm, found.options, found.config, deployment, flags, frozenset(words))


def find_algorithm(args: list[str], known: list[str]) -> str | None:
    """The algorithm among the arguments, wherever it stands: a known name or a file's class first of all."""
    values = {at + 1 for at, word in enumerate(args)
              if word in ("--env", "--distribution", "--distributions", "--deployment")}
    words = [word for at, word in enumerate(args) if not word.startswith("-") and at not in values]
    named = [word for word in words if word in known or ".py" in word]
    if named:
        return named[0]
    return args[0] if args and not args[0].startswith("-") else None


def flags_of(cls: type) -> set[str]:
    """All flags that a flat dataclass has, as one types them."""
    flags = {"--help"}
    for each in dataclasses.fields(cls):
        name = each.name.replace("_", "-")
        flags |= {f"--{name}"} | ({f"--no-{name}"} if each.type in (bool, "bool") else set())
    return flags


def check_flags(args: list[str], known: set[str], prog: str) -> None:
    for word in args:
        flag = word.partition("=")[0].replace("_", "-")
        if word.startswith("--") and len(word) > 2 and flag not in known:
            names = {each.removeprefix("--").replace("-", "_"): each for each in sorted(known)}
            near = " or ".join(names[each] for each in suggest(flag.removeprefix("--"), names))
            raise UsageError(
                f"{prog} has no flag {word.partition('=')[0]}.",
                why=f"Did you mean {near}?" if near else "Nothing it has is called alike.",
                instead=f"See all of them: {prog} --help")


def overview() -> None:
    """Prints what the commands are."""
    commands = {"train": TRAIN, "resume": ResumeOptions.__doc__, "eval": EvalOptions.__doc__,
                "replay": ReplayOptions.__doc__, "graph": GRAPH, "verify": VERIFY,
                "list": ListOptions.__doc__, "new": NewOptions.__doc__, "docs": DocsOptions.__doc__}
    lines = ["usage: msrl COMMAND ...", "", "Reinforcement learning written once as a plain loop.", ""]
    lines += [f"  {name:<7}{text}" for name, text in commands.items()]
    lines += ["", "For instance:  msrl train ppo --env CartPole-v1", "All about one:  msrl train ppo --help"]
    sys.stdout.write("\n".join(lines) + "\n")
