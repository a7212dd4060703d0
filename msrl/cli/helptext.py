"""A flag's help as one paragraph, however the source breaks the lines of the text below the field.

In: a dataclass, as tyro meets it. Out: what tyro makes of it, with every field's help re-flowed; by itself it keeps the
line breaks of texts that are indented, as those of fields are.
"""

import dataclasses
from collections.abc import Callable

from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructTypeInfo

REGISTRY = ConstructorRegistry()
_asked: set[type] = set()  # what tyro is asked about right now, by the rule itself


@REGISTRY.struct_rule
def reflowed(info: StructTypeInfo) -> StructConstructorSpec | None:
    if not dataclasses.is_dataclass(info.type) or info.type in _asked:
        return None  # tyro's own rules are next
    _asked.add(info.type)
    try:
        spec = ConstructorRegistry.get_struct_spec(info)
    finally:
        _asked.remove(info.type)
    assert isinstance(spec, StructConstructorSpec)
    return dataclasses.replace(spec, fields=tuple(
        dataclasses.replace(field, helptext=one_paragraph(field.helptext)) for field in spec.fields))


def one_paragraph(text: str | Callable[[], str | None] | None) -> Callable[[], str | None]:
    """Found when --help asks for it, as reading source takes time."""
    def found() -> str | None:
        plain = text() if callable(text) else text
        return plain and " ".join(plain.split())

    return found
