"""A server of files and of buckets, as S3 and Ceph are, over a folder; it checks signatures by code of its own, and fails as it is told."""

from __future__ import annotations

import hashlib
import hmac
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.sax.saxutils import escape

KEY_ID, SECRET = "the-key-id", "the/secret"


class Bucket:
    """A folder at a server, each of whose folders is a bucket."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.signed = True
        # What the next requests are answered with: a status, "slow", or "cut" for half of the bytes.
        self.failures: list[int | str] = []
        # And all behind them.
        self.always: int | str | None = None
        self.requests: list[str] = []

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "eu-north-1",
        }


@contextmanager
def serve(folder: Path, tls: ssl.SSLContext | None = None) -> Iterator[Bucket]:
    """Serves a folder, in clear or over TLS."""
    bucket = Bucket(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            bucket.requests.append(self.path)
            failure = bucket.failures.pop(0) if bucket.failures else bucket.always
            if isinstance(failure, int):
                return self.give(failure, b"<Error><Code>Told</Code></Error>")
            if bucket.signed and not is_signed(self):
                return self.give(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
            url = urlsplit(self.path)
            query = dict(parse_qsl(url.query, keep_blank_values=True))
            if query.get("list-type") == "2":
                return self.give(200, listing(bucket.folder / unquote(url.path).strip("/"), query))
            path = bucket.folder / unquote(url.path).lstrip("/")
            if not path.is_file():
                return self.give(404, b"<Error><Code>NoSuchKey</Code></Error>")
            data = path.read_bytes()
            headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"'}
            if self.headers.get("If-Match", headers["ETag"]) != headers["ETag"]:
                return self.give(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            wanted = self.headers.get("Range")
            if wanted is None:
                return self.give(200, data, headers, failure)
            first, last = (int(end) for end in wanted.removeprefix("bytes=").split("-"))
            if first >= len(data):
                return self.give(416, b"", {"Content-Range": f"bytes */{len(data)}"})
            last = min(last, len(data) - 1)
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            return self.give(206, data[first : last + 1], headers, failure)

        def give(self, status: int, body: bytes, headers: dict[str, str] | None = None, failure: str | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if failure == "cut":
                body = body[: len(body) // 2]
                self.close_connection = True
            for start in range(0, len(body), 4096):
                if failure == "slow":
                    time.sleep(0.02)
                self.wfile.write(body[start : start + 4096])

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    bucket.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield bucket
    finally:
        server.shutdown()
        server.server_close()


def listing(folder: Path, query: dict[str, str]) -> bytes:
    """Two keys at a time, encoded for a URL as they were asked for."""
    assert query["encoding-type"] == "url"
    keys = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    keys = [key for key in keys if key.startswith(query["prefix"]) and key > query.get("continuation-token", "")]
    shown = "".join(f"<Contents><Key>{quote(key).replace('%20', '+')}</Key>{facts(folder / key)}</Contents>" for key in keys[:2])
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{escape(keys[1])}</NextContinuationToken>" if keys[2:] else ""
    return f"<ListBucketResult><EncodingType>url</EncodingType>{shown}{more}</ListBucketResult>".encode()


def facts(path: Path) -> str:
    data = path.read_bytes()
    return f"<Size>{len(data)}</Size><ETag>&quot;{hashlib.sha1(data).hexdigest()}&quot;</ETag>"


def is_signed(handler: BaseHTTPRequestHandler) -> bool:
    """Whether a request has the signature of version 4 that it should have."""
    given = handler.headers.get("Authorization", "")
    if not given.startswith("AWS4-HMAC-SHA256 "):
        return False
    parts = dict(part.strip().split("=", 1) for part in given.removeprefix("AWS4-HMAC-SHA256 ").split(","))
    key_id, day, region, service, end = parts["Credential"].split("/")
    url = urlsplit(handler.path)
    pairs = sorted(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
        for name, value in parse_qsl(url.query, keep_blank_values=True)
    )
    names = parts["SignedHeaders"].split(";")
    headers = "".join(f"{name}:{handler.headers[name].strip()}\n" for name in names)
    body_hash = handler.headers["x-amz-content-sha256"]
    request = "\n".join(["GET", url.path, "&".join(pairs), headers, ";".join(names), body_hash])
    digest = hashlib.sha256(request.encode()).hexdigest()
    text = "\n".join(["AWS4-HMAC-SHA256", handler.headers["x-amz-date"], "/".join([day, region, service, end]), digest])
    key = ("AWS4" + SECRET).encode()
    for part in (day, region, service, end, text):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return (key_id, region, {"host", "x-amz-date"} <= set(names)) == (KEY_ID, "eu-north-1", True) and hmac.compare_digest(
        key.hex(), parts["Signature"]
    )
