"""Runs a peer on demand: `python -m benchmarks.peers.serve MODULE:FUNCTION SETTINGS`, in the peers' environment.

The function makes a peer: it has a `version`, a `quantum`, `run(steps)`, which gives how many steps it made,
`threads(count)`, which says how many to compute with, and `close`.

Standard input and output are lines of JSON. First it says what it is, once it is warm:
    {"version": ..., "quantum": steps between two of its updates, "speed": steps/s, "threads": as many as suit it}
then for every {"run": steps} it answers {"steps": as many as it made, "seconds": time}. It ends with its input. What
libraries print goes to standard error. It needs nothing of MSRL.
"""

import importlib
import json
import os
import sys
import time


def main() -> None:
    kind, settings = sys.argv[1], json.loads(sys.argv[2])
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**what) -> None:
        out.write(json.dumps(what) + "\n")
        out.flush()

    module, _, maker = kind.partition(":")
    peer = getattr(importlib.import_module(module), maker)(settings)
    speeds = {}
    peer.run(peer.quantum)
    for threads in (1, os.cpu_count() or 1):  # small networks are often faster with one: it gets what suits it
        peer.threads(threads)
        began = time.perf_counter()
        made = peer.run(peer.quantum)
        speeds[threads] = made / (time.perf_counter() - began)
    best = max(speeds, key=speeds.__getitem__)
    peer.threads(best)
    say(version=peer.version, quantum=peer.quantum, speed=speeds[best], threads=best)
    for line in sys.stdin:
        began = time.perf_counter()
        made = peer.run(json.loads(line)["run"])
        say(steps=made, seconds=time.perf_counter() - began)
    peer.close()


if __name__ == "__main__":
    main()
