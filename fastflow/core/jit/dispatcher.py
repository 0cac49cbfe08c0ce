"""A kernel in two forms: a function that Python calls, and LLVM IR that other kernels inline.

Numba makes optimised machine code of every function, callable from Python and kept on disk. Most kernels are
called by kernels alone, which inline them, so that this work is wasted. Here a kernel is compiled to machine
code only where Python calls it. Where a kernel calls it, it is translated to LLVM IR and no further: LLVM
optimises the calling kernel with all its callees at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import binding as llvm
from numba.core import codegen, compiler, event, registry, typing
from numba.core import dispatcher as numba_dispatcher
from numba.core.compiler_lock import global_compiler_lock
from numba.core.environment import lookup_environment

from fastflow.core.collector import paused_collector


class _Flags(compiler.Flags):  # type: ignore[misc]
    """The flags of a compilation, which Numba compares a quarter of a million times in a first run."""

    def values(self) -> dict[str, Any]:
        """Return the value of every flag."""
        return {**_DEFAULTS, **self._values}


_DEFAULTS = {name: option.default for name, option in _Flags.options.items()}


class _Compiler(numba_dispatcher._FunctionCompiler):  # type: ignore[misc]
    """Compiles a function for calls from Python, with reference counts."""

    def _customize_flags(self, flags: Any) -> Any:
        flags.nrt = True
        return _Flags(flags)


class _PartCompiler(numba_dispatcher._FunctionCompiler):  # type: ignore[misc]
    """Compiles a function for calls from other kernels."""

    def _customize_flags(self, flags: Any) -> Any:
        flags.no_cpython_wrapper = True
        return _Flags(flags)


class _Library(codegen.JITCodeLibrary):  # type: ignore[misc]
    """A library whose machine code is made when the address of a function is first read.

    Libraries that link it take its LLVM IR, with that of all libraries that it links.
    """

    _shared_module: Any

    @property
    def codegen(self) -> Any:
        """The receiver of `set_env`: this library itself before there is machine code."""
        return self._codegen if self._finalized else self

    def set_env(self, name: str, environment: Any) -> None:
        """Ignore an environment: `finalize` of the calling kernel sets it."""

    def get_pointer_to_function(self, name: str) -> int:
        """Return the address of a function, 0 if the library has no function of this name."""
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
        """Link a library when this library is linked."""
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
    """A compiled function: machine code for calls from Python, LLVM IR for calls from kernels."""

    def __init__(self, py_func: Callable[..., Any], options: dict[str, Any], cache: Callable[[Any], Any]):
        """Take the function, Numba's options, and the factory of its cache, called with the kernel."""
        super().__init__(py_func, targetoptions=options)
        self._parts: dict[tuple[Any, ...], Any] = {}
        self._compiler, self._part_compiler = (
            compiler_class(py_func, self.targetdescr, self.targetoptions, {}, compiler.Compiler)
            for compiler_class in (_Compiler, _PartCompiler)
        )
        self._cache = cache(self)

    def __reduce__(self) -> Any:
        """Pickle the kernel by its name."""
        return self.py_func.__qualname__

    def compile(self, sig: Any) -> Any:
        """Compile for some types, or load the cached binary; returns the function that Python calls."""
        with self._compiling():
            return super().compile(sig)

    def _part(self, args: tuple[Any, ...]) -> Any:
        """Return the LLVM IR for kernels that call this kernel with some types."""
        with self._compiling():
            if args not in self._parts:
                details = {"dispatcher": self, "args": args, "return_type": None}
                with event.trigger_event("numba:compile", data=details):
                    self._parts[args] = self._part_compiler.compile(args, None)
            return self._parts[args]

    @contextmanager
    def _compiling(self) -> Iterator[None]:
        """Make Numba create libraries of the class `_Library`."""
        # to look for cycles takes a tenth of the time of compiling, and finds little
        with global_compiler_lock, paused_collector():
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
        """Return the entry point of the LLVM IR for some types, Numba's key of the function."""
        return self._parts[tuple(sig)].entry_point
