"""Configuration points for the tests: overrides in, the model's inputs out."""

import pytest

from fastflow import crossflow, results
from fastflow.engine.config import Composer
from fastflow.engine.inputs import model_inputs, to_column
from fastflow.engine.library import hydra_rules


@pytest.fixture(scope="session")
def compose():
    """A function from Hydra overrides to one point's inputs: dotted key to scalar, in SI units."""
    composer = Composer.of_library()

    def point(*overrides):
        with hydra_rules():
            return model_inputs(composer.resolved(composer.compose(list(overrides))))

    return point


def columns_of(points):
    """Lay points with the same keys out as the columns that the model takes."""
    return {key: to_column(key, [point[key] for point in points]) for key in points[0]}


@pytest.fixture(scope="session")
def predict():
    """A function from points to the model's prediction."""
    return lambda points: crossflow.predict(columns_of(points))


@pytest.fixture(scope="session")
def summary(predict):
    """A function from points to result columns."""
    return lambda points: results.summary(predict(points))
