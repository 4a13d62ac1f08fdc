"""The only home of SQL and transactions."""

from pathlib import Path

from runtrue.clock import Clock
from runtrue.errors import ConfigurationError
from runtrue.store.protocol import Store

__all__ = ["Store", "open_store", "path_of"]


async def open_store(url: str, *, clock: Clock, create: bool = True) -> Store:
    """Open the database at `url` and bring its schema up to date.

    `sqlite:///relative.db`, `sqlite:////absolute.db` or `sqlite://` (in memory, gone with the process).
    With `create=False` a file that does not exist is refused instead of made. Raises StoreUnusable where the
    database cannot be used, ConfigurationError for a URL of another kind.
    """
    if url.startswith("sqlite:"):
        from runtrue.store.sqlite import SqliteStore

        return await SqliteStore.open(url, clock=clock, create=create)
    raise ConfigurationError(f"{url.split(':', 1)[0]}: is no database that runtrue knows; use sqlite:///FILE")


def path_of(url: str) -> Path | None:
    """The absolute path of the file that `open_store` would open; None in memory. Raises ConfigurationError as it."""
    from runtrue.store.sqlite.location import parse_url

    return parse_url(url)
