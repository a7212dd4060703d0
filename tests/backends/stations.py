"""Stations in one process, joined by pickles: what a backend for processes does, without the processes."""

import contextlib
import pickle
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import cloudpickle

from msrl.backends.remote import RemoteLook, Station, assign, told
from msrl.pipeline import Program


class Pickled:
    """A backend: every assignment, message and report crosses as bytes."""

    def __init__(self, program: Program):
        self.workers = program.workers
        self.assignments = assign(program.workers, program.placed, program.trainer, program.env, seed=program.seed,
                                  seeds=program.seeds)
        self.stations: dict[tuple[str, int], Station] = {}
        self.fetched: list[str] = []
        self.bytes = 0

    def post(self, fragment, instances, message):
        for instance in instances:
            sent = cloudpickle.dumps(message)
            self.bytes += len(sent)
            self.stations[fragment, instance].deliver(pickle.loads(sent))

    def fetch(self, station):
        def get(name):
            self.fetched.append(name)
            return pickle.loads(cloudpickle.dumps(station.fetch(name)))
        return get

    def run(self) -> Iterator:
        for worker, assignment in zip(self.workers, self.assignments, strict=True):
            key = worker.program.fragment.name, worker.instance
            self.stations[key] = Station(pickle.loads(cloudpickle.dumps(assignment)), self.post)
        stations = list(self.stations.values())
        with contextlib.ExitStack() as stack:
            for station in stations:
                stack.callback(station.thread.join)
            for station in stations:
                station.start()
                stack.callback(station.stop)
            pool = stack.enter_context(ThreadPoolExecutor(len(stations)))
            for station in stations:
                stack.callback(station.reports.put, None)  # for whoever still waits for one
            asked = {pool.submit(station.next): entry for station, *entry in
                     zip(stations, stations, self.workers, self.assignments, strict=True)}
            while asked:
                done, _ = wait(asked, return_when=FIRST_COMPLETED)
                for future in done:
                    station, worker, assignment = asked.pop(future)
                    report = pickle.loads(cloudpickle.dumps(future.result()))
                    if report.kind == "failed":
                        raise told(report, assignment.title)
                    worker.compile_seconds, worker.messages = report.compile_seconds, report.messages
                    worker.at = report.at
                    if report.ledger is not None:
                        worker.exchange.ledger = report.ledger
                    if worker.strict:
                        worker.engine.reports.extend(report.rows)
                    if report.kind == "end":
                        worker.resources, worker.trace = report.resources, report.profile
                        if worker.leads:
                            worker.exchange.ended.append(worker.instance)
                        continue
                    yield worker, RemoteLook(report, self.fetch(station))
                    asked[pool.submit(station.next)] = station, worker, assignment
