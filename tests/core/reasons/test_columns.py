"""Columns of reasons."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastflow.core.reasons.codes import Code
from fastflow.core.reasons.columns import LABELS, Reasons, column_of, first_reasons, no_reasons, same_reason
from fastflow.core.reasons.forms import duplicate, is_zero, short_of_memory
from fastflow.core.tables import concat_tables, is_broadcast, take

SHORT, ZERO, SAME = short_of_memory(needed=2e9, capacity=1e9), is_zero(), duplicate(strategy="d1")
MANY = st.lists(st.sampled_from([None, SHORT, ZERO, SAME]), min_size=3, max_size=9)


@given(MANY)
def test_a_reason_has_a_code_and_a_text(reasons):
    column = column_of(reasons)
    assert column.exists.tolist() == [reason is not None for reason in reasons]
    assert [column.at(i) for i in range(column.size)] == reasons
    results = column.columns()
    assert results["reason"].tolist() == [str(reason or "") for reason in reasons]
    assert results["reason_code"].tolist() == [reason.code.label if reason else "" for reason in reasons]


@given(MANY, MANY)
def test_the_first_reason_counts(left, right):
    size = min(len(left), len(right))
    both = first_reasons(column_of(left[:size]), column_of(right[:size]))
    assert both.reason.tolist() == [a or b for a, b in zip(left, right, strict=False)]
    assert both.code.tolist() == [reason.code if reason else 0 for reason in both.reason]


def test_rows_are_taken_and_replaced_as_of_any_table():
    column = column_of([None, SHORT, ZERO])
    assert take(column, np.array([2, 0])).texts().tolist() == ["is 0", ""]
    assert concat_tables([column, column]).size == 6
    assert column.replaced(np.array([0]), column_of([SAME])).code.tolist() == [25, 1, 27]
    assert column.code.tolist() == [0, 1, 27]  # as it was
    assert column.where(np.array([True, False, True])).texts().tolist() == ["", "", "is 0"]
    assert column.first() is SHORT
    assert same_reason(np.array([True, False]), ZERO).texts(short=True).tolist() == ["is 0", ""]


def test_the_first_of_each_point_is_kept():
    found = Reasons(4)
    found.add(2, ZERO)
    found.add(np.int64(2), SHORT)
    assert found.without(np.array([True, False, True, True])) == [0, 3]
    assert found.column().reason.tolist() == [None, None, ZERO, None]


def test_no_reasons_cost_nothing():
    column = no_reasons(1000)
    assert all(is_broadcast(texts) for texts in column.columns().values())
    assert column.where(np.zeros(1000, dtype=np.bool_)) is column
    with pytest.raises(IndexError):
        column.first()


def test_labels_are_those_of_codes():
    assert LABELS[Code.MEMORY] == "memory"
    assert len(LABELS) == len(Code)
