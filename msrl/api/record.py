"""Named fields as one value: what goes into a buffer by keyword comes out of it by attribute."""

from typing import Any

import jax


@jax.tree_util.register_pytree_with_keys_class
class Record:
    """An immutable bag of named values, a pytree. `Record(obs=x).obs` is x. Fields keep a fixed (sorted) order."""

    __slots__ = ("_fields",)

    def __init__(self, **fields: Any):
        object.__setattr__(self, "_fields", dict(sorted(fields.items())))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._fields[name]
        except KeyError:
            raise AttributeError(f"no field {name!r}; the fields are {', '.join(self._fields)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a Record does not change: write record.replace({name}=...)")

    def __repr__(self) -> str:
        return f"Record({', '.join(f'{k}={v!r}' for k, v in self._fields.items())})"

    def replace(self, **fields: Any) -> "Record":
        return Record(**{**self._fields, **fields})

    def asdict(self) -> dict[str, Any]:
        return dict(self._fields)

    def tree_flatten(self):
        return tuple(self._fields.values()), tuple(self._fields)

    def tree_flatten_with_keys(self):
        keys = [(jax.tree_util.GetAttrKey(name), value) for name, value in self._fields.items()]
        return keys, tuple(self._fields)

    @classmethod
    def tree_unflatten(cls, names, values):
        record = object.__new__(cls)
        object.__setattr__(record, "_fields", dict(zip(names, values, strict=True)))
        return record
