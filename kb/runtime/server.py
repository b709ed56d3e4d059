"""Starts the runtime, steps down once if memory ran out, watches it, and ends it with all it started."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from kb.embedded import check_port
from kb.runtime.client import RuntimeClient
from kb.runtime.deaths import Relief, RuntimeStartError, StartDeath, find_death
from kb.runtime.launch import Launch, build_environment
from kb.runtime.plan import LEAST_CONTEXT_TOKENS, MemoryPlan, make_plan
from kb.runtime.startup import describe_progress, read_log
from kb.supervisor import ProcessDiedError, ProcessReport, ProcessSpec, Supervisor

NAME = "runtime"
_START_LIMIT_S = 1800.0
"""A first start may compile kernels for many minutes."""
_STOP_GRACE_S = 10.0
_HEALTH_TIMEOUT_S = 1.0
_LEAST_STEP_MIB = 512
_STEP_SHARE = 0.04


@dataclass(frozen=True, slots=True)
class StepDown:
    """What was changed after a start that ran out of memory."""

    death: StartDeath
    before: Launch
    after: Launch

    @property
    def text(self) -> str:
        """The change in one line."""
        former, new = self.before.plan, self.after.plan
        return (
            f"{self.death.message}; started again with decode graphs up to {new.tuning.graph_batch} "
            f"(before: {former.tuning.graph_batch}), {new.context_tokens:,} tokens of context "
            f"(before: {former.context_tokens:,}) and a static share of {new.mem_fraction_static:g}"
        )


@dataclass(slots=True)
class RuntimeServer:
    """One supervised runtime. `start`, then `supervisor.watch` or `supervisor.poll`, then `stop`."""

    launch: Launch
    log_path: Path
    on_change: Callable[[ProcessReport], None] = lambda _report: None
    on_step_down: Callable[[StepDown], None] = lambda _step: None
    start_limit_s: float = _START_LIMIT_S
    poll_interval_s: float = 0.3
    max_restarts: int = 5
    backoff_s: float = 2.0
    steps: list[StepDown] = field(default_factory=list)
    supervisor: Supervisor = field(init=False)
    _offset: int = field(init=False, default=0)

    def start(self) -> float:
        """Return the seconds until it served.

        Steps down once when the card's memory ran out. Raises `PortBusyError`, or `RuntimeStartError`
        with the reason; nothing runs then.
        """
        check_port(self.launch.host, self.launch.port, setting="--port")
        started = time.monotonic()
        try:
            self._start_once()
        except ProcessDiedError as error:
            self.stop()
            death = self._explain(error)
            after = step_down(self.launch, death)
            if after is None:
                raise self._to_error(death, error) from error
            step = StepDown(death, before=self.launch, after=after)
            self.steps.append(step)
            self.on_step_down(step)
            self.launch = after
            self._start_again()
        except BaseException:
            self.stop()
            raise
        return time.monotonic() - started

    def stop(self) -> None:
        """End the runtime and everything that it started; may be called twice."""
        self.supervisor.stop()

    def _start_again(self) -> None:
        try:
            self._start_once()
        except ProcessDiedError as error:
            self.stop()
            raise self._to_error(self._explain(error), error) from error
        except BaseException:
            self.stop()
            raise

    def _start_once(self) -> None:
        self._offset = self.log_path.stat().st_size if self.log_path.exists() else 0
        self.supervisor = Supervisor(
            specs=(
                ProcessSpec(
                    name=NAME,
                    command=self.launch.command,
                    log_path=self.log_path,
                    check_ready=self._check_ready,
                    ready_timeout_s=self.start_limit_s,
                    stop_grace_s=_STOP_GRACE_S,
                    port=self.launch.port,
                ),
            ),
            stop_order=(NAME,),
            environment=build_environment(),
            on_change=self.on_change,
            max_restarts=self.max_restarts,
            backoff_s=self.backoff_s,
            poll_interval_s=self.poll_interval_s,
        )
        self.supervisor.start()

    def _check_ready(self) -> str:
        with RuntimeClient(self.launch.url, timeout_s=_HEALTH_TIMEOUT_S) as client:
            if client.is_healthy():
                return ""
        return describe_progress(read_log(self.log_path, offset=self._offset))

    def _explain(self, error: ProcessDiedError) -> StartDeath:
        log = read_log(self.log_path, offset=self._offset, most_bytes=1024 * 1024)
        return find_death(log, outcome=error.outcome)

    def _to_error(self, death: StartDeath, error: ProcessDiedError) -> RuntimeStartError:
        return RuntimeStartError(death, tail=error.tail, log_path=str(self.log_path))


def step_down(launch: Launch, death: StartDeath) -> Launch | None:
    """Return a launch that needs less of what ran out, None when there is nothing to be had."""
    if death.relief is Relief.NONE:
        return None
    plan = launch.plan
    wish = replace(
        plan.wish, graph_batch=max(1, plan.tuning.graph_batch // 4), context_tokens=None, concurrency=None
    )
    if death.relief is Relief.MEMORY:
        more = max(_LEAST_STEP_MIB, int(_STEP_SHARE * plan.card.memory_mib))
        wish = replace(wish, shared_mib=wish.shared_mib + more)
    smaller = _shrink(plan, make_plan(plan.shape, plan.card, wish))
    if smaller is None:
        return None
    # what the caller gave by hand for memory is what failed
    extra = _drop_options(
        launch.extra, ("--mem-fraction-static", "--cuda-graph-max-bs-decode", "--context-length")
    )
    return replace(launch, plan=smaller, extra=extra)


def _shrink(former: MemoryPlan, made: MemoryPlan) -> MemoryPlan | None:
    """Return the new plan with no more context and requests than before."""
    if not made.fits:
        return None
    context = min(former.context_tokens, made.kv_tokens // made.data_parallel // 256 * 256)
    if context < LEAST_CONTEXT_TOKENS:
        return None
    concurrency = max(1, min(former.concurrency, made.kv_tokens // context))
    return replace(made, context_tokens=context, concurrency=concurrency)


def _drop_options(words: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    kept: list[str] = []
    skip = False
    for word in words:
        name, equals, _ = word.partition("=")
        if word.startswith("--"):
            skip = name in names
            if skip and equals:
                skip = False
                continue
        if not skip:
            kept.append(word)
    return tuple(kept)
