#!/usr/bin/env python3
"""Makes the datasets of the SQL suites: small, the same every time, and full of edges.

usage: make.py DIRECTORY

Writes Parquet, CSV and Arrow files and `manifest.json`, which says how each is loaded:

    {"name": "kinds", "files": "kinds.parquet", "format": "parquet", "slice_rows": 16,
     "partitioning": {"hash": ["id"]} | {"range": "d"} | "round_robin", "sort": ["d"]}

Slices are far smaller than in real use, so that even these few rows fill many slices of several partitions. Nothing is
done when the directory already holds what this script would write.
"""

import datetime
import decimal
import hashlib
import json
import pathlib
import sys

import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

decimal.getcontext().prec = 80
D = decimal.Decimal
DATASETS = []


def main(directory):
    root = pathlib.Path(directory)
    manifest, stamp = root / "manifest.json", root / "stamp"
    digest = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()
    if manifest.exists() and stamp.exists() and stamp.read_text() == digest:
        return
    root.mkdir(parents=True, exist_ok=True)
    stamp.unlink(missing_ok=True)
    entries = []
    for make, options in DATASETS:
        name = make.__name__
        entries.append({"name": name, **write(root, name, options.pop("format"), make()), **options})
    manifest.write_text(json.dumps(entries, indent=1) + "\n")
    stamp.write_text(digest)


def write(root, name, form, table):
    """Writes one dataset; returns its files and format for the manifest."""
    if form == "parts":
        half = table.num_rows // 3
        pa.parquet.write_table(table.slice(0, half), root / f"{name}-1.parquet")
        pa.parquet.write_table(table.slice(half), root / f"{name}-2.parquet")
        return {"files": f"{name}-*.parquet", "format": "parquet"}
    file = f"{name}.{form}"
    if form == "parquet":
        pa.parquet.write_table(table, root / file)
    elif form == "csv":
        pa.csv.write_csv(table, root / file, pa.csv.WriteOptions(quoting_style="needed"))
    else:
        with pa.OSFile(str(root / file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=7)
    return {"files": file, "format": form}


def dataset(format="parquet", **options):
    """Marks a function that makes a dataset; its name is the dataset's."""

    def register(make):
        DATASETS.append((make, {"format": format, "slice_rows": 16, "partitioning": "round_robin", **options}))
        return make

    return register


def holed(values, step, first):
    """The values with NULL at every `step`th place."""
    return [None if i % step == first % step else value for i, value in enumerate(values)]


KINDS = [
    ("id", pa.int64()), ("b", pa.bool_()), ("i8", pa.int8()), ("i16", pa.int16()), ("i32", pa.int32()), ("i64", pa.int64()),
    ("u8", pa.uint8()), ("u16", pa.uint16()), ("u32", pa.uint32()), ("u64", pa.uint64()), ("f32", pa.float32()), ("f64", pa.float64()),
    ("dc", pa.decimal128(15, 2)), ("dl", pa.decimal128(38, 10)), ("s", pa.string()), ("x", pa.binary()), ("d", pa.date32()),
    ("ts", pa.timestamp("us")), ("tz", pa.timestamp("us", "UTC")), ("g", pa.int32()), ("k", pa.string()),
]


def kinds_rows(count):
    start = datetime.datetime(1965, 3, 1, 22, 30, 15, 250_000)
    numbers = [(i * 7919 + 13) % 1009 for i in range(count)]
    columns = {
        "b": [n % 3 == 0 for n in numbers],
        "i8": [n % 256 - 128 for n in numbers],
        "i16": [n * 37 % 65536 - 32768 for n in numbers],
        "i32": [n * 2_000_003 % 4_294_967_296 - 2_147_483_648 for n in numbers],
        "i64": [(n - 500) * 9_007_199_254_741 for n in numbers],
        "u8": [n % 256 for n in numbers],
        "u16": [n * 61 % 65536 for n in numbers],
        "u32": [n * 4_256_789 % 4_294_967_296 for n in numbers],
        "u64": [n * 10_000_000_000_019 for n in numbers],
        "f32": [n / 8 for n in numbers],
        "f64": [n * 1.37 + 0.1 for n in numbers],
        "dc": [D(n * 12_345_67 - 300_000_000).scaleb(-2) for n in numbers],
        "dl": [D(n * 98_765_432_101_234_567 - 10**19).scaleb(-10) for n in numbers],
        "s": [("", "a", "A", "été", "naïve", "日本語", "zebra", "x y", "100%", "under_score", "🦀", "O'Brien")[n % 12] for n in numbers],
        "x": [bytes([n % 256, 0, 255])[: n % 4] for n in numbers],
        "d": [datetime.date(1955, 1, 1) + datetime.timedelta(days=n * 13) for n in numbers],
        "ts": [start + datetime.timedelta(hours=n * 5, microseconds=n) for n in numbers],
        "tz": [start.replace(tzinfo=datetime.timezone.utc) + datetime.timedelta(hours=n * 7) for n in numbers],
        "g": [n % 5 for n in numbers],
        "k": [("a", "b", "", "é", "long enough not to be kept inline")[n % 5] for n in numbers],
    }
    arrays = [pa.array(range(count), pa.int64())]
    for place, (name, kind) in enumerate(KINDS[1:]):
        arrays.append(pa.array(holed(columns[name], 7, place), kind))
    return pa.table(arrays, names=[name for name, _ in KINDS])


@dataset(partitioning={"hash": ["id"]})
def kinds():
    return kinds_rows(240)


@dataset()
def empty():
    return kinds_rows(0)


@dataset()
def few():
    return pa.table({
        "id": pa.array([1, 2, 3], pa.int64()), "v": pa.array([10, None, 30], pa.int32()), "s": pa.array(["one", "", None]), "n": pa.array([None] * 3, pa.int64()),
    })


@dataset(partitioning={"hash": ["id"]})
def lone():
    return pa.table({"id": pa.array([42], pa.int64()), "s": pa.array(["only"]), "v": pa.array([D("1.50")], pa.decimal128(15, 2))})


@dataset(slice_rows=512)
def one_group():
    count = 6000
    return pa.table({
        "g": pa.array([7] * count, pa.int32()),
        "v": pa.array(holed([i * 31 % 1000 for i in range(count)], 11, 3), pa.int32()),
        "w": pa.array([1 + (i % 97) * 0.25 for i in range(count)], pa.float64()),
        "t": pa.array([f"t{i % 10}" for i in range(count)]),
    })


@dataset(slice_rows=512)
def all_distinct():
    count = 6000
    return pa.table({
        "key": pa.array([f"key-{i * 7919 % count:05}" for i in range(count)]),
        "id": pa.array(range(count), pa.int64()),
        "v": pa.array([i % 13 for i in range(count)], pa.int64()),
    })


WORDS = [
    "", " ", "a", "A", "á", "à", "ab", "AB", "aB", "abc", "abcabc", "été", "ÉTÉ", "e\u0301te\u0301", "naïve", "straße", "STRASSE", "日本", "日本語", "語",
    "🦀", "🦀🦀", "a🦀b", "%", "_", "100%", "under_score", "back\\slash", "tab\there", "line\nbreak", "'quoted'", '"double"', "NULL", "  padded  ",
    "the quick brown fox", "The Quick Brown Fox", "jumps over the lazy dog", "x" * 12, "x" * 13, "y" * 300, "ὀδός", "Ω", "مرحبا", "نص", "0", "00", "-1", None, None, None,
]


@dataset(slice_rows=8)
def words():
    return pa.table({"id": pa.array(range(len(WORDS)), pa.int64()), "w": pa.array(WORDS), "n": pa.array([None if w is None else len(w.encode()) for w in WORDS], pa.int32())})


@dataset(slice_rows=4)
def money():
    top38, top18 = 10**38 - 1, 10**18 - 1
    whole = [top38, -top38, 1, -1, 0, None, top38, 10**37, None, 5 * 10**37]
    return pa.table({
        "id": pa.array(range(10), pa.int64()),
        "whole": pa.array([None if w is None else D(w) for w in whole], pa.decimal128(38, 0)),
        "fraction": pa.array([D(top38).scaleb(-38), D(-top38).scaleb(-38), D(1).scaleb(-38), D(0), None, D("0.5"), D("0.1"), D("-0.25"), None, D("0.125")], pa.decimal128(38, 38)),
        "short": pa.array([D(top18), D(-top18), D(top18), D(top18), None, D(top18), D(0), D(1), D(-1), D(top18)], pa.decimal128(18, 0)),
        "price": pa.array([D("9999999999999.99"), D("-9999999999999.99"), D("0.01"), D("-0.01"), None, D("1.005").quantize(D("0.01")), D("2.50"), D("3.50"), D("0.00"), D("9999999999999.99")], pa.decimal128(15, 2)),
        "big": pa.array([2**63 - 1, -(2**63), 2**63 - 1, 1, None, -1, 0, 2**62, -(2**62), 7], pa.int64()),
        "bigger": pa.array([2**64 - 1, 0, 2**63, 1, None, 2**63 - 1, 5, 6, 7, 8], pa.uint64()),
        "g": pa.array(["over", "zero", "over", "zero", "null", "fine", "fine", "fine", "null", "fine"]),
    })


@dataset(slice_rows=8, partitioning={"range": "d"}, sort=["d"])
def days():
    dates = [
        datetime.date(*ymd) for ymd in [
            (1, 1, 1), (1582, 10, 4), (1582, 10, 15), (1600, 2, 29), (1752, 9, 3), (1899, 12, 31), (1900, 1, 1), (1900, 2, 28), (1900, 3, 1), (1945, 5, 8), (1968, 12, 31),
            (1969, 7, 20), (1969, 12, 30), (1969, 12, 31), (1970, 1, 1), (1970, 1, 2), (1972, 2, 29), (1999, 12, 31), (2000, 1, 1), (2000, 2, 29), (2024, 2, 29), (2024, 3, 31),
            (2024, 10, 27), (2038, 1, 19), (2100, 2, 28), (2262, 4, 11), (9999, 12, 31),
        ]
    ] + [None, None]
    moments = [None if d is None else datetime.datetime(d.year, d.month, d.day, (i * 7) % 24, (i * 11) % 60, (i * 13) % 60, i * 37_037) for i, d in enumerate(dates)]
    near = [m if m and 1700 < m.year < 2200 else None for m in moments]
    utc = [None if m is None else m.replace(tzinfo=datetime.timezone.utc) for m in near]
    return pa.table({
        "id": pa.array(range(len(dates)), pa.int64()),
        "d": pa.array(dates, pa.date32()),
        "ts": pa.array(moments, pa.timestamp("us")),
        "tz": pa.array(utc, pa.timestamp("us", "UTC")),
        "berlin": pa.array(utc, pa.timestamp("us", "Europe/Berlin")),
        "s": pa.array([None if m is None else m.replace(microsecond=0) for m in near], pa.timestamp("s")),
        "ms": pa.array([None if m is None else m.replace(microsecond=m.microsecond // 1000 * 1000) for m in near], pa.timestamp("ms")),
        "ns": pa.array(near, pa.timestamp("ns")),
        "t": pa.array([None if m is None else m.time() for m in moments], pa.time64("us")),
    })


@dataset(slice_rows=3)
def nested():
    pair = pa.struct([("a", pa.int64()), ("b", pa.string())])
    count = 11
    return pa.table({
        "id": pa.array(range(count), pa.int64()),
        "l": pa.array([[1, 2, 3], [], None, [None], [4, None, 6], [7], [8, 9], [-1], [0] * 5, [2**40], [10, 20]], pa.list_(pa.int64())),
        "s": pa.array([{"a": i if i % 4 else None, "b": ("", "é", None, "text")[i % 4]} if i % 5 else None for i in range(count)], pair),
        "ls": pa.array([[{"a": j, "b": f"b{j}"} for j in range(i % 3)] if i % 4 else None for i in range(count)], pa.list_(pair)),
        "ll": pa.array([[[1], [2, 3]], [[]], [], None, [None, [4]], [[5, None]], [[6]], [[7], []], [[8, 9]], [[0]], [[1, 1], [1]]], pa.list_(pa.list_(pa.int32()))),
        "lt": pa.array([["a", "", None], ["é"], [], None, ["x", "y"], ["z"], ["🦀"], ["a"], ["b"], [None], ["c", "c"]], pa.list_(pa.string())),
        "deep": pa.array([{"p": {"a": i, "b": str(i)}, "q": [i]} if i != 3 else None for i in range(count)], pa.struct([("p", pair), ("q", pa.list_(pa.int64()))])),
    })


@dataset(slice_rows=8, partitioning={"hash": ["id"]})
def wide():
    columns = {"id": pa.array(range(24), pa.int64())}
    for c in range(1, 2000):
        if c % 3 == 0:
            columns[f"c{c:04}"] = pa.array([None if (i + c) % 9 == 0 else f"v{(i * c) % 17}" for i in range(24)])
        elif c % 3 == 1:
            columns[f"c{c:04}"] = pa.array([None if (i + c) % 11 == 0 else i * c for i in range(24)], pa.int64())
        else:
            columns[f"c{c:04}"] = pa.array([i * c / 4 for i in range(24)], pa.float64())
    return pa.table(columns)


@dataset(slice_rows=1)
def single():
    return pa.table({"id": pa.array(range(9), pa.int64()), "v": pa.array([5, None, 3, 3, 8, 0, None, -2, 5], pa.int64()), "s": pa.array(list("abcab") + [None, "", "a", "c"])})


@dataset(slice_rows=16, partitioning={"hash": ["id"]}, sort=["id"])
def parents():
    count = 60
    return pa.table({
        "id": pa.array(range(count), pa.int64()),
        "name": pa.array(holed([f"parent {i % 23}" for i in range(count)], 13, 5)),
        "grp": pa.array(holed([i % 4 for i in range(count)], 9, 2), pa.int32()),
    })


@dataset(slice_rows=32, partitioning={"hash": ["pid"]}, sort=["pid"])
def children():
    count = 300
    pids = [None if i % 17 == 0 else (i * 11) % 90 if i % 5 else (i * 7) % 30 for i in range(count)]
    return pa.table({
        "pid": pa.array(pids, pa.int64()),
        "n": pa.array(range(count), pa.int32()),
        "amount": pa.array(holed([D(i * 997 % 10_000 - 2_000).scaleb(-2) for i in range(count)], 19, 4), pa.decimal128(15, 2)),
        "tag": pa.array(holed([("red", "green", "blue", "")[i % 4] for i in range(count)], 6, 1)),
    })


@dataset(slice_rows=16, partitioning={"hash": ["k"]})
def pairs():
    count = 200
    return pa.table({
        "id": pa.array(range(count), pa.int64()),
        "k": pa.array(holed([(i * 13) % 37 for i in range(count)], 11, 3), pa.int64()),
        "g": pa.array(holed([i % 5 for i in range(count)], 7, 2), pa.int32()),
        "v": pa.array(holed([(i * 31) % 101 - 50 for i in range(count)], 17, 5), pa.int64()),
        "s": pa.array([("a", "b", "a, b", "b, a")[i * 7 % 4] for i in range(count)]),
    })


@dataset(slice_rows=8, partitioning={"hash": ["k"]})
def pairs_narrow():
    count = 60
    return pa.table({
        "k": pa.array(holed([(i * 5) % 41 for i in range(count)], 6, 1), pa.int32()),
        "g": pa.array(holed([i % 7 for i in range(count)], 5, 4), pa.int32()),
        "w": pa.array(range(count), pa.int64()),
    })


@dataset(slice_rows=4)
def named_alike():
    names = ["value_0", "value_1", "distinct_1", "part_0", "part_1", "merged_0", "key_0", "c0"]
    return pa.table({name: pa.array([(i * (place + 3)) % (place + 5) for i in range(30)], pa.int64()) for place, name in enumerate(names)})


@dataset(slice_rows=4)
def set_a():
    return pa.table({"id": pa.array(range(20), pa.int64()), "v": pa.array([1, 2, 3, None, 5, 5, None, 8, 9, 10, 1, None, 13, 14, 15, 16, 17, 18, 2, 2], pa.int64())})


@dataset(slice_rows=2)
def set_b():
    return pa.table({"v": pa.array([2, 5, 9, 14, 14, 77], pa.int64())})


@dataset(slice_rows=2)
def set_n():
    return pa.table({"v": pa.array([2, None, 9, 100, None], pa.int64())})


@dataset(format="csv", slice_rows=4)
def staff():
    names = ["Ada", 'Grace "Amazing" H', "Linus, T", "Édith", "Ken", "Barbara", "Donald", "Margaret", "Tim", "Radia", "日本 太郎", "Zoë"]
    return pa.table({
        "id": pa.array(range(1, 13), pa.int64()),
        "name": pa.array(names),
        "boss": pa.array([None, 1, 1, 2, 2, 3, 3, 4, 4, 4, 9, 9], pa.int64()),
        "dept": pa.array(["top", "lab", "lab", "ops", "ops", "lab", "ops", "lab", "ops", "ops", "lab", None]),
        "pay": pa.array([9000.5, 7000.25, 7100.0, 5200.75, 5100.0, 4900.0, None, 4800.5, 4700.25, 4650.0, 3900.0, 3800.0], pa.float64()),
        "hired": pa.array([datetime.date(1961 + i * 5, 1 + i, 28 - i) for i in range(12)], pa.date32()),
    })


@dataset(format="arrow", slice_rows=16)
def events():
    count = 90
    return pa.table({
        "id": pa.array(range(count), pa.int64()),
        "level": pa.array(holed([("info", "warn", "error")[i * i % 3] for i in range(count)], 8, 6)).dictionary_encode(),
        "message": pa.array([f"event {i % 11} at {'start' if i % 2 else 'end'}" for i in range(count)], pa.large_string()),
        "at": pa.array([datetime.datetime(2024, 1, 1) + datetime.timedelta(minutes=37 * i) for i in range(count)], pa.timestamp("ms")),
        "took": pa.array(holed([i * i % 101 / 10 for i in range(count)], 10, 9), pa.float32()),
        "code": pa.array([bytes([i, 255 - i]) for i in range(count)], pa.large_binary()),
    })


@dataset(slice_rows=4)
def floats():
    inf, nan = float("inf"), float("nan")
    values = [1.5, -2.25, nan, inf, -inf, None, 1e300, -1e300, 1e-300, 3.0, nan, None, 0.0, 7.75, 1.5, 2**53 + 2.0]
    return pa.table({
        "id": pa.array(range(len(values)), pa.int64()), "f": pa.array(values, pa.float64()), "h": pa.array([None if v is None or abs(v) > 1e30 else v for v in values], pa.float32()),
        "g": pa.array([i % 3 for i in range(len(values))], pa.int32()),
    })


@dataset(slice_rows=64, partitioning={"range": "moment"}, sort=["moment"])
def readings():
    count = 2000
    return pa.table({
        "moment": pa.array([datetime.datetime(1969, 12, 1) + datetime.timedelta(minutes=45 * i) for i in range(count)], pa.timestamp("us")),
        "day": pa.array([datetime.date(1969, 12, 1) + datetime.timedelta(minutes=45 * i) for i in range(count)], pa.date32()),
        "sensor": pa.array([f"s{i * 13 % 37:02}" for i in range(count)]),
        "value": pa.array(holed([i * 7919 % 1000 for i in range(count)], 23, 8), pa.int32()),
        "note": pa.array([f"reading {i} {'needle' if i % 331 == 7 else 'hay'} end" for i in range(count)]),
    })


@dataset(format="parts", slice_rows=32, partitioning={"hash": ["k"]})
def series():
    count = 200
    return pa.table({
        "k": pa.array([f"k{i % 19}" for i in range(count)]), "i": pa.array(range(count), pa.int32()),
        "v": pa.array(holed([D(i * i % 977).scaleb(-1) for i in range(count)], 21, 20), pa.decimal128(9, 1)),
    })


def both_zeros():
    """Both zeros, NaNs of both signs and of another payload, flat and nested, with NULLs among and within them."""
    import struct

    nans = [struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in (0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000007)]
    values = [0.0, -0.0, 1.5, *nans, None, -2.0, float("inf"), -0.0, 0.0, float("-inf")]
    count = 96
    f = [values[i * 5 % len(values)] for i in range(count)]
    pair = pa.struct([("a", pa.float64()), ("b", pa.int32())])
    return pa.table({
        "id": pa.array(range(count), pa.int64()),
        "k": pa.array([i % 7 for i in range(count)], pa.int32()),
        "f": pa.array(f, pa.float64()),
        "h": pa.array([f[i * 7 % count] for i in range(count)], pa.float32()),
        "v": pa.array([i * 37 % 50 for i in range(count)], pa.int64()),
        "s": pa.array([None if i % 13 == 5 else {"a": f[i], "b": None if i % 4 == 1 else i % 3} for i in range(count)], pair),
        "l": pa.array([None if i % 11 == 3 else [f[i], f[i * 3 % count]][: i % 3] for i in range(count)], pa.list_(pa.float64())),
    })


@dataset(slice_rows=5, partitioning={"hash": ["f"]})
def zeros_hash():
    return both_zeros()


@dataset(slice_rows=5, partitioning={"range": "f"})
def zeros_range():
    return both_zeros().filter(pa.compute.not_equal(pa.compute.is_nan(both_zeros()["f"]), True))


@dataset(slice_rows=5)
def zeros_spread():
    return both_zeros()


@dataset(slice_rows=3, partitioning={"hash": ["id"]})
def nested_pairs():
    """Two lists and two structs a row, with NULLs inside them and in their place."""
    lists = [None, [], [None], [1], [1, None], [1, 2], [None, 0], [2]]
    pairs = [None, {"a": None, "b": None}, {"a": 3, "b": None}, {"a": 3, "b": "x"}, {"a": None, "b": "x"}]
    pair = pa.struct([("a", pa.int64()), ("b", pa.string())])
    count = 40
    return pa.table({
        "id": pa.array(range(count), pa.int64()),
        "l": pa.array([lists[i % 8] for i in range(count)], pa.list_(pa.int64())),
        "m": pa.array([lists[i * 3 // 5 % 8] for i in range(count)], pa.list_(pa.int64())),
        "s": pa.array([pairs[i % 5] for i in range(count)], pair),
        "t": pa.array([pairs[i // 5 % 5] for i in range(count)], pair),
    })


@dataset(slice_rows=3, partitioning={"hash": ["id"]})
def limits():
    """Numbers at the ends of their types in the first rows, small ones in the others."""
    def ends(low, high, count=24):
        return [high, low, None, high - 1, low + 1, *[(i * 7) % 5 - 2 if low < 0 else i * 7 % 5 + 2 for i in range(5, count)]]
    count = 24
    digits = 10**38 - 1
    return pa.table({
        "id": pa.array(range(count), pa.int64()),
        "i16": pa.array(ends(-(2**15), 2**15 - 1), pa.int16()),
        "i32": pa.array(ends(-(2**31), 2**31 - 1), pa.int32()),
        "i64": pa.array(ends(-(2**63), 2**63 - 1), pa.int64()),
        "u64": pa.array(ends(0, 2**64 - 1), pa.uint64()),
        "d38": pa.array([D(n) if n is not None else None for n in ends(-digits, digits)], pa.decimal128(38, 0)),
        "d4": pa.array([D(n).scaleb(-4) if n is not None else None for n in ends(-digits, digits)], pa.decimal128(38, 4)),
        "at": pa.array([datetime.datetime(2020, 1, 1) + datetime.timedelta(days=i * 31) for i in range(count)], pa.timestamp("us")),
    })


@dataset(slice_rows=4)
def members():
    """Values that are and are not in the subqueries' lists, with NULLs on both sides."""
    count = 20
    return pa.table({
        "id": pa.array(range(count), pa.int64()),
        "x": pa.array(holed([i % 8 for i in range(count)], 6, 4), pa.int64()),
        "g": pa.array([i % 4 for i in range(count)], pa.int64()),
    })


@dataset(slice_rows=2, partitioning={"hash": ["g"]})
def lists():
    return pa.table({
        "g": pa.array([0, 0, 1, 1, 1, 2, 3, None], pa.int64()),
        "y": pa.array([1, 2, 3, None, 5, None, 7, 0], pa.int64()),
    })


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n\n")[1])
    main(sys.argv[1])
