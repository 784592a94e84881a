//! Random expressions that cannot fail: values by kind, and predicates.
//!
//! Values have one type for each kind, so that set operations and CASE find equal types: BIGINT, DOUBLE, DECIMAL(18, 4),
//! VARCHAR, BOOLEAN, DATE, TIMESTAMP(6). `DIV` stands for the division of whole numbers, which DuckDB spells otherwise.

use crate::random::scope::{Generator, Item};
use crate::random::values::TypeKind;

/// Kinds that values can be computed of.
pub(crate) const COMPUTED: [TypeKind; 7] =
    [TypeKind::Int, TypeKind::Text, TypeKind::Float, TypeKind::Decimal, TypeKind::Bool, TypeKind::Date, TypeKind::Timestamp];

/// The one type of computed values of a kind.
pub(crate) fn type_name(kind: TypeKind) -> &'static str {
    match kind {
        TypeKind::Int => "BIGINT",
        TypeKind::Text => "VARCHAR",
        TypeKind::Float => "DOUBLE",
        TypeKind::Decimal => "DECIMAL(18, 4)",
        TypeKind::Bool => "BOOLEAN",
        TypeKind::Date => "DATE",
        TypeKind::Timestamp => "TIMESTAMP(6)",
        TypeKind::Binary => "BYTEA",
        TypeKind::Struct => "STRUCT(a BIGINT, b VARCHAR)",
        TypeKind::List => "BIGINT[]",
    }
}

impl Generator<'_> {
    /// A value of a kind.
    pub(crate) fn value(&mut self, kind: TypeKind, items: &[Item], depth: usize) -> String {
        let start = self.choices.begin();
        let form = if depth == 0 { self.choices.weighted(&[20, 80]) } else { self.choices.weighted(&[10, 40, 12, 50]) };
        let sql = match form {
            0 => self.constant(kind),
            1 => self.column(kind, items),
            2 => self.either(kind, items, depth - 1),
            _ => match kind {
                TypeKind::Int => self.integer(items, depth - 1),
                TypeKind::Text => self.text(items, depth - 1),
                TypeKind::Float => self.float(items, depth - 1),
                TypeKind::Decimal => self.decimal(items, depth - 1),
                TypeKind::Bool => self.predicate(items, depth.saturating_sub(1)),
                TypeKind::Date => self.date(items, depth - 1),
                TypeKind::Timestamp => self.timestamp(items, depth - 1),
                TypeKind::Binary | TypeKind::Struct | TypeKind::List => self.column(kind, items),
            },
        };
        self.choices.end("value", start);
        sql
    }

    fn constant(&mut self, kind: TypeKind) -> String {
        if self.choices.chance(10) {
            return format!("CAST(NULL AS {})", type_name(kind));
        }
        match kind {
            TypeKind::Int => format!("CAST({} AS BIGINT)", self.choices.pick(&["0", "1", "7", "100", "-3"])),
            TypeKind::Text => self.choices.pick(&["''", "'a'", "'ab'", "'日本'", "'%'", "' '"]).to_owned(),
            TypeKind::Float => self.choices.pick(&["0e0", "1e0", "0.25e0", "100.5e0", "(-2.5e0)"]).to_owned(),
            TypeKind::Decimal => {
                format!("CAST('{}' AS DECIMAL(18, 4))", self.choices.pick(&["0", "1", "0.25", "99.5", "-1.75"]))
            }
            TypeKind::Bool => self.choices.pick(&["true", "false"]).to_owned(),
            TypeKind::Date => self.choices.pick(&["DATE '1970-01-01'", "DATE '1984-02-29'", "DATE '1969-12-31'"]).to_owned(),
            TypeKind::Timestamp => {
                let at = self.choices.pick(&["1970-01-01 00:00:00", "1984-02-29 12:30:00.001", "1969-12-31 23:59:59"]);
                format!("CAST('{at}' AS TIMESTAMP(6))")
            }
            TypeKind::Binary => "CAST('a' AS BYTEA)".to_owned(),
            TypeKind::Struct | TypeKind::List => "NULL".to_owned(),
        }
    }

    /// A column that is safe to compute with, as its kind's one type.
    fn column(&mut self, kind: TypeKind, items: &[Item]) -> String {
        let Some(item) = self.item(items, |item| item.kind == kind && item.tame && item.exact) else {
            return self.constant(kind);
        };
        let name = self.name(&item);
        match kind {
            TypeKind::Text | TypeKind::Bool | TypeKind::Date | TypeKind::Binary | TypeKind::Struct | TypeKind::List => name,
            // Sums of sums would grow too large.
            TypeKind::Int if !item.stored => format!("CAST({name} % 9973 AS BIGINT)"),
            _ => format!("CAST({name} AS {})", type_name(kind)),
        }
    }

    fn either(&mut self, kind: TypeKind, items: &[Item], depth: usize) -> String {
        let (a, b) = (self.value(kind, items, depth), self.value(kind, items, depth));
        match self.choices.below(4) {
            0 => format!("coalesce({a}, {b})"),
            1 => format!("nullif({a}, {b})"),
            2 => format!("CASE WHEN {} THEN {a} ELSE {b} END", self.predicate(items, depth)),
            _ => {
                let what = self.value(TypeKind::Int, items, 0);
                format!("CASE {what} WHEN 0 THEN {a} WHEN 1 THEN {b} END")
            }
        }
    }

    fn integer(&mut self, items: &[Item], depth: usize) -> String {
        let form = self.choices.weighted(&[10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 14, 8, 24, 30]);
        match form {
            10 if self.subqueries > 0 => return self.scalar_subquery(TypeKind::Int, items),
            11 => return self.within(items),
            12 => return self.twin_integer(items, depth),
            13 => return self.spoken_integer(items, depth),
            _ => {}
        }
        let a = |generator: &mut Self| generator.value(TypeKind::Int, items, depth);
        match form {
            0 => format!("({} + {})", a(self), a(self)),
            1 => format!("({} - {})", a(self), a(self)),
            2 => format!("({} * {} % 9973)", a(self), a(self)),
            3 => format!("({} DIV {})", a(self), self.choices.pick(&["2", "7", "(-3)"])),
            4 => format!("({} % {})", a(self), self.choices.pick(&["2", "5", "10"])),
            5 => format!("abs({})", a(self)),
            6 => format!("CAST(length({}) AS BIGINT)", self.value(TypeKind::Text, items, depth)),
            7 => {
                let part = self.choices.pick(&["year", "month", "day", "doy", "quarter"]);
                format!("CAST(date_part('{part}', {}) AS BIGINT)", self.value(TypeKind::Date, items, depth))
            }
            8 => format!("CAST({} AS BIGINT)", self.value(TypeKind::Bool, items, depth)),
            _ => format!("CAST(floor({}) AS BIGINT)", self.value(TypeKind::Float, items, 0)),
        }
    }

    /// A number within a struct or a list.
    fn within(&mut self, items: &[Item]) -> String {
        match self.item(items, |item| item.kind.nested() && item.exact) {
            None => self.constant(TypeKind::Int),
            Some(item) if item.kind == TypeKind::Struct => format!("{}['a']", self.name(&item)),
            Some(item) => match self.choices.below(3) {
                0 => format!("{}[1]", self.name(&item)),
                1 => format!("{}[2]", self.name(&item)),
                _ => format!("CAST(coalesce(array_length({}), 0) AS BIGINT)", self.name(&item)),
            },
        }
    }

    fn text(&mut self, items: &[Item], depth: usize) -> String {
        if self.choices.chance(14) {
            return self.twin_text(items, depth);
        }
        if self.choices.chance(30) {
            return self.spoken_text(items, depth);
        }
        let a = self.value(TypeKind::Text, items, depth);
        match self.choices.below(10) {
            0 => format!("({a} || {})", self.value(TypeKind::Text, items, depth)),
            1 => format!("upper({a})"),
            2 => format!("lower({a})"),
            3 => format!("substr({a}, {})", self.choices.pick(&["1", "2", "3"])),
            4 => format!("substr({a}, 1, {})", self.choices.pick(&["0", "1", "2"])),
            5 => format!("replace({a}, 'a', {})", self.choices.pick(&["''", "'bb'", "'é'"])),
            6 => format!("concat({a}, {})", self.value(TypeKind::Text, items, depth)),
            7 => format!("left({a}, {})", self.choices.pick(&["1", "2"])),
            8 => format!("ltrim({a})"),
            _ => format!("CAST({} AS VARCHAR)", self.value(TypeKind::Int, items, depth)),
        }
    }

    fn float(&mut self, items: &[Item], depth: usize) -> String {
        if self.choices.chance(16) {
            return self.twin_float(items, depth);
        }
        if self.choices.chance(20) {
            return self.spoken_float(items, depth);
        }
        let a = self.value(TypeKind::Float, items, depth);
        match self.choices.below(7) {
            0 => format!("({a} + {})", self.value(TypeKind::Float, items, depth)),
            1 => format!("({a} - {})", self.value(TypeKind::Float, items, depth)),
            // Adding zero makes zero of a negative one, which DuckDB cannot tell from it.
            2 => format!("({a} * {} + 0e0)", self.choices.pick(&["2e0", "0.5e0", "(-1e0)"])),
            3 => format!("abs({a})"),
            4 => format!("(floor({a}) + 0e0)"),
            5 => format!("(ceil({a}) + 0e0)"),
            _ => format!("CAST({} AS DOUBLE)", self.value(TypeKind::Int, items, depth)),
        }
    }

    fn decimal(&mut self, items: &[Item], depth: usize) -> String {
        let a = self.value(TypeKind::Decimal, items, depth);
        match self.choices.below(6) {
            0 => format!("CAST({a} + {} AS DECIMAL(18, 4))", self.value(TypeKind::Decimal, items, depth)),
            1 => format!("CAST({a} - {} AS DECIMAL(18, 4))", self.value(TypeKind::Decimal, items, depth)),
            2 => format!("abs({a})"),
            3 => format!("CAST({a} * CAST(2 AS DECIMAL(2, 0)) AS DECIMAL(18, 4))"),
            4 => format!("CAST(round({a}, 1) AS DECIMAL(18, 4))"),
            _ => format!("CAST({} AS DECIMAL(18, 4))", self.value(TypeKind::Int, items, depth)),
        }
    }

    fn date(&mut self, items: &[Item], depth: usize) -> String {
        if self.choices.chance(30) {
            return self.spoken_date(items, depth);
        }
        let a = self.value(TypeKind::Date, items, depth);
        let sign = self.choices.pick(&["+", "-"]);
        match self.choices.below(4) {
            0 => format!("CAST({a} {sign} INTERVAL '{}' DAY AS DATE)", self.choices.pick(&["1", "31", "400"])),
            1 => format!("CAST({a} {sign} INTERVAL '{}' MONTH AS DATE)", self.choices.pick(&["1", "11", "25"])),
            2 => format!("CAST(date_trunc('{}', {a}) AS DATE)", self.choices.pick(&["month", "year", "week"])),
            _ => format!("CAST({} AS DATE)", self.value(TypeKind::Timestamp, items, depth)),
        }
    }

    fn timestamp(&mut self, items: &[Item], depth: usize) -> String {
        if self.choices.chance(25) {
            return self.spoken_timestamp(items, depth);
        }
        let a = self.value(TypeKind::Timestamp, items, depth);
        match self.choices.below(3) {
            0 => {
                format!("CAST({a} + INTERVAL '{}' AS TIMESTAMP(6))", self.choices.pick(&["1 second", "90 minutes", "40 days"]))
            }
            1 => format!("CAST(date_trunc('{}', {a}) AS TIMESTAMP(6))", self.choices.pick(&["hour", "day", "month"])),
            _ => format!("CAST({} AS TIMESTAMP(6))", self.value(TypeKind::Date, items, depth)),
        }
    }

    /// Any column as it is, or a choice between two of the same type.
    pub(crate) fn raw(&mut self, items: &[Item]) -> Option<(String, Item)> {
        let item = self.item(items, |_| true)?;
        Some((self.name(&item), item))
    }

    /// A condition.
    pub(crate) fn predicate(&mut self, items: &[Item], depth: usize) -> String {
        let start = self.choices.begin();
        let deeper = 20 * u32::from(depth > 0);
        let below = depth.saturating_sub(1);
        let sql = match self.choices.weighted(&[1, 40, 8, 8, 6, 6, deeper, deeper * 7 / 10, 14, deeper * 6 / 10, 12]) {
            0 => self.choices.pick(&["true", "false", "CAST(NULL AS BOOLEAN)"]).to_owned(),
            1 => self.comparison(items),
            2 => self.between_or_in(items),
            3 => self.is_null(items),
            4 => self.pattern(items),
            5 => self.compared_columns(items),
            6 => {
                let word = self.choices.pick(&["AND", "OR"]);
                format!("({} {word} {})", self.predicate(items, below), self.predicate(items, below))
            }
            7 => match self.choices.below(6) {
                0 => format!("(NOT {})", self.predicate(items, below)),
                1 => format!("({} IS {}TRUE)", self.predicate(items, below), self.choices.pick(&["", "NOT "])),
                2 => format!("({} IS {}NULL)", self.predicate(items, depth), self.choices.pick(&["", "NOT "])),
                3 => format!("CASE WHEN {} THEN {} END", self.predicate(items, depth), self.predicate(items, below)),
                _ => self.compared_values(items, below),
            },
            9 => self.twin_predicate(items, below),
            10 => self.spoken_predicate(items, below),
            _ if self.subqueries > 0 => self.subquery_predicate(items),
            _ => self.comparison(items),
        };
        self.choices.end("predicate", start);
        sql
    }

    fn operator(&mut self) -> &'static str {
        self.choices.pick(&["=", "<", ">", "<=", ">=", "<>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
    }

    /// A column beside a literal: what pruning looks at.
    fn comparison(&mut self, items: &[Item]) -> String {
        let Some(item) = self.item(items, |item| item.exact && !item.samples.is_empty()) else { return "true".to_owned() };
        let (name, operator) = (self.name(&item), self.operator());
        let sample = self.sample(&item);
        match self.choices.chance(10) {
            true => format!("({sample} {operator} {name})"),
            false => format!("({name} {operator} {sample})"),
        }
    }

    fn sample(&mut self, item: &Item) -> String {
        item.samples[self.choices.below(item.samples.len())].clone()
    }

    fn between_or_in(&mut self, items: &[Item]) -> String {
        let Some(item) = self.item(items, |item| item.exact && !item.samples.is_empty()) else { return "true".to_owned() };
        let name = self.name(&item);
        let not = self.choices.pick(&["", "NOT "]);
        if self.choices.chance(50) {
            return format!("({name} {not}BETWEEN {} AND {})", self.sample(&item), self.sample(&item));
        }
        let count = self.choices.below(5) + 1;
        let list: Vec<String> = (0..count).map(|_| self.sample(&item)).collect();
        format!("({name} {not}IN ({}))", list.join(", "))
    }

    fn is_null(&mut self, items: &[Item]) -> String {
        match self.raw(items) {
            Some((name, _)) => format!("({name} IS {}NULL)", self.choices.pick(&["", "NOT "])),
            None => "true".to_owned(),
        }
    }

    fn pattern(&mut self, items: &[Item]) -> String {
        let Some(item) = self.item(items, |item| item.kind == TypeKind::Text) else { return self.comparison(items) };
        let name = self.name(&item);
        let pattern = self.choices.pick(&["a%", "%b", "%a%", "_", "a_", "%é%", "%", "", "needle", "%日%本%", "long %"]);
        match self.choices.below(4) {
            0 => format!("({name} LIKE '{pattern}')"),
            1 => format!("({name} NOT LIKE '{pattern}')"),
            2 => format!("starts_with({name}, {})", self.choices.pick(&["'a'", "''", "'日'"])),
            _ => format!("regexp_like({name}, '{}')", self.choices.pick(&["^a", "b$", "[ab]{2}", "é|日"])),
        }
    }

    /// Two columns of one kind.
    fn compared_columns(&mut self, items: &[Item]) -> String {
        let Some(item) = self.item(items, |item| item.exact) else { return "true".to_owned() };
        let Some(other) = self.item(items, |other| other.exact && other.kind == item.kind && other.tame == item.tame) else {
            return "true".to_owned();
        };
        format!("({} {} {})", self.name(&item), self.operator(), self.name(&other))
    }

    fn compared_values(&mut self, items: &[Item], depth: usize) -> String {
        let kind = COMPUTED[self.choices.below(COMPUTED.len())];
        let (a, operator) = (self.value(kind, items, depth), self.operator());
        format!("({a} {operator} {})", self.value(kind, items, depth))
    }
}
