"""Ends process groups whose supervisor is gone; runs as `python -m kb.orphan_guard`.

The supervisor writes one line per change to this process's standard input: `+<group>` when a child
was started, `-<group>` when it is gone. The input ends when the supervisor ends, in whatever way:
then the leader of every group left is asked to stop, and the group killed a few seconds later. A
process of its own sees `kill -9` of the supervisor, where handlers do not run, and reaches
grandchildren too, which PR_SET_PDEATHSIG does not.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable

GRACE_S = 5.0


def follow(lines: Iterable[str]) -> set[int]:
    """Return the groups that are still registered when the lines end."""
    groups: set[int] = set()
    for line in lines:
        group = int(line[1:])
        if line.startswith("+"):
            groups.add(group)
        else:
            groups.discard(group)
    return groups


def end_groups(groups: Iterable[int], *, grace_s: float) -> None:
    """Ask the leader of each group to stop; kill its group once it is gone, or after `grace_s`."""
    left = {group for group in groups if _reach(os.kill, group, signal.SIGTERM)}
    deadline = time.monotonic() + grace_s
    while left and time.monotonic() < deadline:
        for group in [group for group in left if not _is_running(group)]:
            _reach(os.killpg, group, signal.SIGKILL)
            left.discard(group)
        time.sleep(0.05)
    for group in left:
        _reach(os.killpg, group, signal.SIGKILL)


def _is_running(pid: int) -> bool:
    """Return whether the process does something: in a container nobody may collect the dead."""
    import psutil

    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _reach(send: Callable[[int, int], None], target: int, number: int) -> bool:
    """Send the signal; False when nobody is there."""
    try:
        send(target, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def main() -> None:
    """Follow standard input to its end, then end what is left."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end_groups(follow(sys.stdin), grace_s=GRACE_S)


if __name__ == "__main__":
    main()
