"""A check on the first line of a formula: its arguments have the ranks it was written for."""

import jax.numpy as jnp

from msrl.errors import TypeCheckError


def check_ranks(function: str, rank: int, **arguments) -> None:
    """Raises unless every argument has that rank. Costs nothing once traced."""
    for name, value in arguments.items():
        if jnp.ndim(value) != rank:
            raise TypeCheckError(
                f"{function} got {name} of shape {jnp.shape(value)}, which has rank {jnp.ndim(value)}.",
                why=f"{function} is written for one stream: {name} has rank {rank}.",
                instead=f"Map it over the other dimensions: jax.vmap({function}, ...).",
            )
