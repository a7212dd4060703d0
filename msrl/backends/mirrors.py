"""What the coordinator makes of what its workers tell: places in a group, and mirrors of workers that are elsewhere."""

from collections.abc import Sequence
from typing import NamedTuple

from msrl.backends.agreeing import may_group
from msrl.backends.mail import Address
from msrl.backends.remote import Assignment, Report
from msrl.backends.worker import Worker
from msrl.engines.reference import Reference


class Where(NamedTuple):
    mailbox: Address
    port: int  # that is free
    process: int  # its id there


class Seat(NamedTuple):
    """A process's place in a group of JAX's."""

    address: str  # where they meet
    size: int
    number: int


def seats_of(workers: Sequence[Worker], assignments: Sequence[Assignment], places: Sequence[Where]) -> dict[int, Seat]:
    """By worker, where learners of several processes can form one group of JAX's: if all have equal numbers of
    learners."""
    members = [number for number, worker in enumerate(workers) if may_group(
        worker.program.fragment, worker.exchange, worker.ops.world.config, worker.strict, worker.root)]
    if len(members) < 2 or any(assignment.link for assignment in assignments):  # what it sends is not ours
        return {}
    found = [places[number] for number in members]
    meeting = f"{found[0].mailbox[0]}:{found[0].port}"
    return {number: Seat(meeting, len(members), at) for at, number in enumerate(members)}


def mirror(worker: Worker, report: Report, ready_seconds: float) -> None:
    # Processes that start and make their world again are getting ready too.
    worker.compile_seconds, worker.messages = ready_seconds + report.compile_seconds, report.messages
    worker.at, worker.share, worker.told_skipped = report.at, report.share, report.skipped
    if isinstance(worker.engine, Reference):
        worker.engine.reports.extend(report.rows)
    if report.ledger is not None:
        worker.exchange.ledger = report.ledger
    if report.kind == "end":
        worker.resources, worker.trace = report.resources, report.profile
        if worker.leads:
            worker.exchange.ended.append(worker.instance)
