"""Devices that tests of torch tensors run on."""

from __future__ import annotations

import pytest


def pytest_generate_tests(metafunc):
    if "device" in metafunc.fixturenames:
        torch = pytest.importorskip("torch")
        names = ["cpu"]
        if torch.cuda.is_available():
            names.append("cuda")
        if torch.backends.mps.is_available():
            names.append("mps")
        metafunc.parametrize("device", names)


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """For tensors this small more threads only wait for each other."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def on_device(device, monkeypatch):
    """Have the CPU count as a device of its own, so that its tensors take the way of all others."""
    if device == "cpu":
        from mdsd.batch.tensors import spaces

        monkeypatch.setattr(spaces, "_is_host", lambda name: False)
    return device
