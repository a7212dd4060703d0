"""A random order of n indices without sorting.

In: a key and n. Out: int32 (n,), a permutation of 0 .. n - 1. What always holds: it is a bijection for every n and key,
the same for the same key everywhere, and takes O(n) elementwise operations.

The family is the generalised Feistel cipher of Black and Rogaway ("Ciphers with arbitrary finite domains", 2002). An
index is written as a pair (l, r) of Z_a x Z_b, and each round adds a keyed hash of one half to the other:
l += F_k(r) mod a, then r += F_k'(l) mod b, and so on. A round can be undone by subtracting, whatever F is, so that any
number of them is a bijection of [0, ab). If ab > n, indices that land in [n, ab) are sent through again until they do
not ("cycle walking"); this is a bijection of [0, n) and ends, because a cycle that leaves [0, n) returns to it.

It is not a uniform draw from all n! permutations (nor is any function of a 64-bit key for n > 20). Positions, pairs and
the make-up of minibatches are as in one to the accuracy of the tests. That takes more rounds than the four for which
the classic proof is given: at four, neighbours stay neighbours twice as often as they should.
"""

import math

import jax
import jax.numpy as jnp

_ROUNDS = 10
_ROUNDS_SMALL = 24  # small halves mix slowly, and small arrays cost nothing
_SMALL = 64


def permutation(key: jax.Array, n: int) -> jax.Array:
    """The indices 0 .. n - 1 in random order: int32 (n,)."""
    a, b = _domain(n)
    keys = jax.random.bits(key, (_ROUNDS_SMALL if n < _SMALL else _ROUNDS,), jnp.uint32)

    def encipher(index):  # (n,) uint32 -> (n,) uint32, both below a * b
        left, right = index // b, index % b
        for k, round_key in enumerate(keys):
            if k % 2 == 0:
                left = _add(left, _hash(right ^ round_key), a)
            else:
                right = _add(right, _hash(left ^ round_key), b)
        return left * b + right

    index = jnp.arange(n, dtype=jnp.uint32)
    if a * b == n:
        return encipher(index).astype(jnp.int32)

    def walk(carry):
        index, outside = carry
        index = jnp.where(outside, encipher(index), index)
        return index, index >= n

    index, _ = jax.lax.while_loop(lambda carry: jnp.any(carry[1]), walk, (index, jnp.ones(n, bool)))
    return index.astype(jnp.int32)


def _domain(n: int) -> tuple[int, int]:
    """(a, b) such that ab is at least n, and exceeds it by as little as possible: each walk costs a pass over all
    indices. Both are within a factor of about two of sqrt(n), because a small half mixes slowly."""
    root = math.isqrt(n)
    sizes = [(a, -(-n // a)) for a in range(root, root // 2, -1)]
    sizes = [size for size in sizes if size[0] > 1] or [(2, 2)]  # a half of 1 would leave nothing but rotations
    return min(sizes, key=lambda size: size[0] * size[1])


def _add(half: jax.Array, hashed: jax.Array, modulus: int) -> jax.Array:
    """half + hashed modulo `modulus`. half is below it already, so the sum needs no second division."""
    total = half + hashed % modulus
    return jnp.where(total >= modulus, total - modulus, total)


def _hash(x: jax.Array) -> jax.Array:
    """MurmurHash3's finaliser: every input bit flips every output bit with probability near one half."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
