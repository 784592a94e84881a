//! Aggregates and window functions.

use crate::random::queries::Output;
use crate::random::scope::{Generator, Item};
use crate::random::values::TypeKind;

impl Generator<'_> {
    /// Columns of a grouped SELECT, and what stands after WHERE.
    pub(crate) fn aggregate(&mut self, items: &[Item], outermost: bool) -> (Vec<Output>, String) {
        let mut outputs = Vec::new();
        for _ in 0..3 {
            let start = self.choices.begin();
            if self.choices.chance(45) {
                let group = self.group(items);
                // DataFusion has one name for a column and for its cast, and wants names to differ.
                let mut names = outputs.iter().map(|known: &Output| column_of(&known.sql));
                if names.all(|known| known != column_of(&group.sql)) {
                    outputs.push(group);
                }
            }
            self.choices.end("group", start);
        }
        if outermost && self.style.coarser && outputs.len() > 1 {
            outputs.pop();
        }
        let groups: Vec<String> = outputs.iter().map(|output| output.sql.clone()).collect();
        outputs.push(self.function(items));
        for _ in 0..3 {
            let start = self.choices.begin();
            if self.choices.chance(45) {
                outputs.push(self.function(items));
            }
            self.choices.end("function", start);
        }
        let having = match self.choices.chance(20) {
            true => self.having(items),
            false => String::new(),
        };
        if groups.is_empty() {
            return (outputs, having);
        }
        let list = groups.join(", ");
        let reads_columns = outputs[..groups.len()].iter().any(|output| output.item.stored);
        let grouping = match self.choices.weighted(&[75, 6, 4, 5, 10]) {
            // Of constants alone it is no group in DuckDB.
            4 if reads_columns => "ALL".to_owned(),
            1 => format!("ROLLUP({list})"),
            2 => format!("CUBE({list})"),
            3 => format!("GROUPING SETS (({list}), ({}))", groups[0]),
            _ => list,
        };
        (outputs, format!(" GROUP BY {grouping}{having}"))
    }

    fn group(&mut self, items: &[Item]) -> Output {
        if self.choices.chance(25) {
            let kind = [TypeKind::Int, TypeKind::Text, TypeKind::Bool, TypeKind::Date, TypeKind::Float][self.choices.below(5)];
            // A group of a literal number would be a position.
            return self.without_subqueries(|generator| generator.computed(kind, items));
        }
        match self.item(items, |item| item.exact) {
            Some(item) => Output { sql: self.name(&item), item },
            None => self.computed(TypeKind::Int, items),
        }
    }

    fn having(&mut self, items: &[Item]) -> String {
        match self.choices.below(3) {
            0 => format!(" HAVING count(*) {} {}", self.choices.pick(&[">", "<=", "="]), self.choices.pick(&["1", "2", "10"])),
            1 => format!(" HAVING sum({}) > 0", self.plain(TypeKind::Int, items)),
            _ => format!(" HAVING max({}) >= 'a'", self.plain(TypeKind::Text, items)),
        }
    }

    /// A value without subqueries: an aggregate's argument.
    pub(crate) fn plain(&mut self, kind: TypeKind, items: &[Item]) -> String {
        self.without_subqueries(|generator| generator.value(kind, items, 1))
    }

    /// An aggregate function.
    fn function(&mut self, items: &[Item]) -> Output {
        let start = self.choices.begin();
        let mut output = match self.choices.weighted(&[15, 10, 25, 25, 14, 10, 5, 6, 6, 20, 20]) {
            0 => Output { sql: "count(*)".to_owned(), item: Item::computed(TypeKind::Int) },
            1 => self.over_any("count(#)", items),
            2 => self.total(items),
            3 => self.extreme(items),
            4 => self.over_any("count(DISTINCT #)", items),
            5 => self.mean(items),
            6 => {
                let function = self.choices.pick(&["bool_and", "bool_or"]);
                Output {
                    sql: format!("{function}({})", self.plain(TypeKind::Bool, items)),
                    item: Item::computed(TypeKind::Bool),
                }
            }
            7 => {
                let function = self.choices.pick(&["bit_and", "bit_or", "bit_xor"]);
                Output { sql: format!("{function}({})", self.plain(TypeKind::Int, items)), item: Item::computed(TypeKind::Int) }
            }
            9 => self.twin_function(items),
            10 => self.spoken_function(items),
            _ => {
                let text = self.plain(TypeKind::Text, items);
                Output { sql: format!("string_agg({text}, ',' ORDER BY {text})"), item: Item::computed(TypeKind::Text) }
            }
        };
        let is_call = !output.sql.starts_with("CAST") && !output.sql.starts_with("coalesce");
        let filtered = self.choices.chance(12) && is_call;
        if filtered {
            let filter = self.without_subqueries(|generator| generator.predicate(items, 1));
            output.sql = format!("{} FILTER (WHERE {filter})", output.sql);
        }
        self.choices.end("function", start);
        output
    }

    fn over_any(&mut self, form: &str, items: &[Item]) -> Output {
        let argument = match self.item(items, |item| item.exact) {
            Some(item) => self.name(&item),
            None => self.plain(TypeKind::Int, items),
        };
        Output { sql: form.replace('#', &argument), item: Item::computed(TypeKind::Int) }
    }

    fn total(&mut self, items: &[Item]) -> Output {
        let kind = [TypeKind::Int, TypeKind::Float, TypeKind::Decimal][self.choices.below(3)];
        let distinct = self.choices.pick(&["", "", "", "DISTINCT "]);
        // Columns as they are, too: how sums widen hangs on the column's type.
        let stored = self.item(items, |item| item.kind == kind && item.tame && item.exact && item.stored);
        let argument = match stored {
            Some(item) if self.choices.chance(60) => self.name(&item),
            _ => self.plain(kind, items),
        };
        Output { sql: format!("sum({distinct}{argument})"), item: Item::computed(kind) }
    }

    fn extreme(&mut self, items: &[Item]) -> Output {
        let function = self.choices.pick(&["min", "max"]);
        match self.item(items, |item| item.exact && item.kind != TypeKind::Bool) {
            Some(item) => Output { sql: format!("{function}({})", self.name(&item)), item },
            None => Output {
                sql: format!("{function}({})", self.plain(TypeKind::Text, items)),
                item: Item::computed(TypeKind::Text),
            },
        }
    }

    fn mean(&mut self, items: &[Item]) -> Output {
        let kind = [TypeKind::Int, TypeKind::Float, TypeKind::Decimal][self.choices.below(3)];
        let functions = ["avg", "var_pop", "var_samp", "stddev_pop", "stddev_samp"];
        let mut function = self.choices.pick(&functions);
        if kind == TypeKind::Decimal {
            function = "avg";
        }
        let stored = self.item(items, |item| item.kind == kind && item.tame && item.exact && item.stored);
        let argument = match stored {
            Some(item) if self.choices.chance(60) => self.name(&item),
            _ => self.plain(kind, items),
        };
        Output { sql: format!("{function}({argument})"), item: Item { exact: false, ..Item::computed(TypeKind::Float) } }
    }

    /// Columns, and functions over windows that do not hang on the order of equal rows.
    pub(crate) fn windows(&mut self, items: &[Item]) -> Vec<Output> {
        let mut outputs: Vec<Output> = self.raw(items).map(|(sql, item)| Output { sql, item }).into_iter().collect();
        let count = self.choices.below(2) + 1;
        for _ in 0..count {
            let partition = match self.item(items, |item| item.exact) {
                Some(item) if self.choices.chance(60) => format!("PARTITION BY {} ", self.name(&item)),
                _ => String::new(),
            };
            // DataFusion has no ranges of binary values.
            let order = match self.item(items, |item| item.exact && item.kind != TypeKind::Binary && !item.kind.nested()) {
                Some(item) => format!("ORDER BY {}{} NULLS LAST", self.name(&item), self.choices.pick(&["", " DESC"])),
                None => String::new(),
            };
            let function = match self.choices.below(5) {
                0 => "rank()".to_owned(),
                1 => "dense_rank()".to_owned(),
                2 => "count(*)".to_owned(),
                3 => format!("sum({})", self.plain(TypeKind::Int, items)),
                _ => format!("max({})", self.plain(TypeKind::Text, items)),
            };
            let kind = if function.starts_with("max") { TypeKind::Text } else { TypeKind::Int };
            outputs.push(Output { sql: format!("{function} OVER ({partition}{order})"), item: Item::computed(kind) });
        }
        outputs
    }
}

/// The text without casts around it.
fn column_of(sql: &str) -> &str {
    match sql.strip_prefix("CAST(").and_then(|inner| inner.rsplit_once(" AS ")) {
        Some((inner, _)) => column_of(inner),
        None => sql,
    }
}
