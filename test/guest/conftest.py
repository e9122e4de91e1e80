# SPDX-License-Identifier: BSD-2-Clause
"""What the tests with User-mode Linux guests share."""

import random

import pytest
import uml


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("uml")


@pytest.fixture(scope="module")
def namespace():
    with uml.Namespace():
        yield


@pytest.fixture(scope="module")
def bulk(folder):
    """Bytes that a guest finds in a file: its path, and they."""
    data = random.Random(2).randbytes(12 << 20)
    path = folder / "bulk"
    path.write_bytes(data)
    return path, data
