"""Pytrees of arrays as folders: `save` writes one with Orbax, `load` reads it back into the tree it came from.

On disk a tree is nested dicts named by its paths, and nothing but arrays, so that reading runs no code and needs no
class of the writer's. Random keys are kept as their data. A manifest has a checksum of every file, and `load` gives
none of them to Orbax before it has been held against its own.
"""

import hashlib
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from msrl.api.ranges import Range
from msrl.errors import UsageError
from msrl.runtime.disk import hush
from msrl.runtime.files import dumps, seal, write
from msrl.runtime.preload import late
from msrl.runtime.reading import Malformed, check_fields, read_object

FORMAT, MANIFEST, NL = 1, "manifest.json", "\n"


def save(folder: Path, tree: Any) -> None:
    nested: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        array = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        if array.size:  # Orbax takes no empty arrays, and there is nothing in them to keep
            *outer, last = _names(path)
            inner = nested
            for name in outer:
                inner = inner.setdefault(name, {})
            inner[last] = array
    save_arrays(folder, nested)
    manifest = {"format": FORMAT, "files": file_sums(folder)}
    write(folder / MANIFEST, (dumps({**manifest, "sha256": seal(manifest)}) + "\n").encode())


def save_arrays(folder: Path, nested: dict[str, Any]) -> None:
    """Nested dicts of arrays. Empty ones are left out: Orbax takes none."""
    hush("orbax", "absl")
    with _checkpointer() as checkpointer:
        checkpointer.save(folder.absolute(), {name: x for name, x in nested.items() if isinstance(x, dict) or x.size})


def load_arrays(folder: Path) -> dict[str, Any]:
    with _checkpointer() as checkpointer:
        return checkpointer.restore(folder.absolute())


def file_sums(folder: Path) -> dict[str, str]:
    """Of every file, so that none that is damaged is given to a reader of arrays."""
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in sorted(folder.rglob("*")) if file.is_file()}


def check_files(folder: Path) -> None:
    """All files are there, as they were written, and no others."""
    if not (folder / MANIFEST).exists():
        raise Malformed(f"there is no {MANIFEST} with their checksums")
    manifest = read_object(folder / MANIFEST)
    check_fields(manifest, {"format": Range(0, whole=True), "files": dict, "sha256": str})
    if manifest["format"] != FORMAT:
        raise Malformed(f"they have the format {manifest['format']}, and this version of MSRL reads {FORMAT}")
    if manifest.pop("sha256") != seal(manifest):
        raise Malformed(f"{MANIFEST} does not have its checksum")
    here, there = file_sums(folder), manifest["files"]
    for name in sorted({*here, *there} - {MANIFEST}):
        if name not in here:
            raise Malformed(f"{name} is missing")
        if here[name] != there.get(name):
            raise Malformed(f"{name} does not have its checksum")


def load(folder: Path, like: Any) -> Any:
    """The tree that was saved, in the form of `like`: arrays or ShapeDtypeStructs."""
    try:
        check_files(folder)
        nested = load_arrays(folder)
    except Exception as error:  # whatever a reader of damaged files raises
        first = str(error) if isinstance(error, Malformed) else f"{type(error).__name__}, {str(error).partition(NL)[0]}"
        raise UsageError(f"The weights in {folder} cannot be used.", why=f"They are damaged: {first}.",
                         instead="Restore them from a copy, or train again.") from error

    def find(path: tuple, leaf: Any) -> Any:
        names = _names(path)
        wanted = jax.eval_shape(jax.random.key_data, leaf) if _is_key(leaf) else leaf
        if not np.prod(wanted.shape):
            return np.zeros(wanted.shape, wanted.dtype)
        found: Any = nested
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        if not isinstance(found, np.ndarray) or (found.shape, found.dtype) != (wanted.shape, wanted.dtype):
            has = f"{found.dtype}{list(found.shape)}" if isinstance(found, np.ndarray) else "nothing"
            raise UsageError(
                f"The weights in {folder} do not fit.",
                why=f"{'.'.join(names)} is {has} there and {wanted.dtype}{list(wanted.shape)} here.",
                instead="Use the algorithm's source, the settings and the spaces that the run was made with.")
        return jax.random.wrap_key_data(jnp.asarray(found)) if _is_key(leaf) else found

    return jax.tree_util.tree_map_with_path(find, like)


def _checkpointer() -> Any:
    ocp = late("orbax.checkpoint")
    return ocp.Checkpointer(ocp.StandardCheckpointHandler())


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, (jax.Array, jax.ShapeDtypeStruct)) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _names(path: tuple) -> list[str]:
    return [jax.tree_util.keystr((entry,), simple=True) for entry in path]


def weights_sha256(params: Any) -> str:
    """Over the parameters' raw bytes, in the order of their paths, with path, dtype and shape."""
    digest = hashlib.sha256()
    for path, leaf in sorted(((jax.tree_util.keystr(p), x) for p, x in
                              jax.tree_util.tree_flatten_with_path(params)[0]), key=lambda item: item[0]):
        array = np.ascontiguousarray(leaf)
        digest.update(f"{path} {array.dtype.str} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
