"""An executor that works at once, in its caller's thread."""

from __future__ import annotations

from concurrent.futures import Future


class InCaller:
    """What is submitted is done when :meth:`submit` returns."""

    def submit(self, work, *arguments) -> Future:
        done: Future = Future()
        try:
            done.set_result(work(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done
