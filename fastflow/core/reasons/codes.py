"""The registry of codes, and a reason: a code, a form and its fields.

A form is a function from fields to the text (`forms`). The text is made where results are written, and
nothing reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, ParamSpec

from fastflow.core.errors import CompositionError, InputError


class Code(IntEnum):
    """The registry of codes; a code's `meaning` is its entry in the tables of the docs."""

    meaning: str

    def __new__(cls, number: int, meaning: str) -> Code:
        """Take the number in a column of codes, and the meaning."""
        code = int.__new__(cls, number)
        code._value_, code.meaning = number, meaning
        return code

    NONE = 0, "the point is feasible"
    MEMORY = 1, "a device has too little memory for its share of the model, or for caches"
    POWER_BUDGET = 2, "a component of the chip has no power left for its work"
    COMPONENT_BUDGET = 3, "the budgets of a component have no room for its smallest unit"
    BUDGET_SHARES = 4, "shares of a budget sum to more than 1"
    DIE_AREA = 5, "a die is smaller than what it holds"
    SUPPLY_VOLTAGE = 6, "supplies do not rise from threshold to minimum to maximum"
    TECHNOLOGY = 7, "the technology lacks a component or a generation, or a part is smaller than an atom"
    PINNED_CHIP = 8, "the pinned values of the chip are of another technology"
    DATA_TYPE = 9, "the chip does not compute in a data type, or the model does not train in it"
    MODEL = 10, "a dimension of the model is invalid"
    STRATEGY = 11, "the parallel strategy does not suit devices, layers or experts"
    LAYOUT = 12, "a layout of layers does not suit the strategy, the model or the devices"
    BATCH = 13, "the batch cannot be split over devices or micro-batches"
    SCHEDULE = 14, "the pipeline schedule does not suit the strategy"
    NETWORK = 15, "the network, its library or a link between devices does not suit the system"
    PLACEMENT = 16, "the placement does not suit the layout"
    LOAD = 17, "inputs of the served load contradict each other"
    CONTEXT_LENGTH = 18, "requests are longer than the model's positions"
    OVERLOAD = 19, "servers serve fewer requests than are sent"
    SLO = 20, "a latency is above its limit"
    RENT = 21, "the chip has no known rent"
    OUT_OF_RANGE = 22, "a quantity would be out of range: inputs are too far apart"
    TOO_LARGE = 23, "the iteration is too large to schedule"
    NO_TIME = 24, "there is nothing to time"
    DUPLICATE = 25, "another candidate of the search gives the same results"
    MEASUREMENT = 26, "a row of measurements lacks something, or names something unknown"
    ZERO = 27, "the parameter is 0, so it has no relative change"
    POWER_LIMIT = 28, "the power limit is above the power budget, or not above what the device draws at rest"
    SITE_POWER = 29, "a rack, or the system at the site, draws more than its limit"
    STOPPED = 30, "the simulation was stopped early: it cannot meet a constraint of the search any more"

    @property
    def label(self) -> str:
        """The code in the column `reason_code`, "" for none."""
        return self.name.lower() if self else ""


@dataclass(slots=True)  # frozen, it would take three times as long to make
class Reason:
    """Why one point is not feasible: a code, a form and its fields; `str()` is the text."""

    code: Code
    form: str
    fields: Mapping[str, Any]

    def __str__(self) -> str:
        """Return the text."""
        return FORMS[self.form](**self.fields)

    @property
    def short(self) -> str:
        """The text without what is allowed and without remarks."""
        if self.form == "rejected" and self.fields["key"]:
            return f"{self.fields['key']}={self.fields['value']}"
        if self.wrong_degree:
            return f"degree of {self.fields['axis']}={self.fields['degree']}"
        return str(self).split(":")[0].split(" (")[0]

    @property
    def wrong_degree(self) -> bool:
        """Whether a degree of the strategy does not suit a size of the model."""
        return self.form == "invalid_degree"

    def error(self) -> InputError:
        """Return the error of a point that has this reason and no other results."""
        if self.form == "rejected" and self.fields["key"] and " " not in self.fields["key"]:
            return _error_of(**self.fields)
        return CompositionError(f"no time can be predicted: {self}", self.wrong_degree)

    def with_fields(self, **fields: Any) -> Reason:
        """Return the reason with some of its fields replaced."""
        return replace(self, fields={**self.fields, **fields})


FORMS: dict[str, Callable[..., str]] = {}
"""Forms by name: from fields to the text."""
CODES_OF_FORMS: dict[str, Code] = {}
"""The code of each form, except of those that take one."""
Fields = ParamSpec("Fields")


def form(code: Code) -> Callable[[Callable[Fields, str]], Callable[Fields, Reason]]:
    """Register a form of a code: a function from its fields, all keywords, to the text."""

    def register(text: Callable[Fields, str]) -> Callable[Fields, Reason]:
        name = text.__name__
        FORMS[name], CODES_OF_FORMS[name] = text, code

        def make(*arguments: Fields.args, **fields: Fields.kwargs) -> Reason:
            assert not arguments
            return Reason(code, name, fields)

        make.__name__, make.__doc__ = name, text.__doc__
        return make

    return register


Conflicts = Iterable[tuple[str, object]]
"""Other inputs that a value does not suit: keys, and values as the text has them."""


def rejected(
    code: Code, key: str, value: object, allowed: str, origin: str = "", conflicts: Conflicts = ()
) -> Reason:
    """Return the reason that a value does not suit the point; fields: as of InputError."""
    fields = {"key": key, "value": value, "allowed": allowed, "origin": origin, "conflicts": conflicts}
    return Reason(code, "rejected", fields)


def refused(code: Code, error: InputError) -> Reason:
    """Return an error of a point's inputs as its reason."""
    return rejected(code, error.key, error.value, error.allowed, error.origin, error.conflicts)


def _error_of(key: str, value: object, allowed: str, origin: str, conflicts: Conflicts) -> InputError:
    return InputError(key, value, allowed, origin, conflicts) if key else CompositionError(allowed)


FORMS["rejected"] = lambda **fields: str(_error_of(**fields))


def invalid_degree(code: Code, axis: str, degree: int, allowed: str) -> Reason:
    """Return the reason that a strategy's degree along an axis does not suit a size of the model."""
    return Reason(code, "invalid_degree", {"axis": axis, "degree": degree, "allowed": allowed})


FORMS["invalid_degree"] = lambda axis, degree, allowed: str(InputError(f"degree of {axis}", degree, allowed))


def stated(code: Code, text: str) -> Reason:
    """Return a reason whose only field is its text."""
    return Reason(code, "stated", {"text": text})


FORMS["stated"] = lambda text: text
