//! Functions and forms that people type, beside those that plans are made of.

use crate::random::queries::Output;
use crate::random::scope::{Generator, Item, Relation};
use crate::random::values::TypeKind;

/// Units that parts of dates are counted in.
const DATE_UNITS: [&str; 4] = ["day", "week", "month", "year"];

impl Generator<'_> {
    /// A whole number.
    pub(crate) fn spoken_integer(&mut self, items: &[Item], depth: usize) -> String {
        let form = self.choices.below(16);
        let whole = |generator: &mut Self| generator.value(TypeKind::Int, items, depth);
        match form {
            0 => format!("greatest({}, {})", whole(self), whole(self)),
            1 => format!("least({}, {})", whole(self), whole(self)),
            2 => format!("mod({}, {})", whole(self), self.choices.pick(&["3", "7", "(-4)"])),
            3 => format!("({} // {})", whole(self), self.choices.pick(&["3", "7", "(-4)"])),
            4 => format!("({} & {})", whole(self), whole(self)),
            5 => format!("({} | {})", whole(self), whole(self)),
            6 => format!("xor({}, {})", whole(self), whole(self)),
            7 => format!("CAST(sign({}) AS BIGINT)", whole(self)),
            8 => format!("ifnull({}, {})", whole(self), whole(self)),
            9 => format!("CAST(IF({}, {}, {}) AS BIGINT)", self.predicate(items, depth), whole(self), whole(self)),
            10 | 11 => self.part_of_a_date(items, depth),
            12 => format!("(CAST(epoch_ms({}) AS BIGINT) % 9973)", self.value(TypeKind::Timestamp, items, depth)),
            13 => {
                let function = self.choices.pick(&["round", "trunc"]);
                format!("CAST({function}({}) AS BIGINT)", self.value(TypeKind::Float, items, 0))
            }
            _ => self.place_in_text(items, depth),
        }
    }

    fn part_of_a_date(&mut self, items: &[Item], depth: usize) -> String {
        let date = self.value(TypeKind::Date, items, depth);
        match self.choices.below(3) {
            0 => format!("CAST({}({date}) AS BIGINT)", self.choices.pick(&["year", "month", "dayofweek", "week", "quarter"])),
            1 => {
                let unit = self.choices.pick(&DATE_UNITS);
                format!("CAST(date_diff('{unit}', {date}, {}) AS BIGINT)", self.value(TypeKind::Date, items, depth))
            }
            _ => format!("CAST({date} - {} AS BIGINT)", self.value(TypeKind::Date, items, depth)),
        }
    }

    fn place_in_text(&mut self, items: &[Item], depth: usize) -> String {
        let text = self.value(TypeKind::Text, items, depth);
        let part = self.choices.pick(&["'a'", "'b'", "''", "'日'", "'le'"]);
        match self.choices.below(4) {
            0 => format!("CAST(strpos({text}, {part}) AS BIGINT)"),
            1 => format!("CAST(instr({text}, {part}) AS BIGINT)"),
            2 => format!("CAST(len({text}) AS BIGINT)"),
            _ => format!("CAST(ascii({text}) AS BIGINT)"),
        }
    }

    /// Text.
    pub(crate) fn spoken_text(&mut self, items: &[Item], depth: usize) -> String {
        let form = self.choices.below(17);
        let text = self.value(TypeKind::Text, items, depth);
        match form {
            0 => format!("trim({text})"),
            1 => format!("rtrim({text})"),
            2 => format!("lpad({text}, {}, 'x')", self.choices.pick(&["0", "2", "5"])),
            3 => format!("rpad({text}, {}, 'é')", self.choices.pick(&["0", "2", "5"])),
            4 => format!("repeat({text}, {})", self.choices.pick(&["0", "1", "2"])),
            5 => format!("reverse({text})"),
            6 => format!(
                "split_part({text}, {}, {})",
                self.choices.pick(&["'a'", "' '", "'日'"]),
                self.choices.pick(&["1", "2"])
            ),
            7 => format!("regexp_replace({text}, '[ab]', 'z'{})", self.choices.pick(&["", ", 'g'"])),
            8 => format!("regexp_extract({text}, '{}', 1)", self.choices.pick(&["(a|b)", "(.)b", "([^a]+)a?"])),
            9 => format!("concat_ws('-', {text}, {})", self.value(TypeKind::Text, items, depth)),
            10 => format!("translate({text}, 'ab', {})", self.choices.pick(&["'xy'", "'x'", "'日本'"])),
            11 => format!("right({text}, {})", self.choices.pick(&["0", "1", "2"])),
            12 => format!("md5({text})"),
            13 => format!("ifnull({text}, {})", self.value(TypeKind::Text, items, depth)),
            14 => {
                format!("strftime({}, {})", self.value(TypeKind::Date, items, depth), self.choices.pick(&["'%Y-%m'", "'%j'"]))
            }
            15 => {
                let kind = [TypeKind::Date, TypeKind::Decimal, TypeKind::Bool, TypeKind::Timestamp][self.choices.below(4)];
                format!("CAST({} AS VARCHAR)", self.value(kind, items, depth))
            }
            _ => format!("coalesce({text}, '')[{}]", self.choices.pick(&["1", "2", "1:2", "-1"])),
        }
    }

    /// A float.
    pub(crate) fn spoken_float(&mut self, items: &[Item], depth: usize) -> String {
        let float = self.value(TypeKind::Float, items, depth);
        match self.choices.below(6) {
            // Adding zero makes zero of a negative one, which DuckDB cannot tell from it.
            0 => format!("(round({float}) + 0e0)"),
            1 => format!("(trunc({float}) + 0e0)"),
            2 => format!("greatest({float}, {})", self.value(TypeKind::Float, items, depth)),
            3 => format!("least({float}, {})", self.value(TypeKind::Float, items, depth)),
            4 => format!("sqrt(abs({float}))"),
            _ => format!("CAST(date_part('epoch', {}) AS DOUBLE)", self.value(TypeKind::Timestamp, items, depth)),
        }
    }

    /// A date.
    pub(crate) fn spoken_date(&mut self, items: &[Item], depth: usize) -> String {
        let form = self.choices.below(4);
        let date = self.value(TypeKind::Date, items, depth);
        match form {
            0 => format!("({date} {} {})", self.choices.pick(&["+", "-"]), self.choices.pick(&["1", "40", "400"])),
            1 => format!("last_day({date})"),
            2 => format!("CAST(time_bucket(INTERVAL '{} days', {date}) AS DATE)", self.choices.pick(&["7", "10"])),
            _ => {
                let whole = self.value(TypeKind::Int, items, depth);
                format!("make_date(CAST(2000 + {whole} % 50 AS INT), CAST(1 + abs({whole} % 12) AS INT), 1)")
            }
        }
    }

    /// A timestamp.
    pub(crate) fn spoken_timestamp(&mut self, items: &[Item], depth: usize) -> String {
        let timestamp = self.value(TypeKind::Timestamp, items, depth);
        match self.choices.below(2) {
            0 => format!("CAST(time_bucket(INTERVAL '15 minutes', {timestamp}) AS TIMESTAMP(6))"),
            _ => {
                let hours = self.value(TypeKind::Int, items, 0);
                format!("CAST({timestamp} + ({hours} % 1000) * INTERVAL '1 hour' AS TIMESTAMP(6))")
            }
        }
    }

    /// A condition.
    pub(crate) fn spoken_predicate(&mut self, items: &[Item], depth: usize) -> String {
        let form = self.choices.below(9);
        let whole = |generator: &mut Self| generator.value(TypeKind::Int, items, depth);
        match form {
            0 => format!("({} BETWEEN {} AND {})", whole(self), whole(self), whole(self)),
            // The parser takes a list that begins with a subquery for one.
            1 => {
                let first = self.without_subqueries(whole);
                format!("({} IN ({first}, {}))", whole(self), whole(self))
            }
            2 => format!("list_contains([1, 3, 7], {})", whole(self)),
            3 => format!("(({}, {}) = ({}, 1))", whole(self), whole(self), whole(self)),
            4 if self.subqueries > 0 => self.row_in_subquery(items),
            _ => self.spoken_pattern(items, depth),
        }
    }

    fn spoken_pattern(&mut self, items: &[Item], depth: usize) -> String {
        let text = self.value(TypeKind::Text, items, depth);
        let not = self.choices.pick(&["", "NOT "]);
        match self.choices.below(6) {
            0 => format!("({text} {not}ILIKE {})", self.choices.pick(&["'A%'", "'%b'", "'_B%'", "'%É%'"])),
            1 => format!("({text} {not}LIKE {} ESCAPE '!')", self.choices.pick(&["'a!%%'", "'%!_%'", "'!%'", "'a%'"])),
            2 => format!("({text} {not}SIMILAR TO {})", self.choices.pick(&["'(a|b)%'", "'a.*'", "'[ab]+'", "''"])),
            3 => format!("contains({text}, {})", self.choices.pick(&["'a'", "''", "'日'", "'%'"])),
            4 => format!("suffix({text}, {})", self.choices.pick(&["'a'", "''", "'本'"])),
            _ => format!("prefix({text}, {})", self.choices.pick(&["'a'", "''", "'日'"])),
        }
    }

    /// Whether a pair of values is among the rows of a subquery.
    fn row_in_subquery(&mut self, items: &[Item]) -> String {
        self.subqueries -= 1;
        let inner = self.inner();
        let mut sides = [vec![], vec![]];
        for _ in 0..2 {
            let Some(item) = self.item(items, |item| item.exact && item.tame && !item.kind.nested()) else {
                return "true".to_owned();
            };
            let Some(other) = self.item(&inner.items, |other| other.kind == item.kind && other.tame) else {
                return "true".to_owned();
            };
            sides[0].push(self.name(&item));
            sides[1].push(self.name(&other));
        }
        // A row is not looked for in a subquery that hangs on the query around it, nor in DuckDB.
        let condition = self.correlation(&inner, items, 0);
        let not = self.choices.pick(&["", "NOT "]);
        format!("(({}) {not}IN (SELECT {} FROM {}{condition}))", sides[0].join(", "), sides[1].join(", "), inner.sql)
    }

    /// An aggregate function.
    pub(crate) fn spoken_function(&mut self, items: &[Item]) -> Output {
        let whole = Item::computed(TypeKind::Int);
        match self.choices.below(8) {
            0 => Output { sql: format!("coalesce(count_if({}), 0)", self.plain(TypeKind::Bool, items)), item: whole },
            1 => {
                let text = self.plain(TypeKind::Text, items);
                let order = self.choices.pick(&["", " DESC"]);
                let sql = format!("first({text} ORDER BY {text}{order} NULLS LAST)");
                Output { sql, item: Item::computed(TypeKind::Text) }
            }
            2 => {
                let value = self.plain(TypeKind::Int, items);
                Output { sql: format!("{}({value}, {value})", self.choices.pick(&["arg_max", "arg_min"])), item: whole }
            }
            3 => {
                let value = self.plain(TypeKind::Int, items);
                let order = self.choices.pick(&["", " DESC"]);
                let sql = format!("list({value} ORDER BY {value}{order} NULLS LAST)");
                Output { sql, item: Item::computed(TypeKind::List) }
            }
            4 | 5 if self.subqueries > 0 => {
                let subquery = self.scalar_subquery(TypeKind::Int, items);
                Output { sql: format!("{}({subquery})", self.choices.pick(&["sum", "max", "count"])), item: whole }
            }
            form => {
                let function = ["median(#)", "quantile_cont(#, 0.25)", "avg(DISTINCT #)"][form % 3];
                let argument = self.plain(TypeKind::Float, items);
                let item = Item { exact: false, ..Item::computed(TypeKind::Float) };
                Output { sql: function.replace('#', &argument), item }
            }
        }
    }

    /// A window over rows in an order, beside the columns that the order is by alone: rows that are equal there are equal.
    pub(crate) fn framed_window(&mut self, items: &[Item]) -> Vec<Output> {
        let flat = |item: &Item| item.exact && item.tame && !item.kind.nested() && item.kind != TypeKind::Binary;
        let Some(item) = self.item(items, flat) else { return self.windows(items) };
        let name = self.name(&item);
        let group = self.item(items, |other| flat(other) && other.sql != item.sql);
        let partition = group.as_ref().map(|group| format!("PARTITION BY {} ", self.name(group))).unwrap_or_default();
        let (function, kind) = match self.choices.below(5) {
            0 => (format!("lag({name})"), item.kind),
            1 => (format!("lead({name}, 2)"), item.kind),
            2 => ("count(*)".to_owned(), TypeKind::Int),
            3 => (format!("{}({name})", self.choices.pick(&["first_value", "last_value", "min", "max"])), item.kind),
            _ => ("row_number()".to_owned(), TypeKind::Int),
        };
        let frames = [
            "",
            " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
            " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING",
            " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
            " ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING",
        ];
        // A frame means nothing to lag and lead, and engines refuse it there or not.
        let ranked = function.starts_with("lag") || function.starts_with("lead") || function.starts_with("row");
        let frame = if ranked { "" } else { self.choices.pick(&frames) };
        let direction = self.choices.pick(&["", " DESC"]);
        let sql = format!("{function} OVER ({partition}ORDER BY {name}{direction} NULLS LAST{frame})");
        let mut outputs = vec![Output { sql: name, item: item.clone() }];
        outputs.extend(group.map(|group| Output { sql: self.name(&group), item: group }));
        outputs.push(Output { sql, item: Item { stored: false, key: false, ..Item { kind, ..item } } });
        outputs
    }

    /// A few rows that stand in the query, or numbers that follow from each other.
    pub(crate) fn made_up(&mut self) -> Relation {
        let alias = self.fresh("r");
        let item = |column: &str, kind| Item {
            sql: format!("{alias}.{column}"),
            samples: if kind == TypeKind::Int { vec!["1".to_owned(), "3".to_owned()] } else { vec!["'a'".to_owned()] },
            ..Item::computed(kind)
        };
        if self.choices.chance(35) {
            let last = self.choices.pick(&["0", "3", "6"]);
            let below = self.fresh("w");
            let sql = format!(
                "(WITH RECURSIVE {below}(n) AS (SELECT CAST(0 AS BIGINT) UNION ALL SELECT {below}.n + 1 FROM {below} \
                 WHERE {below}.n < {last}) SELECT {below}.n AS n FROM {below}) AS {alias}"
            );
            return Relation { sql, items: vec![item("n", TypeKind::Int)], rows: 7.0 };
        }
        let count = self.choices.below(4) + 1;
        let rows: Vec<String> = (0..count)
            .map(|_| {
                let number = self.choices.pick(&["1", "0", "3", "7", "NULL"]);
                format!("(CAST({number} AS BIGINT), {})", self.choices.pick(&["'a'", "''", "'ab'", "CAST(NULL AS VARCHAR)"]))
            })
            .collect();
        let sql = format!("(VALUES {}) AS {alias}(x, y)", rows.join(", "));
        Relation { sql, items: vec![item("x", TypeKind::Int), item("y", TypeKind::Text)], rows: count as f64 }
    }
}
