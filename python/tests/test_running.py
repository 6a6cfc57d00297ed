"""Calls while other Python code runs: threads and the GIL, signals, shutdown of the interpreter."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest

from conftest import Load, python

ENDLESS = """graph endless(%on: bool[]) {
  %zero = constant [0] : i64[]
  %n = while(%zero, %on) {
    predicate = graph condition(%i: i64[], %on: bool[]) { return %on },
    body = graph step(%i: i64[], %on: bool[]) {
      %one = constant [1] : i64[]
      %next = add(%i, %one)
      return %next
    }
  }
  return %n
}"""


class Stop(Exception):
    """Raised by the handler of an alarm."""


@pytest.fixture
def alarm() -> Iterator[None]:
    """Raises `Stop` in the main thread, 0.3 s from now."""

    def stop(number: int, frame: object) -> None:
        raise Stop

    usual = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, usual)


def test_the_gil_is_free_during_calls(load: Load, alarm: None) -> None:
    count, done = 0, False

    def run() -> None:
        nonlocal count
        while not done:
            count += 1

    thread = threading.Thread(target=run)
    model = load(ENDLESS)
    thread.start()
    before = count
    try:
        with pytest.raises(Stop):
            model.execute(True)
    finally:
        done = True
        thread.join()
    assert count - before > 10_000


def test_signals_interrupt_calls(load: Load) -> None:
    model = load(ENDLESS)

    def interrupt() -> None:
        time.sleep(0.3)
        sent.append(time.monotonic())
        signal.raise_signal(signal.SIGINT)

    for _ in range(3):
        sent: list[float] = []
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            model.execute(True)
        late = time.monotonic() - sent[0]
        thread.join()
        assert late < 60
        # The model is as good as ever.
        assert model.execute(False)[0].item() == 0


def test_the_interpreter_ends_quietly_with_everything_alive() -> None:
    result = python("""
        import os, tempfile, threading
        os.environ["PERIHELION_CACHE_DIR"] = "off"
        import numpy as np
        from perihelion.driver import Buffer
        from perihelion.dtype import DType
        from perihelion.engine import InferenceSession
        session = InferenceSession()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "g.graph")
            open(path, "w").write('graph g(%x: f32[n]) { %w = weight "w" : f32[1] %y = mul(%x, %w) return %y }')
            model = session.load(path, weights_registry={"w": np.ones(1, "float32")})
        outputs = model(np.ones(3, "float32"))
        kept = Buffer.from_dlpack(np.ones(3)), np.from_dlpack(Buffer.zeros((2,), DType.int8)), outputs[0].__dlpack__()
        def loop():
            while True:
                model(np.ones(3, "float32"))
        threading.Thread(target=loop, daemon=True).start()
        raise SystemExit(3)
        """)
    assert (result.returncode, result.stdout, result.stderr) == (3, "", "")


@pytest.mark.parametrize("variable", ["PERIHELION_DEBUG", "MODULAR_DEBUG"])
def test_debug_options_are_read_from_the_environment(variable: str) -> None:
    code = """
        from perihelion.engine import InferenceSession
        print(InferenceSession.debug.nan_check, InferenceSession().debug.assert_level)
        """
    result = python(code, **{variable: "nan-check, assert-level=all, nap-check"})
    assert result.stdout == "True all\n"
    assert result.stderr == f"warning: {variable} names `nap-check`, which is no debug option\n"


def test_importing_starts_no_threads_and_is_quick() -> None:
    result = python("""
        import threading, time, os
        import numpy
        count = lambda: len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else threading.active_count()
        before = count()
        start = time.process_time()
        import perihelion
        print(count() - before, time.process_time() - start < 0.5, perihelion.__version__ != "")
        """)
    assert (result.stdout, result.stderr) == ("0 True True\n", "")
