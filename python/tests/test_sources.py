"""Files at servers: loads from URLs and buckets beside DuckDB over the same files, and servers that fail."""

from __future__ import annotations

import os
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import buckets
import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from programs import program

import pithead

FORMATS = ["parquet", "csv", "csv.gz", "jsonl.zst", "arrow"]


def trips(start: int, rows: int) -> pa.Table:
    numbers = range(start, start + rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "city": [f"city {n * 7919 % 257}" if n % 13 else None for n in numbers],
            "fare": [n % 40 / 4 for n in numbers],
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bucket `lake` with the same rows in each format, three files each."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "lake" / "a b+c").mkdir(parents=True)
    for number in range(3):
        table, stem = trips(number * 20_000, 20_000), folder / "lake" / "a b+c" / f"part={number}"
        pq.write_table(table, f"{stem}.parquet", row_group_size=6_000)
        pyarrow.feather.write_feather(table, f"{stem}.arrow", chunksize=7_000)
        pyarrow.csv.write_csv(table, f"{stem}.csv")
        with pa.CompressedOutputStream(f"{stem}.csv.gz", "gzip") as out:
            pyarrow.csv.write_csv(table, out)
        with pa.CompressedOutputStream(f"{stem}.jsonl.zst", "zstd") as out:
            out.write(table.to_pandas().to_json(orient="records", lines=True).encode())
    return folder


@pytest.fixture
def bucket(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[buckets.Bucket]:
    with buckets.serve(folder) as bucket:
        for name, value in bucket.environment.items():
            monkeypatch.setenv(name, value)
        yield bucket


def answer(conn: pithead.Connection, name: str) -> tuple[object, ...]:
    row = conn.sql(f"SELECT count(*), sum(id), count(city), count(DISTINCT city), sum(fare) FROM {name}").fetchone()
    assert row is not None
    return row


def expected(folder: Path, files: str) -> tuple[object, ...]:
    query = "SELECT count(*), sum(id)::BIGINT, count(city), count(DISTINCT city), sum(fare)"
    (row,) = duckdb.connect().sql(f"{query} FROM read_parquet('{folder}/lake/a b+c/{files}')").fetchall()
    return row


@pytest.mark.parametrize("ending", FORMATS)
def test_each_format_is_loaded_from_buckets_and_urls(
    conn: pithead.Connection, bucket: buckets.Bucket, folder: Path, ending: str
) -> None:
    assert conn.load("t", f"s3://lake/a b+c/part=*.{ending}").rows == 60_000
    assert answer(conn, "t") == expected(folder, "*.parquet")
    bucket.signed = False
    conn.load("u", [f"{bucket.url}/lake/a%20b+c/part={number}.{ending}?version=7" for number in (0, 2)])
    conn.sql(f"COPY u FROM '{bucket.url}/lake/a%20b+c/part=1.{ending}'")
    assert answer(conn, "u") == answer(conn, "t")


@pytest.mark.parametrize("ending", FORMATS)
def test_what_breaks_off_goes_on_where_it_was(
    conn: pithead.Connection, bucket: buckets.Bucket, folder: Path, ending: str
) -> None:
    bucket.failures = [503, "slow", "cut", "", 500, "cut", "", 429, "slow", "cut"]
    conn.load("t", f"s3://lake/a b+c/part=1.{ending}")
    assert answer(conn, "t") == expected(folder, "part=1.parquet")
    assert len(bucket.failures) < 8


@pytest.mark.parametrize(
    ("always", "error", "message"),
    [
        (403, pithead.AccessError, r"s3://lake/a b\+c/part=1\.parquet: the server answers 403 Forbidden \(Told\)"),
        (404, pithead.ConflictError, r"s3://lake/a b\+c/part=1\.parquet was removed while it was read"),
        (503, pithead.Error, r"the server answers 503 Service Unavailable \(Told\), 5 times in a row"),
        ("cut", pithead.Error, r"the answer broke off, 5 times in a row"),
    ],
)
def test_a_load_that_fails_loses_nothing(
    conn: pithead.Connection,
    bucket: buckets.Bucket,
    folder: Path,
    always: int | str,
    error: type[pithead.Error],
    message: str,
) -> None:
    conn.load("t", "s3://lake/a b+c/part=0.parquet")
    before = answer(conn, "t")
    # The file is found, and fails when it is read.
    bucket.failures, bucket.always = [""] * 2, always
    with pytest.raises(error, match=message) as raised:
        conn.load("t", "s3://lake/a b+c/part=1.parquet", mode="append")
    assert buckets.SECRET not in str(raised.value)
    assert answer(conn, "t") == before
    bucket.always = None
    conn.load("t", "s3://lake/a b+c/part=1.parquet", mode="append")
    assert answer(conn, "t") == expected(folder, "part=[01].parquet")


def test_wrong_credentials_are_told(conn: pithead.Connection, bucket: buckets.Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another/secret")
    with pytest.raises(pithead.AccessError, match="SignatureDoesNotMatch") as raised:
        conn.load("t", "s3://lake/a b+c/*.parquet")
    assert "another/secret" not in str(raised.value) and "AWS_SECRET_ACCESS_KEY" in str(raised.value)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(pithead.AccessError, match="AWS_ACCESS_KEY_ID is not"):
        conn.load("t", "s3://lake/a b+c/*.parquet")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(pithead.AccessError, match="403"):
        conn.load("t", "s3://lake/a b+c/*.parquet")
    bucket.signed = False
    assert conn.load("t", "s3://lake/a b+c/*.parquet").rows == 60_000, "a public bucket needs none"


def test_what_cannot_be_meant_is_refused(conn: pithead.Connection, bucket: buckets.Bucket) -> None:
    for source, message in [
        ("s3://lake/a b+c/", "is a bucket or a folder"),
        ("s3://lake/a b+c/*.orc", "no object matches"),
        ("gs://lake/t.parquet", "gs://"),
        (f"{bucket.url}/lake/a b.csv", "cannot be read"),
    ]:
        with pytest.raises(pithead.Error, match=message.replace("*", r"\*")):
            conn.load("t", source)
    conn.load("t", "s3://lake/a b+c/part=0.csv")
    with pytest.raises(pithead.Error, match="files of this machine"):
        conn.sql("COPY t TO 's3://lake/t.parquet'")


def test_servers_with_tls_need_a_certificate_that_is_trusted(
    conn: pithead.Connection, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for what in ("ca", "drive 127.0.0.1"):
        subprocess.run([program(), "cert", *what.split()], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "certs/127.0.0.1.pem", tmp_path / "certs/127.0.0.1.key")
    with buckets.serve(folder, tls) as bucket:
        bucket.signed = False
        source = f"{bucket.url}/lake/a%20b+c/part=0.parquet"
        with pytest.raises(pithead.AccessError, match="UnknownIssuer"):
            conn.load("t", source)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certs/ca.pem"))
        assert conn.load("t", source).rows == 20_000


def test_the_program_loads_from_a_bucket(bucket: buckets.Bucket, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [program(), *arguments, "--data", str(tmp_path / "data")]
        environment = {**os.environ, **bucket.environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)

    loaded = run("load", "trips", "s3://lake/a b+c/*.parquet")
    assert loaded.returncode == 0 and "60,000 rows" in loaded.stderr, loaded.stderr
    copied = run("sql", "-q", "-c", "COPY trips FROM 's3://lake/a b+c/part=0.csv.gz'")
    assert copied.returncode == 0, copied.stderr
    counted = run("sql", "-q", "--format", "csv", "-c", "SELECT count(*) AS n FROM trips")
    assert counted.stdout == "n\n80000\n"
    bucket.always = 403
    refused = run("load", "more", "s3://lake/a b+c/*.parquet")
    assert refused.returncode == 5 and "403 Forbidden (Told)" in refused.stderr and "hint: AWS_ACCESS_KEY_ID" in refused.stderr
    assert buckets.SECRET not in refused.stderr
