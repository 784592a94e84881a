//! Statements that go on for longer than anybody waits, each greedy in a way of its own.

/// A statement that takes all that it gets.
pub(super) struct Hog {
    pub(super) name: &'static str,
    pub(super) sql: &'static str,
    /// Whether its rows are read.
    pub(super) is_read: bool,
    /// Whether it may be at work at the host alone.
    pub(super) is_at_host: bool,
    /// Whether it may end by itself: it needs more memory than there may be, and not for ever.
    pub(super) may_fail: bool,
}

const fn at_drives(name: &'static str, sql: &'static str) -> Hog {
    Hog { name, sql, is_read: true, is_at_host: false, may_fail: false }
}

const fn hungry(name: &'static str, sql: &'static str) -> Hog {
    Hog { may_fail: true, ..at_drives(name, sql) }
}

/// Forty million pairs that share a key.
macro_rules! pairs {
    ($select:literal) => {
        concat!("SELECT ", $select, " FROM t AS a JOIN t AS b ON a.m = b.m")
    };
    ($select:literal, $rest:literal) => {
        concat!("SELECT ", $select, " FROM t AS a JOIN t AS b ON a.m = b.m ", $rest)
    };
}

pub(super) const HOGS: &[Hog] = &[
    at_drives("cross join", "SELECT a.id FROM t AS a, t AS b WHERE a.id + b.id = -1"),
    at_drives("three-way cross join", "SELECT a.id FROM t AS a, t AS b, t AS c WHERE a.id + b.id + c.id = -1"),
    at_drives("skewed join", "SELECT count(*) FROM t AS a JOIN t AS b ON a.k = b.k AND a.id + b.id = -1"),
    hungry("sort", pairs!("a.s AS x, b.s AS y, a.id, b.id", "ORDER BY b.s, a.id DESC")),
    hungry("groups", pairs!("a.id * 200000 + b.id AS pair, count(*), max(a.s)", "GROUP BY 1")),
    hungry("distinct", pairs!("count(DISTINCT a.s || b.s)")),
    hungry("repeat", pairs!("max(length(repeat(a.s, 200 + (b.id % 2))))")),
    hungry(
        "window",
        "SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY a.s, b.id) AS r FROM t AS a JOIN t AS b ON a.m = b.m)",
    ),
    at_drives(
        "regular expression",
        "SELECT count(*) FROM t AS a, t AS b WHERE regexp_like(a.s || b.s, '((ab)+|(ba)+)+c.*(1+)+y')",
    ),
    hungry("string_agg", pairs!("length(string_agg(a.s, ','))")),
    hungry("array_agg", pairs!("a.k, array_length(array_agg(b.s))", "GROUP BY a.k")),
    Hog {
        is_at_host: true,
        ..hungry(
            "series",
            "SELECT max(x.v * y.v + z.v) FROM unnest(range(1, 50000)) AS x(v), unnest(range(1, 50000)) AS y(v), \
             unnest(range(1, 50000)) AS z(v)",
        )
    },
    Hog {
        is_at_host: true,
        ..hungry("recursion", "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r")
    },
    Hog { is_read: false, ..at_drives("rows that nobody reads", pairs!("a.s AS x, b.s AS y")) },
];
