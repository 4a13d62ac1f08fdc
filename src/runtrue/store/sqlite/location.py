"""Where the database is, and whether it can live there."""

import os
import sqlite3
from pathlib import Path

from runtrue.errors import ConfigurationError, StoreUnusable
from runtrue.store.sqlite.connection import make_file
from runtrue.store.sqlite.forks import at_work

SQLITE_VERSION_MIN = (3, 35, 0)
"""The first version with UPDATE … RETURNING."""

_MOUNT_TABLE = Path("/proc/self/mounts")
_NETWORK_FILE_SYSTEMS = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.cephfs", "fuse.glusterfs", "fuse.s3fs"),
        *("fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"),
    )
)


def parse_url(url: str) -> Path | None:
    """The absolute path in a `sqlite:` URL; None for `sqlite://`, a database in memory.

    Raises ConfigurationError where the URL holds no path in a form that is understood.
    """
    if url in ("sqlite://", "sqlite:///:memory:"):
        return None
    path = url.removeprefix("sqlite:///")
    if path == url or not path:
        raise ConfigurationError(f"{url} names no file; write sqlite:///relative.db or sqlite:////absolute.db")
    if "\0" in path:
        raise ConfigurationError(f"{url!a} holds the character NUL, which no file name may hold")
    try:
        # Resolved, so that all who come by different links queue at the same turnstile.
        return Path(path).expanduser().resolve()
    except RuntimeError:
        if path.startswith("~"):
            user = path.split("/", 1)[0]
            raise ConfigurationError(
                f"there is no user whose home {user} could be; for a file of that name write ./{path}"
            ) from None
        raise ConfigurationError(f"{path} is a link that leads back to itself; name the file") from None


def prepare(path: Path | None, *, create: bool) -> None:
    """See to it that there is a file at `path`, made if it may be. Raises StoreUnusable, with what to do."""
    try:
        _refuse_unusable(path, create=create)
        if path is not None and not path.exists():
            with at_work:
                make_file(path)
    except OSError as error:
        raise StoreUnusable(f"{path} cannot be looked at: {error.strerror}; name another file") from None
    except sqlite3.Error as error:
        raise StoreUnusable(f"{path} cannot be made: {error}; name another file") from None


def _refuse_unusable(path: Path | None, *, create: bool) -> None:
    if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
        needed = ".".join(map(str, SQLITE_VERSION_MIN))
        raise StoreUnusable(f"this Python brings SQLite {sqlite3.sqlite_version}; runtrue needs {needed} or later")
    if path is None:
        return
    if not path.parent.is_dir():
        raise StoreUnusable(f"the folder {path.parent} does not exist; make it, or name another file than {path}")
    if path.is_dir():
        raise StoreUnusable(f"{path} is a folder; name a file in it")
    if not path.exists():
        if not create:
            raise StoreUnusable(
                f"there is no database at {path}; check the path, or start a worker (`runtrue dev MODULE`) or "
                "`runtrue db migrate`, which make it"
            )
    elif not path.is_file():
        raise StoreUnusable(f"{path} is no ordinary file; name another one")
    elif not os.access(path, os.R_OK | os.W_OK):
        raise StoreUnusable(f"this user may not read and write {path}; change its permissions")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise StoreUnusable(f"this user may not make files in the folder {path.parent}; change its permissions")
    file_system = file_system_of(path, _MOUNT_TABLE.read_text(errors="replace") if _MOUNT_TABLE.exists() else "")
    if file_system in _NETWORK_FILE_SYSTEMS:
        raise StoreUnusable(
            f"{path} is on a network file system ({file_system}), where SQLite's locks cannot be trusted; "
            "keep the file on a local disk"
        )


def file_system_of(path: Path, mounts: str) -> str:
    """The type of the file system of the absolute `path`, by a mount table as in /proc/mounts; "" if not told."""
    resolved = str(path)
    found, depth = "", -1
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        mount_point = fields[1].encode().decode("unicode_escape")
        inside = resolved == mount_point or resolved.startswith(mount_point.rstrip("/") + "/")
        # Of two mounts at one point the later one lies on top.
        if inside and len(mount_point) >= depth:
            found, depth = fields[2], len(mount_point)
    return found
