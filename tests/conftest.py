"""What all tests have: the modules of shared/, a plugin, --deal, by which several processes share the tests, and --ops,
which chooses some of them."""

from __future__ import annotations

import os
import pathlib
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parent
# pytest has put this folder there. It has folders jax, numpy and so on, which imports would take for the packages where
# those are missing.
sys.path.remove(str(TESTS))
sys.path.insert(0, str(TESTS / "shared"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--deal", metavar="I/N", help="every N-th test, from the I-th on: N processes do all of them")
    parser.addoption("--ops", metavar="A,B", help="the tests whose names have one of these operators")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ops, deal = config.getoption("--ops"), config.getoption("--deal")
    if ops is not None:
        items[:] = [item for item in items if any(name in item.name for name in ops.split(","))]
    if deal is not None:
        first, among = (int(number) for number in deal.split("/"))
        items[:] = items[first - 1 :: among]


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Operators whose contracts use what the built-in ones do not, compiled and loaded."""
    if os.environ.get("TENON_TEST_DEVICE", "cpu") != "cpu":
        pytest.skip("the plugin's kernels are for the CPU")
    from plugin import compile_plugin

    import tenon

    made = compile_plugin(tmp_path_factory.mktemp("plugin"))
    tenon.load(made)
    return made


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Choosing tests may leave none: that is no failure."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.getoption("--ops") is not None:
        session.exitstatus = pytest.ExitCode.OK
