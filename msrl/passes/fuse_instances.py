"""fuse-instances: LocalProgram → LocalProgram. The shards of an instance run as one batch.

A program that is `batched` runs an op for all shards of its instance at once, as one program over stacked states.
Without it they run one after another, each at its own shape, in the same compiled program.
"""

from dataclasses import replace

from msrl.ir.placed import LocalProgram


def fuse_instances(program: LocalProgram) -> LocalProgram:
    return replace(program, batched=True)
