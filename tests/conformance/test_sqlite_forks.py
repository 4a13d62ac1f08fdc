"""A fork and the threads that are inside of SQLite."""

import threading

from runtrue.store.sqlite.forks import _AtWork

SOON = 10


def begun(target: object) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


def test_a_fork_waits_for_whoever_is_at_work_and_nobody_enters_until_it_is_made():
    at_work, inside, leave, order = _AtWork(), threading.Event(), threading.Event(), []

    def works() -> None:
        with at_work:
            inside.set()
            leave.wait(SOON)
            order.append("worked")

    def comes_later() -> None:
        with at_work:
            order.append("came later")

    def forks() -> None:
        at_work.before_fork()
        order.append("forked")
        late.append(begun(comes_later))
        at_work.after_in_parent()

    late: list[threading.Thread] = []
    working = begun(works)
    inside.wait(SOON)
    forking = begun(forks)
    leave.set()
    for thread in (working, forking):
        thread.join(SOON)
    late[0].join(SOON)
    assert order == ["worked", "forked", "came later"]


def test_a_child_enters_at_once_whatever_the_threads_of_its_parent_held():
    at_work, entered = _AtWork(), threading.Event()
    at_work.__enter__()
    at_work._changed.acquire()

    def goes_on() -> None:
        at_work.after_in_child()
        with at_work:
            entered.set()

    begun(goes_on)
    assert entered.wait(SOON)
    at_work.before_fork()
    at_work.after_in_parent()
