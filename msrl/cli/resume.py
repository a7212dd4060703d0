"""`msrl resume`: goes on with a run that was stopped."""

from msrl.cli import deploying
from msrl.cli.options import ResumeOptions, read_two
from msrl.cli.train import execute
from msrl.resuming import resumed


def main(args: list[str], began: float) -> int:
    options, flags, deployment = read_two(ResumeOptions, deploying.DeploymentOptions, args, "msrl resume")
    return execute(lambda: resumed(options.run, options.checkpoint, options.algorithm, options.env, deployment,
                                   options.non_finite, own_process=True, **flags), options, options.run, began)
