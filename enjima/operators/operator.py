"""What every operator is: a description that users build, and an instance that a run deploys.

START HERE to add an operator: one file in this folder with a template for the compiled kernel, the same
in Python for functions that do not compile, and a method on `enjima.stream.Stream`.
"""

import copy
import ctypes
import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from enjima.errors import PythonFallbackWarning, SchemaError
from enjima.schema import Schema
from haren.memory import address, lines

__all__ = ["BATCH", "Instance", "Operator", "UserFunction", "field_values", "records"]

BATCH = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 7)


class UserFunction:
    """A function the user gave to an operator: how to name it, compile it and replay it."""

    def __init__(
        self, function: Callable, operator: str, arguments: tuple[str, ...] = ("the event",)
    ) -> None:
        if not callable(function):
            raise SchemaError(
                f"operator {operator!r} needs a function, not {type(function).__name__} {function!r}"
            )
        self.python = getattr(function, "py_func", function)
        code = getattr(self.python, "__code__", None)
        if code is not None and not _accepts(self.python, len(arguments)):
            names = ", ".join(code.co_varnames[: code.co_argcount]) or "nothing"
            wanted = "one argument" if len(arguments) == 1 else "two arguments"
            raise SchemaError(
                f"operator {operator!r}: its function takes {wanted}, {' and '.join(arguments)}; "
                f"this one takes {names}"
            )
        self.given = function
        self.operator = operator
        self.arguments = arguments

    @property
    def name(self) -> str:
        code = getattr(self.python, "__code__", None)
        place = f" ({code.co_filename.rsplit('/', 1)[-1]}:{code.co_firstlineno})" if code else ""
        return f"{getattr(self.python, '__name__', repr(self.python))}{place}"

    def compiled(self) -> Callable:
        """The function as kernels call it."""
        from enjima.native.kernels import jit_user_function

        return jit_user_function(self.given)


class Operator(ABC):
    """One step of a query: immutable, named, with the schema of what it produces.

    ``kind`` is a word of `enjima.native.words`; ``time`` the field that holds event time downstream.
    """

    kind: int
    label: str  # the kind, for people

    def __init__(self, name: str, inputs: Schema | None, output: Schema | None, time: str | None) -> None:
        self.name = name
        self.inputs = inputs
        self.output = output
        self.input_time = time if inputs is not None and time in inputs.names else None
        self.time = time if output is not None and time in output.names else None
        if output is not None and self.time:
            output.integer(self.time, f"operator {name!r}, event time")

    def time_at(self) -> int:
        """Where 64-bit event time lies in what the operator reads (a source: emits); -1 if there is none."""
        schema, time = (self.output, self.time) if self.inputs is None else (self.inputs, self.input_time)
        return schema.offset(time) if schema is not None and time and schema.dtype[time].itemsize == 8 else -1

    @abstractmethod
    def prepare(self) -> None:
        """Compile and check; called when the step is built, so that errors point at the user's line."""

    @abstractmethod
    def deploy(self) -> "Instance":
        """Fresh state and the kernel's address, for one run."""

    def install(self, instance: "Instance") -> None:
        """Let an instance run this operator's function, when it is deployed or after a swap."""
        raise AssertionError(f"{self.label} has no user function")

    def swapped(self, function: Callable) -> "Operator":
        """A copy of this operator with another function, ready to run."""
        raise SchemaError(f"operator {self.name!r} ({self.label}) has no function that can be swapped")

    def replay(self, event: Any) -> None:
        """Call the user's function in Python on the event it failed on, to raise its own exception."""
        raise AssertionError(f"{self.label} has no user function")

    def replay_result(self, state: int) -> None:
        """The same for a function that failed on a state, at this address."""
        raise AssertionError(f"{self.label} has no results of its own")

    def describe(self) -> str:
        """What the step does, in a few words for the drawing of a query."""
        return self.label


class Compiled(Operator):
    """An operator whose kernel is a template around user functions, with a Python twin."""

    swappable: str | None = None  # the attribute with the one function that can be swapped

    def __init__(self, name: str, inputs: Schema | None, output: Schema | None, time: str | None) -> None:
        super().__init__(name, inputs, output, time)
        self.functions: list[UserFunction] = []
        self.native: Any = None

    @abstractmethod
    def template(self) -> tuple[str, dict[str, Any]]:
        """The kernel's source and the names it uses."""

    @abstractmethod
    def python_batch(self, instance: "Instance") -> Callable[..., int]:
        """The kernel as Python, for user functions that do not compile."""

    def event_reader(self) -> Any:
        """How a kernel sees an event of the input at an address."""
        from enjima.native.event import event_reader

        assert self.inputs is not None
        return event_reader(self.inputs.dtype, self.input_time if self.time_at() >= 0 else None)

    def event_type(self) -> Any:
        """The numba type of an event of the input."""
        from enjima.native.event import EventType

        assert self.inputs is not None
        return EventType(self.inputs.dtype, self.input_time if self.time_at() >= 0 else None)

    def check(self) -> None:
        """Raise `SchemaError` if a compiled function's result does not fit."""

    def prepare(self) -> None:
        from enjima.native.kernels import NumbaError, compile_kernel

        for function in self.functions:
            self._check_fields(function)
        try:
            template, names = self.template()
            if self.inputs is not None:
                names |= {
                    "event": self.event_reader(),
                    "COPY_SIZE": self.inputs.size,
                    "COPY_TIME": self.time_at(),
                }
            self.native = compile_kernel(template, names, self.check)
        except NumbaError as error:
            if not self.functions:
                raise
            reason = _reason(error)
            if "was not found in record" in str(error):
                assert self.inputs is not None
                raise SchemaError(
                    f"operator {self.name!r}: {reason}; the stream has {', '.join(self.inputs.names)}"
                ) from error
            names_ = ", ".join(function.name for function in self.functions)
            warnings.warn(
                f"operator {self.name!r}: {names_} does not compile and runs as Python, far slower. {reason}",
                PythonFallbackWarning,
                stacklevel=4,
            )

    def _check_fields(self, function: UserFunction) -> None:
        """Find ``e.field`` of a field that is not there before numba does, with a clearer message."""
        import dis

        code = getattr(function.python, "__code__", None)
        if code is None or self.inputs is None or code.co_argcount == 0:
            return
        event = code.co_varnames[code.co_argcount - 1]
        former = None
        for step in dis.get_instructions(code):
            if former is not None and former.opname.startswith("LOAD_FAST") and former.argval == event:
                if step.opname in ("LOAD_ATTR", "LOAD_METHOD") and not hasattr(np.record, str(step.argval)):
                    self.inputs.require(step.argval, f"operator {self.name!r}, {function.name}")
            former = step

    def deploy(self) -> "Instance":
        instance = Instance(self, self.state_words())
        self.install(instance)
        return instance

    def install(self, instance: "Instance") -> None:
        if self.native is not None:
            instance.batch = self.native.address
        else:
            instance.use_python(self.python_batch(instance))

    def swapped(self, function: Callable) -> "Operator":
        if self.swappable is None:
            return super().swapped(function)
        new = copy.copy(self)
        user = UserFunction(function, self.name, getattr(self, self.swappable).arguments)
        setattr(new, self.swappable, user)
        new.functions, new.native = [user], None
        new.prepare()
        return new

    def state_words(self) -> int:
        """How many words of native state an instance has."""
        return 0


class Instance:
    """An operator deployed for one run: the kernel's address and its state's memory."""

    def __init__(self, operator: Operator, state_words: int = 0) -> None:
        self.operator = operator
        self.batch = 0
        self.wants_end = False  # a sink that is told of the end of its stream
        self.state = lines(-(-state_words // 8)) if state_words else lines(1)
        self.error: BaseException | None = None
        self.stop_flag: Callable[[], bool] = lambda: False
        self.words: np.ndarray = lines(1)  # the operator's own words, set when it is deployed
        self._callback: Any = None

    @property
    def state_address(self) -> int:
        return address(self.state)

    def use_python(self, batch: Callable[..., int]) -> None:
        """Let Python stand in the kernel's place; what it raises is kept and stops the query."""
        from enjima.native import words as w

        def guarded(
            op: int, events: int, origins: int, count: int, out: int, out_origins: int, room: int
        ) -> int:
            try:
                return batch(op, events, origins, count, out, out_origins, room)
            except BaseException as error:
                self.error = error
                self.words[w.ERROR // 8] = w.USER_ERROR
                return getattr(self, "progress", 0)

        self._callback = BATCH(guarded)
        self.batch = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def inputs(self, where: int, count: int) -> np.ndarray:
        """The records of a batch, event times shifted where they are lent."""
        from enjima.native import words as w

        schema, shift = self.operator.inputs, int(self.words[w.SHIFT // 8])
        assert schema is not None
        batch = records(where, count, schema)
        if shift and self.operator.input_time:
            batch = batch.copy()
            batch[self.operator.input_time] += shift
        return batch

    def iterate(self, inputs: np.ndarray) -> Iterator[tuple[int, Any]]:
        """The events of a batch for a Python kernel, which ends early when the engine is stopped.

        ``progress`` counts the events finished, so that an exception does not lose them.
        """
        self.progress = 0
        assert self.operator.inputs is not None
        for index, event in enumerate(self.operator.inputs.events(inputs)):
            if self.stop_flag():
                return
            yield index, event
            self.progress = index + 1

    def flush(self, waiting: list[tuple[tuple, int]], out: int, out_origins: int, room: int) -> None:
        """For a Python kernel: send what has room of its results and their origins; the rest stays."""
        from enjima.native import words as w

        assert self.operator.output is not None
        count = min(room, len(waiting))
        outputs, origins = records(out, count, self.operator.output), words_at(out_origins, count)
        for index in range(count):
            outputs[index], origins[index] = waiting[index]
        del waiting[:count]
        self.words[w.PRODUCED // 8] = count
        self.words[w.MORE // 8] = int(bool(waiting))

    def close(self) -> None:
        """Give back what the kernels allocated."""


def _accepts(function: Callable, arguments: int) -> bool:
    try:
        inspect.signature(function).bind(*[None] * arguments)
    except TypeError:
        return False
    return True


def records(where: int, count: int, schema: Schema) -> np.ndarray:
    """Events at an address, as a structured array that is not a copy."""
    if count == 0:
        return np.empty(0, schema.dtype)
    return _memory(where, count * schema.size).view(schema.dtype)


def words_at(where: int, count: int) -> np.ndarray:
    """Words at an address."""
    if count == 0:
        return np.empty(0, np.int64)
    return _memory(where, 8 * count).view(np.int64)


def _memory(where: int, size: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(where))


def field_values(result: Any, schema: Schema, operator: str) -> tuple:
    """What a user function returned, as one value per field of ``schema``."""
    if isinstance(result, np.void):
        result = result.item()
    values = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    if len(values) != len(schema.names):
        raise SchemaError(
            f"operator {operator!r} returned {len(values)} values for the {len(schema.names)} fields "
            f"of schema {schema}"
        )
    return values


def _reason(error: BaseException) -> str:
    lines_ = [line.strip() for line in str(error).splitlines() if line.strip()]
    chosen = [line for line in lines_ if not line.startswith(("Failed in", "-", "During:", "File"))]
    return (chosen or lines_)[0][:300]
