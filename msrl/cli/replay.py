"""`msrl replay`: does an update again that was not finite, and says which values are not."""

import sys

from msrl.cli.options import ReplayOptions, read
from msrl.faults import replay


def main(args: list[str], began: float) -> int:
    """1 if it comes to the same, as `msrl verify` does where results differ."""
    options: ReplayOptions = read(ReplayOptions, args, "msrl replay")
    done = replay(options.fault, options.algorithm, options.env)
    line = f", {done.line}" if done.line else ""
    found = ", ".join(done.found) or f"nothing this time; in the run it was {', '.join(done.recorded)}"
    sys.stdout.write(f"update       {done.update} of {done.algorithm} on {done.env_id}, after {done.env_steps:,} "
                     f"environment steps{line}\nnot finite   {found}\n")
    return int(bool(done.found))
