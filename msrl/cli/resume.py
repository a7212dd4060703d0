"""`msrl resume`: goes on with a run that was stopped."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.conf import OmitArgPrefixes, arg

from msrl import algorithms, trust
from msrl.cli import deploying
from msrl.cli.helptext import REGISTRY
from msrl.cli.options import ResumeOptions, check_flags, flags_of, read_two
from msrl.cli.train import execute
from msrl.resuming import resumed
from msrl.runtime.fingerprint import KEPT
from msrl.runtime.reading import read_config
from msrl.trust import resolve

OWN = flags_of(ResumeOptions) | flags_of(deploying.DeploymentOptions)


def main(args: list[str], began: float) -> int:
    rest, settings = read_settings(args)
    options, flags, deployment = read_two(ResumeOptions, deploying.DeploymentOptions, rest, "msrl resume")
    kept = {name: value for name in KEPT if (value := getattr(options, name, None)) is not None}
    return execute(lambda: resumed(options.run, checkpoint=options.checkpoint, auto=options.auto,
                                   algorithm=options.algorithm, env=options.env, deployment=deployment,
                                   own_process=True, **{**settings, **flags, **kept}), options, options.run, began)


def read_settings(args: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The algorithm's settings that are among the arguments, and the arguments without them. Which there are, the
    algorithm says, which is in the run folder."""
    args = deploying.joined(args)
    named = {word.partition("=")[0].replace("_", "-") for word in args if word.startswith("--")}
    folders = (Path(word) for word in args if not word.startswith("-"))
    run = next((folder for folder in folders if (folder / "config.json").is_file()), None)
    if run is None or not named - OWN:
        return args, {}
    config = read_config(run)
    chosen, _ = tyro.cli(Named, args=args, return_unknown_args=True, add_help=False)
    cls = algorithms.load(resolve("algorithm", config["algorithm"], chosen.algorithm, f"msrl resume {run}"))
    kind = cls.Config
    check_flags(args, OWN | flags_of(kind), "msrl resume")
    before = trust.read_settings(cls, config["config"], run)
    wrapped: Any = dataclasses.make_dataclass("Settings", [
        ("config", Annotated[OmitArgPrefixes[kind], arg(name="settings")], dataclasses.field(default=before))])
    found, rest = tyro.cli(wrapped, args=args, prog="msrl resume", return_unknown_args=True, add_help=False,
                           registry=REGISTRY)
    given = [each.name for each in dataclasses.fields(kind)
             if {f"--{each.name.replace('_', '-')}", f"--no-{each.name.replace('_', '-')}"} & named]
    return rest, {name: getattr(found.config, name) for name in given}


@dataclasses.dataclass(frozen=True)
class Named:
    algorithm: str | None = None
