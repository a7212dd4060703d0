"""Where the time of a program that is compiled as a whole goes, kernel by kernel, as XLA's own profiler tells it.

python -m benchmarks.kernels [ALGORITHM] [ENV] [--looks 4] [--top 20] [SETTING=VALUE ...]
python -m benchmarks.kernels ppo CartPole-v1 num_envs=64 rollout=128

`msrl train --profile` sees such a program as one event. Here XLA notes when each kernel begins and ends, which takes
time itself, small kernels more than large ones. Shares are of the time of all kernels, which run on several threads;
for how much of it several ran at once is told first (large ones may have several threads to themselves). Kernels are
told by what they compute: products by their shapes, the others by XLA's names for them.
"""

import argparse
import ast
import collections
import gzip
import itertools
import json
import os
import re
import tempfile
from pathlib import Path

import jax

import msrl


def told(text: str) -> dict[str, str]:
    """By the name of a kernel, what it computes, from a compiled program's text."""
    products, found = {}, {}
    for block in re.split(r"\n(?=%|ENTRY)", text):
        name = re.match(r"(?:ENTRY )?%?([\w.-]+)", block)
        shapes = dict(re.findall(r"%([\w.-]+) = (\w+\[[\d,]*\])", block))
        dots = re.findall(r" = (\w+\[[\d,]*\])\S* dot\(%([\w.-]+), %([\w.-]+)\)", block)
        if name and len(dots) == 1:
            out, left, right = dots[0]
            products[name[1]] = f"product {shapes.get(left, '?')} × {shapes.get(right, '?')} → {out}"
    for kernel, called in re.findall(r"%([\w.-]+) = [^\n]*? fusion\([^\n]*?calls=%([\w.-]+)", text):
        found[kernel] = products.get(called, re.sub(r"[.\d]+$", "", kernel))
    for kernel, out in re.findall(r"%([\w.-]+) = (\w+\[[\d,]*\])\S* dot\(", text):
        found.setdefault(kernel, f"product by Eigen → {out}")
    return found


def at_once(spans: list[tuple[float, float]]) -> dict[int, float]:
    """By how many of the spans (begin, end) there are at a time, the part of the time from the first to the last."""
    changes = sorted((when, change) for begin, end in spans for when, change in ((begin, 1), (end, -1)))
    parts: collections.Counter[int] = collections.Counter()
    running = 0
    for (when, change), (later, _) in itertools.pairwise(changes):
        running += change
        parts[running] += later - when
    whole = sum(parts.values())
    return {number: parts[number] / whole for number in sorted(parts, reverse=True) if parts[number]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("algorithm", nargs="?", default="ppo")
    parser.add_argument("env", nargs="?", default="CartPole-v1")
    parser.add_argument("settings", nargs="*", help="SETTING=VALUE")
    parser.add_argument("--looks", type=int, default=4)
    parser.add_argument("--top", type=int, default=20)
    options = parser.parse_args()
    # XLA reads its flags as it compiles first.
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_enable_xprof_traceme=true"
    settings = {name: ast.literal_eval(value) for name, _, value in (each.partition("=") for each in options.settings)}
    program = msrl.compile(options.algorithm, options.env, **settings)
    if not program.traceable:
        parser.error(f"{options.env} is stepped by Python, and so not one program: use `msrl train --profile`")
    updates = program.run()
    before = after = next(updates).env_steps
    quiet = jax.profiler.ProfileOptions()
    quiet.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=quiet):
            for update in itertools.islice(updates, options.looks):
                after = update.env_steps
        (trace,) = Path(folder).rglob("*.trace.json.gz")
        events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    kernels = {}
    for chunk in program.lead._chunks.values():
        kernels.update(told(chunk.ahead.result().as_text()))
    updates.close()
    times: collections.Counter[str] = collections.Counter()
    spans = []
    for event in events:
        if event.get("ph") == "X" and event["name"] in kernels:
            times[kernels[event["name"]]] += event["dur"]
            spans.append((event["ts"], event["ts"] + event["dur"]))
    steps, total = after - before, sum(times.values())
    if not total or not steps:
        parser.error("the run was over before anything was seen: give it more total_steps=")
    print(f"{options.algorithm} on {options.env}: {1000 * total / steps:.0f} ns of kernels for each step")
    print("kernels at once: " + ", ".join(f"{number} for {part:.0%}" for number, part in at_once(spans).items()) +
          " of the time\n")
    for what, spent in times.most_common(options.top):
        print(f"{spent / total:6.1%}  {1000 * spent / steps:8.1f} ns  {what}")


if __name__ == "__main__":
    main()
