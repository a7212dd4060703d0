"""What a run says of itself when it begins: where its fragments are, and what runs them."""

from collections import Counter

from msrl.deployment import Deployment
from msrl.ir.graph import Stretch, calls, walk
from msrl.jobs import Job
from msrl.pipeline import Program


def lines_of(program: Program, job: Job) -> list[str]:
    seeds = f"seed {job.seed}" if job.seeds == 1 else f"seeds {job.seed} to {job.seed + job.seeds - 1}, " + (
        "all at once" if program.seeds > 1 else "one after another")
    spaces = f"{job.base.spec.observation} to {job.base.spec.action}"
    return [f"algorithm    {job.algorithm}, {seeds}",
            f"environment  {program.env.spec.id}: {spaces}, {job.config.num_envs} side by side",
            *deployment_of(program, job.deployment), f"engine       {engine_of(program)}"]


def deployment_of(program: Program, deployment: Deployment) -> list[str]:
    """Where it runs, if that is more than one place."""
    if deployment.distribution == "local":
        return []
    places = Counter(worker.program.fragment.name for worker in program.workers)
    spread = ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in places.items())
    return [f"deployment   {deployment.distribution}: {spread}; {deployment.backend}"]


def engine_of(program: Program) -> str:
    if program.strict:
        return "strict, op by op"
    if not any(isinstance(node, Stretch) for worker in program.workers for node in walk(worker.program.nodes)):
        return "every op a compiled call"
    if not program.traceable:
        return "compiled stretches around the host environment"
    return "one compiled program" if len(program.workers) == 1 else "compiled stretches between moves"


def loss_of(metrics: dict[str, float]) -> float | None:
    return next((metrics[name] for name in ("loss", *metrics) if name in metrics and "loss" in name), None)


def planned_steps(program: Program) -> int:
    """How many environment steps a run is to make; 0 if its loop makes none, and learns from other things."""
    stepped = any((call.component, call.method) == ("env", "step") for call in calls(program.graph.nodes))
    return program.trainer.config.total_steps if stepped else 0
