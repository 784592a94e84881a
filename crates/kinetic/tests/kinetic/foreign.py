"""A client of the Kinetic protocol in plain Python, and what it expects of a server: foreign.py PORT TLS_PORT.

It shares no code with the server. Messages are put together by field number, as `docs/reference/kinetic.md` lists them.
"""

import hashlib
import hmac
import random
import socket
import ssl
import struct
import sys

GET, PUT, DELETE, GETNEXT, GETPREVIOUS, GETKEYRANGE, GETVERSION = 2, 4, 6, 8, 10, 12, 16
SECURITY, NOOP, FLUSHALLDATA, PINOP = 26, 30, 32, 36
START_BATCH, END_BATCH, ABORT_BATCH = 42, 44, 46
SUCCESS, HMAC_FAILURE, NOT_AUTHORIZED, VERSION_FAILURE, NOT_FOUND, VERSION_MISMATCH = 1, 2, 3, 4, 7, 8
INVALID_REQUEST, DEVICE_LOCKED, INVALID_BATCH = 16, 18, 21
HMACAUTH, PINAUTH, UNSOLICITEDSTATUS = 1, 2, 3


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def fields(*pairs) -> bytes:
    """A message of (number, value) pairs: integers as varints, bytes with their length, none left out."""
    out = b""
    for number, value in pairs:
        if value is None:
            continue
        if isinstance(value, bytes):
            out += varint(number << 3 | 2) + varint(len(value)) + value
        else:
            out += varint(number << 3) + varint(int(value))
    return out


def parse(data: bytes) -> dict:
    """Values by field number, in lists."""
    found, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            value = number()
        else:
            length = {2: number, 5: lambda: 4, 1: lambda: 8}[tag & 7]()
            value = data[at : at + length]
            at += length
        found.setdefault(tag >> 3, []).append(value)
    return found


def first(message: dict, *path, default=None):
    """The value at a path of field numbers."""
    for place, number in enumerate(path):
        if number not in message:
            return default
        value = message[number][0]
        message = parse(value) if place + 1 < len(path) else value
    return message


class Client:
    def __init__(self, port, tls=False, identity=1, key=b"asdfasdf"):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self.socket = context.wrap_socket(self.socket)
        self.identity, self.key, self.sequence, self.cluster = identity, key, 0, 0
        auth, greeting, _ = self.receive()
        assert auth == UNSOLICITEDSTATUS and first(greeting, 3, 1) == SUCCESS
        self.connection = first(greeting, 1, 3)
        self.limits = first(greeting, 2, 6, 8)
        configuration = first(greeting, 2, 6, 5)
        assert first(parse(configuration), 15) == b"3.0.7"
        assert all(first(parse(configuration), number) for number in (12, 13, 16, 17))

    def read(self, count):
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise EOFError
            data += part
        return data

    def receive(self):
        """How it is signed, the command, the value."""
        magic, message_bytes, value_bytes = struct.unpack(">cII", self.read(9))
        assert magic == b"F"
        message = parse(self.read(message_bytes))
        value = self.read(value_bytes)
        command = first(message, 7, default=b"")
        auth = first(message, 4)
        if auth == HMACAUTH:
            expected = self.sign(command)
            assert hmac.compare_digest(expected, first(message, 5, 2)), "the answer is signed with another key"
        return auth, parse(command), value

    def sign(self, command, key=None):
        return hmac.new(key or self.key, struct.pack(">I", len(command)) + command, hashlib.sha1).digest()

    def send(self, kind, body=b"", value=b"", batch=None, sequence=None, key=None, pin=None, **header):
        self.sequence = self.sequence + 1 if sequence is None else sequence
        head = fields(
            (1, header.get("cluster", self.cluster)), (3, self.connection), (4, self.sequence), (7, kind), (14, batch)
        )
        command = fields((1, head), (2, body or None))
        if pin is None:
            auth = fields((4, HMACAUTH), (5, fields((1, self.identity), (2, self.sign(command, key)))))
        else:
            auth = fields((4, PINAUTH), (6, fields((1, pin))))
        message = auth + fields((7, command))
        self.socket.sendall(struct.pack(">cII", b"F", len(message), len(value)) + message + value)

    def call(self, kind, body=b"", value=b"", **more):
        """The status, the body, the value."""
        self.send(kind, body, value, **more)
        _, command, value = self.receive()
        assert first(command, 1, 6) == self.sequence and first(command, 1, 7) == kind - 1
        assert first(command, 1, 14) is None
        return first(command, 3, 1), parse(first(command, 2, default=b"")), value

    def put(self, key, value=b"", new=b"1", old=None, force=None, sync=1, tag=None, algorithm=None, **more):
        pairs = [(2, new), (3, key), (4, old), (5, tag), (6, algorithm), (8, force), (9, sync)]
        return self.call(PUT, fields((1, fields(*pairs))), value, **more)[0]

    def delete(self, key, old=None, force=None, sync=1):
        return self.call(DELETE, fields((1, fields((3, key), (4, old), (8, force), (9, sync)))))[0]

    def get(self, key, kind=GET, metadata=None):
        """The status, and key, version, tag, algorithm and value."""
        status, body, value = self.call(kind, fields((1, fields((3, key), (7, metadata)))))
        return status, tuple(first(body, 1, number) for number in (3, 4, 5, 6)) + (value,)

    def keys(self, start, end, most=200, inclusive=(True, True), reverse=False):
        pairs = [(1, start), (2, end), (3, inclusive[0]), (4, inclusive[1]), (5, most), (6, reverse)]
        status, body, _ = self.call(GETKEYRANGE, fields((2, fields(*pairs))))
        assert status == SUCCESS, status
        return parse(first(body, 2, default=b"")).get(8, [])


def values(port):
    client = Client(port)
    assert client.call(NOOP)[0] == SUCCESS
    assert client.put(b"k", b"value", new=b"v1", tag=b"\x01\x02", algorithm=1) == SUCCESS
    assert client.get(b"k") == (SUCCESS, (b"k", b"v1", b"\x01\x02", 1, b"value"))
    assert client.get(b"k", metadata=True)[1][4] == b""
    assert client.put(b"k", new=b"v2") == VERSION_MISMATCH
    assert client.put(b"k", b"two", new=b"v2", old=b"v1") == SUCCESS
    assert client.get(b"k", GETVERSION)[1][1] == b"v2"
    assert client.put(b"k", sync=None, force=True) == INVALID_REQUEST
    assert client.delete(b"k", old=b"v1") == VERSION_MISMATCH
    assert client.delete(b"k", old=b"v2") == SUCCESS
    assert client.delete(b"k", old=b"v2") == NOT_FOUND
    assert client.delete(b"k", force=True) == SUCCESS
    assert client.get(b"k")[0] == NOT_FOUND
    big = random.Random(1).randbytes(1 << 20)
    assert client.put(b"big", big) == SUCCESS
    assert client.get(b"big")[1][4] == big
    assert client.put(b"big", big + b"x", force=True) == INVALID_REQUEST
    assert client.call(FLUSHALLDATA)[0] == SUCCESS
    assert client.put(b"", b"", force=True, new=b"") == SUCCESS
    assert client.get(b"")[1][4] == b""


def ranges(port):
    client = Client(port)
    for key in (b"r1", b"r2", b"r3"):
        assert client.put(key, key, force=True, sync=2) == SUCCESS
    assert client.keys(b"r", b"s") == [b"r1", b"r2", b"r3"]
    assert client.keys(b"r1", b"r3", inclusive=(False, False)) == [b"r2"]
    assert client.keys(b"r", b"s", most=2, reverse=True) == [b"r3", b"r2"]
    assert client.keys(b"s", b"r") == []
    assert client.get(b"r1", GETNEXT)[1][0] == b"r2"
    assert client.get(b"r3", GETPREVIOUS)[1][4] == b"r2"


def batches(port):
    client = Client(port)
    put = lambda key, **more: fields((1, fields((2, b"1"), (3, key), (8, more.get("force", True)), (9, 1))))
    assert client.call(START_BATCH, batch=3)[0] == SUCCESS
    client.send(PUT, put(b"batch a"), b"a", batch=3)
    client.send(PUT, put(b"batch b"), b"b", batch=3)
    status, body, _ = client.call(END_BATCH, fields((9, fields((1, 2)))), batch=3)
    assert status == SUCCESS and first(body, 9, 2) == bytes([2, 3])
    assert client.get(b"batch b")[1][4] == b"b"
    assert client.call(START_BATCH, batch=4)[0] == SUCCESS
    client.send(PUT, put(b"batch c"), b"c", batch=4)
    client.send(PUT, put(b"batch a", force=False), b"x", batch=4)
    status, body, _ = client.call(END_BATCH, fields((9, fields((1, 2)))), batch=4)
    assert status == INVALID_BATCH and first(body, 9, 3) == client.sequence - 1
    assert client.get(b"batch c")[0] == NOT_FOUND
    client.send(END_BATCH, batch=9)
    auth, command, _ = client.receive()
    assert auth == UNSOLICITEDSTATUS and first(command, 3, 1) == INVALID_REQUEST and 1 not in command
    try:
        client.read(1)
        raise AssertionError("the connection goes on")
    except EOFError:
        pass


def rights(port, tls_port):
    client = Client(port)
    assert client.call(NOOP, sequence=5)[0] == SUCCESS
    assert client.call(NOOP, sequence=5)[0] == INVALID_REQUEST
    assert client.call(NOOP, key=b"wrong")[0] == HMAC_FAILURE
    assert client.call(NOOP, cluster=1)[0] == VERSION_FAILURE
    assert client.call(SECURITY, fields((7, b"")))[0] == INVALID_REQUEST
    admin = Client(tls_port, tls=True)
    scope = fields((1, 0), (2, b"mine/")) + fields((3, 0), (3, 1))
    acl = fields((1, 42), (2, b"secret"), (3, 1), (4, scope))
    assert admin.call(SECURITY, fields((7, fields((2, acl)))))[0] == SUCCESS
    other = Client(port, identity=42, key=b"secret")
    assert other.put(b"mine/a", b"x") == SUCCESS
    assert other.put(b"yours/a", b"x") == NOT_AUTHORIZED
    assert other.delete(b"mine/a", force=True) == NOT_AUTHORIZED
    assert other.get(b"mine/a")[0] == SUCCESS
    assert admin.call(SECURITY, fields((7, fields((4, b"1234")))))[0] == SUCCESS

    def pin(operation, pin):
        return admin.call(PINOP, fields((8, fields((1, operation)))), pin=pin)[0]

    assert pin(2, b"wrong") == NOT_AUTHORIZED
    assert pin(2, b"1234") == SUCCESS
    assert other.get(b"mine/a")[0] == DEVICE_LOCKED
    assert pin(1, b"1234") == SUCCESS
    assert other.get(b"mine/a")[1][4] == b"x"


if __name__ == "__main__":
    plain, tls = int(sys.argv[1]), int(sys.argv[2])
    values(plain)
    ranges(plain)
    batches(plain)
    rights(plain, tls)
    print("all as expected")
