"""A kernel, in two forms: what Python calls, and what other kernels have in them.

Numba makes one of the two for every function: machine code of its own, optimised, callable from Python and
kept on disk. Most kernels are called by kernels alone, which have a copy of them inside, so that all this
work is thrown away. Here a kernel is made whole where Python calls it. Where a kernel calls it, it is
translated to LLVM's language and no further: LLVM optimises all that is inside of a kernel at once.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import binding as llvm
from numba.core import codegen, compiler, event, registry, typing
from numba.core import dispatcher as numba_dispatcher
from numba.core.compiler_lock import global_compiler_lock
from numba.core.environment import lookup_environment


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Have no search for garbage, which takes a tenth of the time of compiling, and finds little."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class _Flags(compiler.Flags):  # type: ignore[misc]
    """The flags of a compilation, which Numba compares a quarter of a million times in a first run."""

    def values(self) -> dict[str, Any]:
        """Return the value of every flag."""
        return {**_DEFAULTS, **self._values}


_DEFAULTS = {name: option.default for name, option in _Flags.options.items()}


class _Compiler(numba_dispatcher._FunctionCompiler):  # type: ignore[misc]
    """Compiles a function for Python, which has references counted."""

    def _customize_flags(self, flags: Any) -> Any:
        flags.nrt = True
        return _Flags(flags)


class _PartCompiler(numba_dispatcher._FunctionCompiler):  # type: ignore[misc]
    """Compiles a function for other kernels."""

    def _customize_flags(self, flags: Any) -> Any:
        flags.no_cpython_wrapper = True
        return _Flags(flags)


class _Library(codegen.JITCodeLibrary):  # type: ignore[misc]
    """A library whose machine code is made once somebody asks for a function's address, and not before.

    Others that link it take what it says in LLVM's language, with all that it links itself.
    """

    _shared_module: Any

    @property
    def codegen(self) -> Any:
        """Whom to tell of an environment: nobody before there is machine code, see `set_env`."""
        return self._codegen if self._finalized else self

    def set_env(self, name: str, environment: Any) -> None:
        """Leave an environment to the kernel that this is a part of: `finalize` sets it there."""

    def get_pointer_to_function(self, name: str) -> int:
        """Return the address of a function, 0 if the library has none of this name."""
        return super().get_pointer_to_function(name) if self._finalized or self._has(name) else 0

    def _has(self, name: str) -> bool:
        try:
            return not self._final_module.get_function(name).is_declaration
        except NameError:
            return False

    def add_ir_module(self, ir_module: Any) -> None:
        """Add a module; but no wrapper for C, which Numba makes for each of its own functions."""
        if ir_module.name != "cfunc_wrapper":
            super().add_ir_module(ir_module)

    def add_linking_library(self, library: Any) -> None:
        """Link a library once this one is."""
        if isinstance(library, _Library):
            self._linking_libraries.append(library)
        else:
            super().add_linking_library(library)

    def _get_module_for_linking(self) -> Any:
        if self._finalized:
            return super()._get_module_for_linking()
        if self._shared_module is None:
            module = self._final_module.clone()
            for function in module.functions:
                if not function.is_declaration and function.linkage == llvm.Linkage.external:
                    function.linkage = "linkonce_odr"  # it may be in several libraries
            for library in dict.fromkeys(self._linking_libraries):
                module.link_in(library._get_module_for_linking(), preserve=True)
            self._shared_module = module
        return self._shared_module

    def finalize(self) -> None:
        """Optimise, and make the machine code."""
        self._shared_module = None
        super().finalize()
        for variable in self._final_module.global_variables:
            if variable.name.startswith("_ZN08NumbaEnv"):
                environment = lookup_environment(variable.name)
                if environment is not None:
                    self._codegen.set_env(variable.name, environment)


class Kernel(registry.CPUDispatcher):  # type: ignore[misc]
    """A compiled function: whole for each combination of types that Python calls it with, and in parts."""

    def __init__(self, py_func: Callable[..., Any], options: dict[str, Any], cache: Callable[[Any], Any]):
        """Take the function, Numba's options, and who keeps its binaries: called with the kernel."""
        super().__init__(py_func, targetoptions=options)
        self._parts: dict[tuple[Any, ...], Any] = {}
        self._compiler, self._part_compiler = (
            made(py_func, self.targetdescr, self.targetoptions, {}, compiler.Compiler)
            for made in (_Compiler, _PartCompiler)
        )
        self._cache = cache(self)

    def __reduce__(self) -> Any:
        """Stay the same kernel in another process: it is looked up by its name."""
        return self.py_func.__qualname__

    def compile(self, sig: Any) -> Any:
        """Compile for some types, or load what was compiled before; returns what Python calls."""
        with self._compiling():
            return super().compile(sig)

    def _part(self, args: tuple[Any, ...]) -> Any:
        """Return the form for other kernels that call this one with some types."""
        with self._compiling():
            if args not in self._parts:
                details = {"dispatcher": self, "args": args, "return_type": None}
                with event.trigger_event("numba:compile", data=details):
                    self._parts[args] = self._part_compiler.compile(args, None)
            return self._parts[args]

    @contextmanager
    def _compiling(self) -> Iterator[None]:
        """Have libraries made that wait for a use of their machine code."""
        with global_compiler_lock, gc_disabled():
            context = self.targetctx.codegen()
            before = context._library_class
            context._library_class = _Library
            try:
                yield
            finally:
                context._library_class = before

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return how Numba types a call from another kernel; see Numba's own."""
        pysig, folded = self._compiler.fold_argument_types(args, kws)
        part = self._part(tuple(folded))
        name = self.py_func.__name__
        return typing.make_concrete_template(name, name, [part.signature]), pysig, folded, {}

    def get_overload(self, sig: Any) -> Any:
        """Return what stands for a part in Numba's list of functions."""
        return self._parts[tuple(sig)].entry_point
