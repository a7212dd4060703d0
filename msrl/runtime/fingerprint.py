"""What a run was made with, as its checkpoints keep it and as config.json says it: these have to agree.

`sealed` tells whether config.json is as a run has written it; `differences` names the fields in which it is not what a
checkpoint was made with. Where a user gives other settings on purpose the two differ, and config.json is sealed anew.
"""

from collections.abc import Mapping
from typing import Any

from msrl.runtime.files import seal

KEPT = ("strict", "eval_every", "eval_episodes", "checkpoint_every", "checkpoint_keep", "restarts", "env_timeout",
        "profile", "non_finite")  # of what a command was given, beside the algorithm's settings and the deployment's
MADE_WITH = ("algorithm", "env_id", "seeds", *KEPT)
TOLD = (*MADE_WITH, "config", "env", "versions", "flags")  # of config.json, what every checkpoint has as well
FIXED = ("seeds", "strict")  # which no run can have others of


def sealed(about: Mapping[str, Any]) -> bool:
    """Is it as it was written? The status apart, which says how far the run has come."""
    return about.get("sha256") == seal_of(about)


def seal_of(about: Mapping[str, Any]) -> str:
    return seal({name: value for name, value in about.items() if name not in ("sha256", "status")})


def differences(here: Mapping[str, Any], there: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """By field, what config.json says and what a checkpoint was made with."""
    one, other = _flat(here), _flat(there)
    return {name: (one.get(name), other.get(name)) for name in {**one, **other} if one.get(name) != other.get(name)}


def _flat(about: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: about.get(name) for name in MADE_WITH} | dict(about["config"])
    return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
