"""Everything blocking: `def` steps and workflows, SyncClient, and the functions that a web framework would call.

python examples/typed/membership.py
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import assert_type

import runtrue.sync as rt


@dataclass
class Application:
    """Somebody wants to join the rowing club."""

    member: int
    email: str


@dataclass
class Signed:
    """The form came back, signed."""

    initials: str


signed = rt.Topic("signed", Signed)
MEMBERS: set[int] = set()


@rt.step(retry=3)
def post_letter(email: str, kind: str) -> str:
    """Write to the member."""
    return f"{kind} to {email}"


@rt.step
def berth_of(member: int) -> int:
    """The berth that is free for the member's boat."""
    return member % 10


@rt.step
async def admit(member: int) -> None:
    """Enter the member into the book. An `async def` step has `.sync` here."""
    MEMBERS.add(member)


@rt.workflow
def join(application: Application, reminders: int = 2) -> bool:
    """Send the form, wait for it to come back, remind."""
    letter, berth = rt.gather(
        lambda: post_letter(application.email, "form"),
        lambda: berth_of(application.member),
    )
    assert_type(letter, str)
    assert_type(berth, int)
    rt.logger.info("%s, berth %d", letter, berth)
    for _ in range(reminders):
        form = rt.receive(signed, timeout=timedelta(days=14), default=None)
        assert_type(form, Signed | None)
        if form is not None:
            admit.sync(application.member)
            return True
        post_letter(application.email, "reminder")
    return False


flows = rt.App("sqlite://", workflows=[join])


# ---------------------------------------------------------------- what a web framework would call
def apply(client: rt.SyncClient, member: int, email: str) -> str:
    """POST /members/<member>: the run's id. Asked twice, it is the same run."""
    run = client.start(join.options(id=f"member-{member}"), Application(member, email))
    assert_type(run, rt.SyncRunHandle[bool])
    return run.id


def sign(client: rt.SyncClient, member: int, initials: str) -> None:
    """POST /members/<member>/signed: by its key, a form that is sent twice arrives once."""
    client.get(f"member-{member}", join).send(signed, Signed(initials), key=f"form-{initials}")


def look(client: rt.SyncClient, member: int, seconds: float) -> str:
    """GET /members/<member>"""
    try:
        admitted = client.get(f"member-{member}", join).result(timeout=seconds)
    except rt.ResultTimeout as late:
        return f"still {late.status}"
    return "a member" if admitted else "no answer came"


def main() -> None:
    """The worker runs in a thread of this process while the client is in use."""
    with flows as client:
        apply(client, 7, "ana@example.org")
        apply(client, 7, "ana@example.org")
        early = look(client, 7, 0)
        sign(client, 7, "A. B.")
        sign(client, 7, "A. B.")
        print(f"{early.split()[0]} open, then {look(client, 7, 20)}: {sorted(MEMBERS)}")


if __name__ == "__main__":
    main()
