"""Opening a SQLite database, and what is said where it cannot be used."""

import asyncio
import os
import sqlite3
from pathlib import Path

import pytest
from tests.conformance.hands import execute, hands_on
from tests.conformance.stage import LEASE, Stage, receive
from tests.support.manual_clock import ManualClock

from runtrue.errors import ConfigurationError, RuntrueError, StoreError, StoreUnusable
from runtrue.lifecycle import TERMINAL, Command, Status
from runtrue.store import open_store
from runtrue.store.protocol import NewWorker, RunFilter
from runtrue.store.sqlite import location, schema
from runtrue.store.sqlite.location import file_system_of, parse_url

TEXT = b"no database " * 200


async def refusal(url: str, **options: bool) -> str:
    with pytest.raises(StoreUnusable) as error:
        await open_store(url, clock=ManualClock(), **options)
    return str(error.value)


async def test_a_folder_that_does_not_exist_is_named(tmp_path: Path):
    assert f"the folder {tmp_path / 'no'} does not exist" in await refusal(f"sqlite:///{tmp_path}/no/runs.db")


async def test_a_folder_is_no_database(tmp_path: Path):
    assert await refusal(f"sqlite:///{tmp_path}") == f"{tmp_path} is a folder; name a file in it"


async def test_a_file_that_must_exist_is_not_made(path: Path, tmp_path: Path):
    assert await refusal(f"sqlite:///{path}", create=False) == (
        f"there is no database at {path}; check the path, or start a worker (`runtrue dev MODULE`) or "
        "`runtrue db migrate`, which make it"
    )
    assert os.listdir(tmp_path) == []  # noqa: PTH208


async def test_a_file_that_is_no_database_is_left_as_it_is(path: Path):
    path.write_bytes(TEXT)  # noqa: ASYNC240
    assert await refusal(f"sqlite:///{path}") == f"{path} is not a SQLite database; name another file"
    assert path.read_bytes() == TEXT  # noqa: ASYNC240


async def test_a_pipe_is_no_database(path: Path):
    os.mkfifo(path)
    assert await refusal(f"sqlite:///{path}") == f"{path} is no ordinary file; name another one"


@pytest.mark.parametrize("may", [os.R_OK | os.W_OK, os.W_OK | os.X_OK], ids=["file", "folder"])
async def test_missing_rights_are_named(path: Path, monkeypatch: pytest.MonkeyPatch, may: int):
    path.touch()  # noqa: ASYNC240
    # The tests may run as root, whom no right is denied.
    monkeypatch.setattr(location.os, "access", lambda _, asked: asked != may)
    assert "this user may not" in await refusal(f"sqlite:///{path}")


async def test_an_old_sqlite_is_refused_with_the_version_needed(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(location.sqlite3, "sqlite_version_info", (3, 34, 1))
    assert "runtrue needs 3.35.0 or later" in await refusal(f"sqlite:///{path}")


async def test_a_network_file_system_is_refused(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/export {tmp_path} nfs4 rw 0 0\n")
    monkeypatch.setattr(location, "_MOUNT_TABLE", mounts)
    assert f"{path} is on a network file system (nfs4)" in await refusal(f"sqlite:///{path}")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data/x.db", "ext4"),
        ("/data/nas/x.db", "cifs"),
        ("/data/nascent/x.db", "ext4"),
        ("/data/with space/x.db", "nfs"),
        ("/on top/x.db", "tmpfs"),
    ],
)
def test_the_innermost_mount_tells_the_file_system(path: str, expected: str):
    mounts = (
        "/dev/vda / ext4 rw 0 0\na /data/nas cifs rw 0 0\nnas /data/with\\040space nfs rw 0 0\n"
        "a /on\\040top nfs rw 0 0\nb /on\\040top tmpfs rw 0 0\nodd line\n"
    )
    assert file_system_of(Path(path), mounts) == expected
    assert file_system_of(Path(path), "") == ""


@pytest.mark.parametrize("url", ["sqlite:", "sqlite:/x.db", "sqlite:///", "sqlite://host/x.db", "sqlite:///a\0b"])
async def test_a_url_that_names_no_file_is_refused(url: str):
    with pytest.raises(ConfigurationError, match="sqlite"):
        await open_store(url, clock=ManualClock())


def test_a_url_names_a_file_from_here_or_from_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert parse_url("sqlite:///runs.db") == tmp_path / "runs.db"
    assert parse_url("sqlite:////var/runs.db") == Path("/var/runs.db")
    assert parse_url("sqlite:///with space?&#.db") == tmp_path / "with space?&#.db"
    assert parse_url("sqlite://") is None
    (tmp_path / "link.db").symlink_to(tmp_path / "runs.db")
    assert parse_url("sqlite:///link.db") == tmp_path / "runs.db", "all links lead to one turnstile"


@pytest.mark.parametrize(
    ("name", "user"), [("~nobody-here.db", "~nobody-here.db"), ("~nobody-here/x.db", "~nobody-here")]
)
async def test_a_home_of_nobody_is_told(name: str, user: str):
    with pytest.raises(ConfigurationError) as error:
        await open_store(f"sqlite:///{name}", clock=ManualClock())
    assert str(error.value) == (f"there is no user whose home {user} could be; for a file of that name write ./{name}")


async def test_a_link_that_leads_back_to_itself_is_told(path: Path):
    path.symlink_to(path.name)  # noqa: ASYNC240
    # Later versions of Python resolve it without a word, and it is SQLite that cannot open it.
    with pytest.raises(RuntrueError, match=r"is a link that leads back to itself; name the file|cannot be made"):
        await open_store(f"sqlite:///{path}", clock=ManualClock())


async def test_a_name_that_is_too_long_is_told(tmp_path: Path):
    long = "long" * 100 + ".db"
    assert await refusal(f"sqlite:///{tmp_path}/{long}") == (
        f"{tmp_path}/{long} cannot be looked at: File name too long; name another file"
    )


async def test_a_path_that_is_too_long_for_sqlite_is_told(tmp_path: Path):
    folder = tmp_path.joinpath(*["folder" * 20] * 5)
    folder.mkdir(parents=True)
    assert "cannot be made: unable to open database file" in await refusal(f"sqlite:///{folder}/runs.db")


async def test_a_newer_schema_is_refused_and_left_as_it_is(path: Path):
    store = await open_store(f"sqlite:///{path}", clock=ManualClock())
    await store.close()
    execute(path, "INSERT INTO runtrue_schema_version VALUES (99, 0)")
    assert "the database has schema 99" in await refusal(f"sqlite:///{path}")
    assert execute(path, "SELECT max(version) FROM runtrue_schema_version") == [(99,)]


async def test_a_database_of_somebody_else_keeps_what_is_theirs(path: Path):
    execute(path, "CREATE TABLE theirs (x)")
    store = await open_store(f"sqlite:///{path}", clock=ManualClock())
    await store.close()
    tables = {name for (name,) in execute(path, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert {name for name in tables if not name.startswith(("runtrue_", "sqlite_"))} == {"theirs"}
    assert all(
        name.startswith("runtrue_")
        for (name,) in execute(path, "SELECT name FROM sqlite_master WHERE type = 'trigger'")
    )


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le", "UTF-16be"])
async def test_a_database_of_any_encoding_can_be_used(path: Path, encoding: str):
    with hands_on(path) as connection:
        connection.execute(f"PRAGMA encoding = '{encoding}'")
        connection.execute("CREATE TABLE theirs (x)")
    store = await open_store(f"sqlite:///{path}", clock=ManualClock())
    stage = Stage(store, ManualClock())
    await stage.start("zürich", tags={"ort": "Zürich", "€": "𝄞"})
    await stage.start("bern", tags={"ort": "Bern"})
    for workflow in (None, "flow"):
        for statuses in ((), (Status.PENDING,)):
            found = await store.list_runs(RunFilter(statuses, workflow, {"ort": "Zürich"}), 9)
            assert [(run.id, run.tags) for run in found] == [("zürich", {"ort": "Zürich", "€": "𝄞"})]
    assert {claimed.run_id: claimed.tags["ort"] for claimed in await stage.claim()} == {
        "zürich": "Zürich",
        "bern": "Bern",
    }
    assert await store.check() == []
    await store.close()


async def test_triggers_that_are_gone_or_altered_are_made_anew(path: Path):
    store = await open_store(f"sqlite:///{path}", clock=ManualClock())
    await store.close()
    with hands_on(path) as connection:
        expected = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall())
        connection.execute("DROP TRIGGER runtrue_runs_final")
        connection.execute("DROP TRIGGER runtrue_runs_move")
        connection.execute("CREATE TRIGGER runtrue_runs_move AFTER UPDATE ON runtrue_runs BEGIN SELECT 1; END")
        connection.execute("CREATE TRIGGER runtrue_old AFTER UPDATE ON runtrue_runs BEGIN SELECT 1; END")
    store = await open_store(f"sqlite:///{path}", clock=ManualClock())
    await store.close()
    assert dict(execute(path, "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")) == expected


async def test_triggers_of_others_are_left_alone(path: Path):
    others = {
        "runtrue_audit": "CREATE TRIGGER runtrue_audit AFTER INSERT ON theirs BEGIN SELECT 1; END",
        "audit": "CREATE TRIGGER audit AFTER INSERT ON runtrue_runs BEGIN SELECT 1; END",
    }
    for _ in range(2):
        store = await open_store(f"sqlite:///{path}", clock=ManualClock())
        await store.close()
        with hands_on(path) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS theirs (x)")
            for name, text in others.items():
                connection.execute(f"DROP TRIGGER IF EXISTS {name}")
                connection.execute(text)
            connection.execute("DROP TRIGGER runtrue_runs_final")
    store = await open_store(f"sqlite:///{path}", clock=ManualClock())
    await store.close()
    found = dict(execute(path, "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"))
    assert others.items() <= found.items()
    assert "runtrue_runs_final" in found


async def test_a_trigger_of_others_that_has_a_name_of_ours_is_told(path: Path):
    with hands_on(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
        connection.execute("CREATE TRIGGER runtrue_runs_move AFTER INSERT ON theirs BEGIN SELECT 1; END")
    assert await refusal(f"sqlite:///{path}") == (
        "the trigger runtrue_runs_move on the table theirs has a name that runtrue needs; rename it"
    )


async def test_opening_what_is_up_to_date_writes_nothing(path: Path):
    store = await open_store(f"sqlite:///{path}", clock=ManualClock())
    with hands_on(path) as connection:
        before = connection.execute("PRAGMA data_version").fetchone()
        other = await open_store(f"sqlite:///{path}", clock=ManualClock())
        await other.migrate()
        await other.close()
        assert connection.execute("PRAGMA data_version").fetchone() == before
    await store.close()


async def test_many_stores_that_open_one_new_file_at_once_all_succeed(path: Path):
    stores = await asyncio.gather(*(open_store(f"sqlite:///{path}", clock=ManualClock()) for _ in range(8)))
    assert execute(path, "SELECT version FROM runtrue_schema_version") == [
        (number,) for number in range(1, schema.LATEST + 1)
    ]
    for store in stores:
        await store.close()


async def test_a_migration_that_fails_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    broken = tmp_path / "0001_broken.sql"
    broken.write_text("CREATE TABLE runtrue_half (x);\nCREATE TABLE runtrue_half (x);\n")
    monkeypatch.setattr(schema, "_MIGRATIONS", [broken])
    with pytest.raises(StoreError, match="runtrue_half already exists"):
        await open_store(f"sqlite:///{path}", clock=ManualClock())
    assert execute(path, "SELECT name FROM sqlite_master") == []


async def test_a_file_of_the_first_schema_is_brought_up_with_its_runs(path: Path):
    before = sqlite3.connect(path)
    before.executescript(Path(__file__).with_name("schema_1.sql").read_text())
    rows = before.execute("SELECT id, status, epoch, event_seq FROM runtrue_runs ORDER BY id").fetchall()
    before.close()
    clock = ManualClock()
    store = await open_store(f"sqlite:///{path}", clock=clock)
    stage = Stage(store, clock)
    assert (await store.schema_status()).version == schema.LATEST > 1
    assert execute(path, "SELECT id, status, epoch, event_seq FROM runtrue_runs ORDER BY id") == rows
    assert {row[1] for row in rows} == set(Status)
    await store.sweep()
    assert await store.check() == []
    run = await stage.run("waiting")
    assert (run.parent_id, run.children_left, run.deadline_at) == (None, 0, None)
    assert [hold.code_digest for hold in await store.holds("keyed")] == [""]
    for status in sorted(set(Status) - TERMINAL - {Status.CANCELLING}):
        assert (await stage.verb(Command.SEND, status, request_id="new-1")).changed
        assert (await stage.verb(Command.TERMINATE, status, request_id="new-2")).status is Status.CANCELLED
    await store.register_worker(NewWorker("w-2", "host", 7, 10, ["flow@1"], LEASE, [("flow", "1", "new")]))
    claims = {claimed.run_id: claimed for claimed in await stage.claim("w-2")}
    assert set(claims) == {"keyed", "tagged"}
    assert (await stage.record(claims["keyed"], waits=[receive(7)], worker_id="w-2")).recorded == "ok"
    assert await store.check() == []
    await store.close()


async def test_the_plain_shell_can_read_and_the_guards_hold_there_too(path: Path):
    store = await open_store(f"sqlite:///{path}", clock=ManualClock())
    await store.close()
    with hands_on(path) as connection:
        assert connection.execute("SELECT count(*) FROM runtrue_runs").fetchone() == (0,)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        columns = "id, status, workflow, version, priority, ready_at, created_at, updated_at"
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(f"INSERT INTO runtrue_runs ({columns}) VALUES ('r', 'running', 'f', '1', 0, 0, 0, 0)")


async def test_a_closed_store_says_so(path: Path):
    store = await open_store(f"sqlite:///{path}", clock=ManualClock())
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match=f"the store on {path} is closed"):
        await store.start([])
    with pytest.raises(StoreError, match=f"the store on {path} is closed"):
        await store.list_runs(RunFilter(), 1)


async def test_what_was_handed_in_before_closing_is_finished(path: Path):
    store = await open_store(f"sqlite:///{path}", clock=ManualClock())
    worker = asyncio.gather(*(store.retire_worker("w") for _ in range(20)))
    await asyncio.sleep(0)
    await store.close()
    assert await worker == [None] * 20
    assert not path.with_name("runs.db-wal").exists(), "the log is folded into the file by the last who closes"
