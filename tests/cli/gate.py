"""A gate that steps of a real worker stop at: the test hears that a step runs, and decides when it may end."""

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

MODULE = """
import asyncio, os
import runtrue as rt

async def stop_at_gate(name):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(os.environ["GATE_PORT"]))
    writer.write(name.encode() + b"\\n")
    await writer.drain()
    answer = (await reader.readline()).decode().strip()
    writer.close()
    return answer

@rt.step
async def first() -> str:
    return await stop_at_gate("first")

@rt.step
async def second() -> str:
    return await stop_at_gate("second")

@rt.step(retry=rt.Retry(2, first_delay=3600))
async def flaky() -> None:
    raise ConnectionError("the line is down \\x1b[31m")

@rt.workflow
async def through() -> list[str]:
    rt.set_progress(done=0, total=2, note="on the way")
    return [await first(), await second()]

@rt.workflow
async def once() -> str:
    return await first()

@rt.workflow
async def fails(message: str = "no such order") -> None:
    raise ValueError(message)

@rt.workflow
async def retries() -> None:
    await flaky()

@rt.workflow
async def together() -> list[str]:
    return list(await rt.gather(first(), second()))

@rt.workflow
async def listens() -> dict[str, int]:
    rt.publish("stage", "listening")
    return await rt.receive("courier", dict[str, int])

@rt.workflow
async def parent() -> list[str | dict[str, int]]:
    return list(await rt.gather(once.options(id="child-1")(), listens.options(id="child-2")()))

app = rt.App(workflows=[through, once, fails, retries, together, listens, parent])
"""


@dataclass(frozen=True)
class Visitor:
    """A step that stands at the gate."""

    name: str
    connection: socket.socket

    def let_pass(self, answer: str = "passed") -> None:
        self.connection.sendall(answer.encode() + b"\n")
        self.connection.close()


class Gate:
    """Where the steps arrive, one connection each."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self._visitors: list[socket.socket] = []
        self.port = server.getsockname()[1]

    def arrival(self, name: str) -> Visitor:
        """Wait for the next step, which must be `name`."""
        visitor = self._arrival()
        assert visitor.name == name
        return visitor

    def _arrival(self) -> Visitor:
        connection, _ = self._server.accept()
        self._visitors.append(connection)  # a closed connection would let the step pass
        connection.settimeout(30)
        with connection.makefile() as lines:
            return Visitor(lines.readline().strip(), connection)

    def arrivals(self, count: int) -> list[Visitor]:
        """Wait for so many steps, whichever they are."""
        return [self._arrival() for _ in range(count)]

    def nobody_came(self) -> bool:
        """Whether no step has come that was not met."""
        self._server.setblocking(False)
        try:
            self._server.accept()
        except BlockingIOError:
            return True
        return False

    def close(self) -> None:
        """Let everybody pass who still stands there."""
        for connection in self._visitors:
            connection.close()


@contextmanager
def open_gate() -> Iterator[Gate]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        with closing(Gate(server)) as gate:
            yield gate
