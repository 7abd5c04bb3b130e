"""Runs all of ONNX's own backend tests; failures are listed with their reason in `onnx_failures.py`.

Slow: what stands for an operator in other ones, whose own cases are here, and large networks of operators of others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import onnx_failures  # noqa: E402
from onnx.reference.ops import op_pool_common  # noqa: E402
from onnx_failures import DEPENDS_ON_ROUNDING, VERSION, pool, reason, suite, table, unused  # noqa: E402

if not onnx.__version__.startswith(f"{VERSION}."):
    pytest.skip(f"the list is of the tests of onnx {VERSION}, this is {onnx.__version__}", allow_module_level=True)


SLOW = ("test_vgg19", "test_densenet121", "test_inception_v1", "test_inception_v2", "test_resnet50")


@pytest.fixture(scope="module", autouse=True)
def _inputs_of_whole_networks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The suite writes them to the user's home unless it is told where."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNX_MODELS", str(tmp_path_factory.mktemp("networks")))
        yield


def _case(category: str, name: str) -> object:
    why = reason(name)
    # Strict: what passes is not to be listed.
    marks = [] if why is None else [pytest.mark.xfail(reason=why, strict=True)]
    if name in DEPENDS_ON_ROUNDING:
        marks = [pytest.mark.xfail(reason=DEPENDS_ON_ROUNDING[name], strict=False)]
    if "_expanded" in name or name in SLOW:
        marks.append(pytest.mark.slow)
    return pytest.param(category, name, id=name, marks=marks)


@pytest.mark.parametrize(("category", "name"), [_case(kind, name) for kind, names in suite().items() for name in names])
@pytest.mark.filterwarnings("ignore")
def test_backend(category: str, name: str) -> None:
    suite()[category][name](None)


def test_windows_that_are_pooled_at_once_give_what_onnx_gives_one_by_one() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 5, 6, 4)).astype(np.float32)
    for kind in ("MAX", "AVG", "LPPOOL"):
        one, other = (f(x, x.shape, [2, 3, 1], [2, 1, 3], (2, 4, 2), kind, p=2) for f in (pool, op_pool_common.pool))
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_every_entry_of_the_list_is_some_test() -> None:
    assert unused() == []


def test_documentation_says_how_many_pass() -> None:
    text = (Path(onnx_failures.__file__).parents[2] / "docs" / "onnx.md").read_text(encoding="utf-8")
    assert "\n".join(table()) in text
