"""The physics that the particle worlds share: discs in the plane that agents push about and that push each other.

In: a world of N agents and L fixed landmarks, and one of five actions per agent. Out: the world a tenth of a second
later. Forces, contact, damping and speed limits are mpe2's, whose agents' order is kept. Every pair is computed at
once, never in a Python loop. Unlike mpe2, two discs with one and the same centre exert no force on each other, where a
division by zero would make the world NaN for good.
"""

import jax
import jax.numpy as jnp
from flax import struct

from msrl.errors import EnvError

NUM_ACTIONS = 5  # stay, left, right, down, up
TIME_STEP = 0.1
DAMPING = 0.25  # of the velocity, lost in each step
CONTACT_STIFFNESS = 100.0
CONTACT_MARGIN = 1e-3  # softens the onset of contact


@struct.dataclass
class World:
    position: jax.Array  # (N, 2)
    velocity: jax.Array  # (N, 2)
    landmark: jax.Array  # (L, 2)


def require(world: str, least: int, **sizes: int) -> None:
    """Refuses a world of sizes below the least."""
    for name, size in sizes.items():
        if size < least:
            raise EnvError(
                f"{world} cannot be made with {name}={size}.",
                why=f"The smallest such world has {name}={least}.",
                instead=f"Write {name}={least} or more.",
            )


def random_worlds(key: jax.Array, batch: tuple[int, ...], agents: int, landmarks: int, landmark_range: float) -> World:
    """Worlds at rest: agents uniformly within ±1, landmarks within ±landmark_range."""
    place = jax.random.uniform(key, (*batch, agents + landmarks, 2), minval=-1, maxval=1)  # one draw for both
    position, landmark = place[..., :agents, :], place[..., agents:, :]
    return World(position=position, velocity=jnp.zeros_like(position), landmark=landmark * landmark_range)


def drive(action: jax.Array, gain) -> jax.Array:
    """The force (N, 2) that actions (N,) exert; gain is a scalar or (N,)."""
    right = jnp.float32(action == 2) - jnp.float32(action == 1)
    up = jnp.float32(action == 4) - jnp.float32(action == 3)
    return jnp.stack([right * gain, up * gain], axis=-1)


def contact(position: jax.Array, other: jax.Array, reach) -> jax.Array:
    """The force (N, 2) on discs at (N, 2) of discs at (M, 2), whose radii add up to reach, a scalar or (N, M).

    An agent among its own `other`s is at distance 0 from itself, which by the convention above is no force.
    """
    dx, dy = between(other, position)  # (N, M)
    distance = _length(dx, dy)
    penetration = CONTACT_MARGIN * jax.nn.softplus((reach - distance) / CONTACT_MARGIN)
    strength = CONTACT_STIFFNESS * penetration / jnp.where(distance > 0, distance, 1)
    return jnp.stack([(strength * dx).sum(1), (strength * dy).sum(1)], axis=1)


def move(world: World, force: jax.Array, max_speed=None) -> World:
    """The world a time step on, for agents of mass 1; max_speed is a scalar or (N,)."""
    position = world.position + TIME_STEP * world.velocity
    velocity = (1 - DAMPING) * world.velocity + TIME_STEP * force
    if max_speed is not None:
        velocity = velocity * (max_speed / jnp.maximum(_length(velocity[:, 0], velocity[:, 1]), max_speed))[:, None]
    return world.replace(position=position, velocity=velocity)


def between(origin: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """What leads from origins (M, 2) to targets (N, 2), as x and y of (N, M) each.

    Reductions over pairs are up to ten times as fast on these as on one (N, M, 2), whose inner loop would be of two.
    """
    return target[:, None, 0] - origin[None, :, 0], target[:, None, 1] - origin[None, :, 1]


def distances(origin: jax.Array, target: jax.Array) -> jax.Array:
    """From origins (M, 2) to targets (N, 2): (N, M)."""
    return _length(*between(origin, target))


def surroundings(position: jax.Array, landmark: jax.Array) -> jax.Array:
    """Where, from each agent, the landmarks and then the other agents are: (N, 2 * (L + N - 1))."""
    n = position.shape[0]
    spots = jnp.broadcast_to(landmark, (n, *landmark.shape))  # (N, L, 2)
    neighbours = others(jnp.broadcast_to(position, (n, n, 2)))  # (N, N - 1, 2)
    return (jnp.concatenate([spots, neighbours], axis=1) - position[:, None]).reshape(n, -1)


def others(pairs: jax.Array) -> jax.Array:
    """(N, N, ...) without its diagonal: (N, N - 1, ...).

    Less its first element, the flattened matrix has a diagonal element at the end of every N + 1: slices and
    reshapes alone, where an index array would be a gather.
    """
    n, _, *rest = pairs.shape
    flat = pairs.reshape(n * n, *rest)[1:]
    return flat.reshape(n - 1, n + 1, *rest)[:, :-1].reshape(n, n - 1, *rest)


def _length(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sqrt(x * x + y * y)  # jnp.hypot costs more, to guard against an overflow that cannot be here
