"""The 210 arguments of SGLang 0.5.2's server: names, types, defaults, and what each one means.

One file a concern, each a dataclass; ``ServerArgs`` is all of them in one flat class. What belongs here is about
one argument alone. What one argument does to another is a rule (``sglang_hydra.rules``), what must hold between
them a check (``sglang_hydra.rules.checks``). To add an argument, add one line to its concern.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sglang_hydra.arguments.fields.api import Api
from sglang_hydra.arguments.fields.arg import MISSING, Arg, Field, argument_class
from sglang_hydra.arguments.fields.cache import Cache
from sglang_hydra.arguments.fields.debug import Debug
from sglang_hydra.arguments.fields.deprecated import Deprecated
from sglang_hydra.arguments.fields.disaggregation import Disaggregation
from sglang_hydra.arguments.fields.experts import Experts
from sglang_hydra.arguments.fields.graphs import Graphs
from sglang_hydra.arguments.fields.kernels import Kernels
from sglang_hydra.arguments.fields.loading import Loading
from sglang_hydra.arguments.fields.logs import Logs
from sglang_hydra.arguments.fields.lora import Lora, LoRARef
from sglang_hydra.arguments.fields.memory import Memory
from sglang_hydra.arguments.fields.model import Model
from sglang_hydra.arguments.fields.offload import Offload
from sglang_hydra.arguments.fields.parallel import Parallel
from sglang_hydra.arguments.fields.quantization import Quantization
from sglang_hydra.arguments.fields.runtime import Runtime
from sglang_hydra.arguments.fields.scheduling import Scheduling
from sglang_hydra.arguments.fields.server import Server
from sglang_hydra.arguments.fields.sparsity import Sparsity
from sglang_hydra.arguments.fields.speculative import Speculative
from sglang_hydra.arguments.fields.tokenizer import Tokenizer

__all__ = ["CONCERNS", "FIELDS", "MISSING", "Arg", "Field", "LoRARef", "ServerArgs", "fresh_defaults", "sealed"]

# In the order in which help pages and tables show them.
CONCERNS: tuple[type, ...] = (
    Model,
    Tokenizer,
    Loading,
    Server,
    Quantization,
    Memory,
    Scheduling,
    Runtime,
    Parallel,
    Logs,
    Api,
    Lora,
    Kernels,
    Speculative,
    Experts,
    Cache,
    Sparsity,
    Offload,
    Graphs,
    Disaggregation,
    Debug,
    Deprecated,
)


class _Signature:
    """The signature of a dataclass whose initializer is written by hand, made when somebody looks at it."""

    def __get__(self, instance: object, owner: type) -> Any:
        import inspect

        def default(item: dataclasses.Field[Any]) -> Any:
            factory: Any = item.default_factory
            return item.default if factory is dataclasses.MISSING else factory()

        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        items = dataclasses.fields(owner)
        return inspect.Signature(
            [inspect.Parameter(item.name, kind, default=default(item), annotation=item.type) for item in items]
        )


# Dataclasses collect the fields of the last base first: the bases are CONCERNS from its end.
@argument_class
class ServerArgs(
    Deprecated,
    Debug,
    Disaggregation,
    Graphs,
    Offload,
    Sparsity,
    Cache,
    Experts,
    Speculative,
    Kernels,
    Lora,
    Api,
    Logs,
    Parallel,
    Runtime,
    Scheduling,
    Memory,
    Quantization,
    Server,
    Loading,
    Tokenizer,
    Model,
):
    """All arguments of the server, flat, under SGLang's own names. Equality is by value, sealed or not."""

    __signature__ = _Signature()

    if not TYPE_CHECKING:  # type checkers see an initializer with every argument

        def __init__(self, *values: Any, **named: Any) -> None:
            """Takes what any dataclass takes. Made here, as Python needs longer to compile one for 210 arguments than a
            plan needs to resolve. Raises TypeError for an unknown name, a second value, or too many."""
            fields = dataclasses.fields(self)
            given = dict(zip((field.name for field in fields), values, strict=False))
            unknown = [name for name in named if name in given or name not in type(self).__dataclass_fields__]
            if unknown or len(values) > len(fields):
                raise TypeError(f"{type(self).__name__} takes no such argument: {', '.join(unknown) or values[-1]}")
            given |= named
            for field in fields:
                value = given.get(field.name, field.default)
                factory: Any = field.default_factory
                setattr(self, field.name, factory() if value is dataclasses.MISSING else value)

    def url(self) -> str:
        """Where clients reach the server, an IPv6 address in brackets."""
        from sglang_hydra.arguments.ports import server_url

        return server_url(vars(self))

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if isinstance(other, ServerArgs) else NotImplemented

    def __repr__(self) -> str:
        """Shows what differs from the defaults; a secret only as being set."""
        shown = (
            f"{name}={'***' if name in FIELDS and FIELDS[name].arg.secret else repr(value)}"
            for name, value in vars(self).items()
            if name not in FIELDS or value != FIELDS[name].default
        )
        return f"{type(self).__name__}({', '.join(shown)})"


class SealedServerArgs(ServerArgs):
    """The same, read-only: every write raises ``dataclasses.FrozenInstanceError``."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to {name!r}: these arguments are sealed")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete {name!r}: these arguments are sealed")


def _collect(concerns: tuple[type, ...], assembled: type) -> dict[str, Field]:
    """Every field by name, in the order of ``concerns``. Raises TypeError where two concerns have the same one."""
    found: dict[str, Field] = {}
    for concern in concerns:
        room = concern.__module__.rpartition(".")[2]
        for field in dataclasses.fields(concern):
            if field.name in found:
                raise TypeError(f"{field.name} is defined in {found[field.name].concern} and again in {room}")
            found[field.name] = Field(field.name, str(field.type), field.default, field.metadata["arg"], room)
    assembled_names = assembled.__dataclass_fields__  # type: ignore[attr-defined]
    if list(found) != list(assembled_names):
        differing = sorted(found.keys() ^ assembled_names.keys()) or "their order"
        raise TypeError(f"the bases of {assembled.__name__} and its list of concerns differ: {differing}")
    return found


FIELDS: Mapping[str, Field] = MappingProxyType(_collect(CONCERNS, ServerArgs))
_DEFAULTS = {name: None if field.required else field.default for name, field in FIELDS.items()}


def fresh_defaults() -> dict[str, Any]:
    """All 210 names with SGLang's defaults; ``model_path``, which has none there, is None. The dict is the caller's."""
    return _DEFAULTS.copy()


def sealed(values: Mapping[str, Any]) -> ServerArgs:
    """The arguments as one read-only object. ``values`` must have all 210 names and no other (TypeError)."""
    if values.keys() != _DEFAULTS.keys():
        raise TypeError(f"missing or unknown arguments: {sorted(values.keys() ^ _DEFAULTS.keys())}")
    made = object.__new__(SealedServerArgs)
    made.__dict__.update(values)
    return made
