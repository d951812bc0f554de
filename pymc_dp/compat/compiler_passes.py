"""Less bookkeeping in numba's passes: the same code, compiled with less of Python's own work."""

from functools import cache
from typing import Any

from numba.core import ir  # what functions are written as between passes
from numba.core.compiler_machinery import (
    CompilerPass,  # one of some thirty steps from bytecode to machine code
    PassManager,  # runs them
)
from numba.core.errors import (  # type: ignore[attr-defined]
    new_error_context,  # where compiling failed
)
from numba.core.targetconfig import TargetConfig  # options of a compilation

__all__ = ["list_variables", "option_values", "options_equal", "options_hash", "run_pass"]

#: what instructions hold besides variables
_PLAIN = {str, int, float, bool, type(None), ir.Loc, ir.Const, ir.Global, ir.FreeVar, ir.Arg}


@cache
def _defaults(kind: type) -> dict[str, Any]:
    return {name: option.default for name, option in kind.options.items()}  # type: ignore[attr-defined]


def option_values(self: TargetConfig) -> dict[str, Any]:
    """Tell all options, as they were set or by default: asked for at every call that is typed."""
    return _defaults(type(self)) | self._values


def options_hash(self: TargetConfig) -> int:
    """Hash the options' names, as numba does: values need not have hashes."""
    return _names_hash(type(self))


@cache
def _names_hash(kind: type) -> int:
    return hash(tuple(sorted(_defaults(kind))))


def options_equal(self: TargetConfig, other: object) -> bool:
    """Whether options are the same."""
    if not isinstance(other, TargetConfig):
        return NotImplemented
    if type(self) is type(other) and self._values == other._values:
        return True
    return option_values(self) == option_values(other)


def list_variables(self: Any, value: Any) -> list[Any]:
    """List the variables in an instruction, or in what it holds."""
    found: list[Any] = []
    _collect(value, found)
    return found


def _collect(value: Any, found: list[Any]) -> None:
    kind = type(value)
    if kind is ir.Var:
        found.append(value)
    elif kind in _PLAIN:
        return
    elif isinstance(value, ir.Inst):
        found.extend(value.list_vars())
    elif isinstance(value, dict):
        for one in value.values():
            _collect(one, found)
    elif isinstance(value, list | tuple):
        for one in value:
            _collect(one, found)
    elif isinstance(value, ir.Var):
        found.append(value)


def run_pass(self: PassManager, one: CompilerPass, state: Any) -> None:
    """Run a pass: nothing is timed, told to listeners, printed or checked afterwards."""
    one.analysis = self._analysis
    with new_error_context("Pass {name}", name=one.name()):
        one.run_initialization(state)
        one.run_pass(state)
        one.run_finalizer(state)
