"""Less machine code: how numba compiles what this package joins, and only that."""

import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, cached_property
from types import BuiltinFunctionType, FunctionType
from typing import Any

import numba
import numba.np.arrayobj as numba_arrays  # assignment to slices
from llvmlite.binding import Linkage, parse_bitcode  # code that waits to be joined
from numba.core import (
    config,  # numba's settings
    event,  # timers of calls of LLVM
    ir,  # what is compiled, before it has types
    types,  # what compiled code knows of values
)
from numba.core.caching import NullCache  # of functions that are not kept
from numba.core.codegen import (
    JITCodeLibrary,  # code of one function and of all that it calls
    JITCPUCodegen,  # machine code and where it is
)
from numba.core.compiler_machinery import PassManager  # runs the passes of a compilation
from numba.core.cpu import CPUContext  # how functions are lowered
from numba.core.errors import (  # type: ignore[attr-defined]
    new_error_context,  # where compiling failed
)
from numba.core.registry import CPUDispatcher  # compiled functions
from numba.core.targetconfig import TargetConfig  # options of a function that is compiled
from numba.core.typed_passes import AnnotateTypes  # a text of what was compiled, for people
from numba.extending import overload  # what numba compiles in the place of a function
from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS  # keys of compiled code on disk

__all__ = ["HIDDEN", "Kernel", "garbage_seldom", "machine_code_once", "plain_slice_errors"]

#: options of functions that compiled functions alone call: no way in from Python
HIDDEN: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
#: whether this numba's insides are as :func:`machine_code_once` was written for
_KNOWN_NUMBA = numba.__version__.split(".")[:2] == ["0", "68"]


def _raise_unequal(src_shapes: Any, index_shape: Any) -> None:
    """Stand in, while compiling, for the function of numba that tells shapes."""


@overload(_raise_unequal)
def _raise_unequal_compiled(src_shapes: Any, index_shape: Any) -> Callable[..., None]:
    def raise_unequal(src_shapes: Any, index_shape: Any) -> None:
        raise ValueError("cannot assign slice from input of different size")

    return raise_unequal


class Kernel(CPUDispatcher):
    """A compiled function, in whose place compiled functions call one without a way in from Python.

    That one is compiled with less effort, see :func:`machine_code_once`.
    """

    @classmethod
    def of(cls, function: Any) -> Any:
        """Make a function that numba compiles one, with a numba that this was tried with."""
        if _KNOWN_NUMBA and type(function) is CPUDispatcher:
            function.__class__ = cls
        return function

    def _reduce_class(self) -> type:
        return CPUDispatcher  # what a pickle is read as

    @cached_property
    def inner(self) -> CPUDispatcher:
        """What compiled functions call."""
        called = self.py_func
        copy = FunctionType(
            called.__code__,
            called.__globals__,
            called.__name__,
            called.__defaults__,
            called.__closure__,
        )
        copy.__kwdefaults__, copy.__module__ = called.__kwdefaults__, called.__module__
        copy.__qualname__ = called.__qualname__
        made = CPUDispatcher(copy, self.locals, {**self.targetoptions, **HIDDEN})
        if not isinstance(self._cache, NullCache):  # type: ignore[attr-defined]
            CACHED_SRC_FUNCTIONS[copy] = f"{CACHED_SRC_FUNCTIONS[called]}-inner"
            made.enable_caching()
        return made

    @property
    def _numba_type_(self) -> types.Dispatcher:
        return types.Dispatcher(self.inner)  # type: ignore[arg-type]

    def compile(self, sig: Any) -> Any:
        """Compile for types of arguments."""
        with machine_code_once(), plain_slice_errors():
            return super().compile(sig)


#: parts of numba's instructions that hold none of its variables
_NO_VARIABLES = {ir.Loc, str, int, bool, type(None), BuiltinFunctionType}
_compilation = threading.local()
#: Python's side of functions whose machine code is part of no library yet, by symbol
_environments: dict[str, Any] = {}


@contextmanager
def machine_code_once() -> Iterator[None]:
    """Make machine code of functions that Python calls alone, in what is compiled meanwhile.

    numba optimises every function with all that it calls, and makes machine code of it, again for
    each caller of a caller, although only the outermost is ever run. Here code that Python has no
    way into is kept as it was written until it is joined with what Python calls.
    """
    inside = _quick()
    if _KNOWN_NUMBA:
        _install()
        _compilation.quick = True
    try:
        with garbage_seldom():
            yield
    finally:
        _compilation.quick = inside


@contextmanager
def garbage_seldom() -> Iterator[None]:
    """Search seldom for garbage meanwhile, among the many objects that graphs and code are.

    It was a seventh of the time of compiling, and as much of what a first run takes with compiled
    code on disk. Less often than this would take more memory: never, a hundred megabytes.
    """
    collecting = gc.get_threshold()
    if 0 < collecting[0] < 50_000:  # 0 is never
        gc.set_threshold(50_000, 3, 3)
    try:
        yield
    finally:
        gc.set_threshold(*collecting)


def _quick() -> bool:
    return getattr(_compilation, "quick", False)


def _joined_libraries(library: Any) -> list[Any]:
    """All that a library needs and that is not part of it yet, callers before what they call."""
    found: dict[Any, None] = {}
    seen = set()

    def visit(one: Any) -> None:
        if one not in seen:
            seen.add(one)
            if getattr(one, "joined", False):
                for other in one._linking_libraries:
                    visit(other)
            found[one] = None

    for one in library._linking_libraries:
        visit(one)
    return list(found)[::-1]


class QuickLibrary(JITCodeLibrary):
    """numba's library of one function and all that it calls, which may wait to be joined."""

    joined = False
    own: Sequence[str] = ()

    def finalize(self) -> None:
        """Join what is needed and make machine code, where Python has a way in."""
        variables = [variable.name for variable in self._final_module.global_variables]
        functions = [f for f in self._final_module.functions if not f.is_declaration]
        self.joined = (
            _quick()
            and not any(name.startswith(".numba.unresolved") for name in variables)  # recursion
            and not any(f.name.startswith("_ZN7cpython") for f in functions)
        )
        if not self.joined:
            self._linking_libraries = _joined_libraries(self)
            super().finalize()
            return
        for library in self._linking_libraries:
            self._reload_init.update(library._reload_init)
            self._dynamic_globals += library._dynamic_globals
        self._dynamic_globals += [n for n in variables if n.startswith("numba.dynamic.globals")]
        self.own = [f.name for f in functions if f.linkage == Linkage.external]
        self._wait(Linkage.linkonce_odr)

    def _wait(self, linkage: Linkage) -> None:
        for name in self.own:
            self._final_module.get_function(name).linkage = linkage
        self._shared_module, self._finalized = self._final_module, True

    def _join(self) -> None:
        for library in _joined_libraries(self):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._linking_libraries = []

    def _optimize_functions(self, module: Any) -> None:
        """Simplify functions a little: they are optimised when they are joined."""
        if not _quick():
            super()._optimize_functions(module)
            return
        module.data_layout = self._codegen._data_layout
        for function in module.functions:
            if not function.is_declaration:
                manager, builder = self._codegen._function_pass_manager(opt=1)
                manager.run(function, builder)

    def _optimize_final_module(self) -> None:
        """Optimise as numba does, less what takes an eighth of the time and speeds up nothing."""
        if not _quick() or not config.LLVM_REFPRUNE_PASS:  # type: ignore[attr-defined]
            super()._optimize_final_module()
            return
        inlined = {"loop_vectorize": False, "slp_vectorize": False, "opt": 0, "cost": "cheap"}
        for options in (inlined, {"opt": 2}):
            manager, builder = self._codegen._module_pass_manager(**options)
            manager.run(self._final_module, builder)

    def _finalize_final_module(self) -> None:
        super()._finalize_final_module()
        for name in [n for n in _environments if self._codegen._engine.is_symbol_defined(n)]:
            self._codegen.set_env(name, _environments.pop(name))  # type: ignore[attr-defined]

    def serialize_using_object_code(self) -> Any:
        """Write what waits as it is."""
        self._ensure_finalized()
        if not self.joined:
            written = super().serialize_using_object_code()
            if _quick():
                self._shared_module = None  # a copy, made anew where it is asked for
            return written
        self._join()
        return self.serialize_using_bitcode()

    @classmethod
    def _unserialize(cls, codegen: Any, state: Any) -> Any:
        name, kind, data = state
        if kind != "bitcode" or not _quick():
            return super()._unserialize(codegen, state)
        self = codegen.create_library(name)
        self._final_module = parse_bitcode(data)
        self._finalize_dynamic_globals()
        self.joined = True
        self._wait(Linkage.linkonce_odr)
        return self

    def get_pointer_to_function(self, name: str) -> Any:
        """Make machine code, now that it is asked for."""
        self._ensure_finalized()
        if self.joined:
            if all(f.name != name or f.is_declaration for f in self._final_module.functions):
                return 0
            self._join()
            self.own = [*self.own, name]
            self._wait(Linkage.external)
            self.joined, self._shared_module = False, None
            self._optimize_final_module()
            self._finalize_final_module()
        return super().get_pointer_to_function(name)


@cache
def _install() -> None:
    """Let numba use our libraries, which do as its own do outside of `machine_code_once`."""
    set_environment, install_timer = JITCPUCodegen.set_env, event.install_timer
    wrap, run_pass = CPUContext.create_cfunc_wrapper, PassManager._runPass
    options_equal = TargetConfig.__eq__
    options_hash: Any = cache(lambda kind: hash(tuple(sorted(kind.options))))
    list_variables, analyse = ir.Inst._rec_list_vars, PassManager.dependency_analysis
    analyses: dict[tuple[Any, ...], Any] = {}

    def set_later(self: Any, name: str, environment: Any) -> None:
        if self._engine.is_symbol_defined(name):
            set_environment(self, name, environment)
        else:
            _environments[name] = environment

    def wrapped(self: Any, library: Any, *args: Any) -> None:
        """Give functions without a way in from Python none for others either."""
        if not _quick() or any(
            f.name.startswith("_ZN7cpython") for f in library._final_module.functions
        ):
            wrap(self, library, *args)

    def timed(kind: str, callback: Any) -> Any:
        """Time nothing: every call of LLVM would be told to every function that is compiled."""
        return nullcontext() if _quick() else install_timer(kind, callback)

    def passed(self: Any, index: int, one: Any, state: Any) -> None:
        """Run a pass: of ours nothing is timed, told to listeners, printed or kept to be."""
        if not _quick():
            run_pass(self, index, one, state)
            return
        if type(one) is AnnotateTypes:  # keeps all of it as it was before it became machine code
            return
        one.analysis = self._analysis
        with new_error_context("Pass {name}", name=one.name()):
            one.run_initialization(state)
            one.run_pass(state)
            one.run_finalizer(state)

    def equal(self: Any, other: Any) -> Any:
        """Compare options that were set, not all thirty: numba does so at every call it types."""
        if type(self) is not type(other):
            return options_equal(self, other)
        names = self._values.keys() | other._values.keys()
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def analysed(self: Any) -> Any:
        """Tell which passes need which once for each list of passes, and not for each function."""
        kinds = tuple(kind for kind, _ in self.passes)
        if kinds not in analyses:
            analyses[kinds] = analyse(self)
        return analyses[kinds]

    def hashed(self: Any) -> int:
        """Hash of options' names, as numba's, whose values differ seldom."""
        return int(options_hash(type(self)))

    def listed(self: Any, value: Any) -> list[Any]:
        """List variables: numba asks five times of every place, name and number what it is."""
        if type(value) is not dict:
            return list_variables(self, value)
        found: list[Any] = []
        for part in value.values():
            if type(part) is ir.Var:
                found.append(part)
            elif type(part) not in _NO_VARIABLES:
                found += list_variables(self, part)
        return found

    JITCPUCodegen._library_class = QuickLibrary
    ir.Inst._rec_list_vars = listed  # type: ignore[method-assign]
    TargetConfig.__eq__ = equal  # type: ignore[method-assign]
    TargetConfig.__hash__ = hashed  # type: ignore[method-assign]
    PassManager._runPass = passed  # type: ignore[method-assign]
    PassManager.dependency_analysis = analysed  # type: ignore[method-assign]
    JITCPUCodegen.set_env = set_later  # type: ignore[method-assign]
    CPUContext.create_cfunc_wrapper = wrapped  # type: ignore[method-assign]
    event.install_timer = timed


@contextmanager
def plain_slice_errors() -> Iterator[None]:
    """Leave shapes out of the error about slices of unequal size, in what is compiled meanwhile.

    To write them numba compiles its strings for every dimension: a third of the time that the
    first model of a new machine takes.
    """
    held = numba_arrays.raise_with_shape_context
    numba_arrays.raise_with_shape_context = _raise_unequal
    try:
        yield
    finally:
        numba_arrays.raise_with_shape_context = held
