"""What all tests have: --deal, by which several processes share them."""

from __future__ import annotations

import pathlib
import sys

import pytest

# pytest has put this folder there. It has folders jax, numpy and so on, which imports would take for the packages where
# those are missing.
sys.path.remove(str(pathlib.Path(__file__).parent))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--deal", metavar="I/N", help="every N-th test, from the I-th on: N processes do all of them")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    deal = config.getoption("--deal")
    if deal is not None:
        first, among = (int(number) for number in deal.split("/"))
        items[:] = items[first - 1 :: among]
