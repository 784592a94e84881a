//! Statements whose rows hang on an order within: DISTINCT ON, and the first of many groups.

use crate::random::scope::{Generator, Item};
use crate::random::values::TypeKind;

impl Generator<'_> {
    /// One row for each value of a column: the first one in a total order.
    pub(crate) fn distinct_on(&mut self) -> String {
        let from = self.from(2, 1);
        let filter = self.filter(&from.items).map(|condition| format!(" WHERE {condition}")).unwrap_or_default();
        let mut columns: Vec<String> = Vec::new();
        for _ in 0..3 {
            let start = self.choices.begin();
            let more = columns.is_empty() || self.choices.chance(70);
            let item = self.item(&from.items, |item| item.exact && !item.kind.nested());
            if let Some(item) = item.filter(|item| more && !columns.contains(&item.sql)) {
                columns.push(item.sql);
            }
            self.choices.end("column", start);
        }
        let Some(first) = columns.first() else { return format!("SELECT count(*) AS x0 FROM {}{filter}", from.sql) };
        let list: Vec<String> = columns.iter().enumerate().map(|(place, column)| format!("{column} AS x{place}")).collect();
        let order: Vec<String> = columns
            .iter()
            .map(|column| {
                let direction = self.choices.pick(&["", " DESC"]);
                format!("{column}{direction} NULLS {}", self.choices.pick(&["LAST", "FIRST"]))
            })
            .collect();
        format!("SELECT DISTINCT ON ({first}) {} FROM {}{filter} ORDER BY {}", list.join(", "), from.sql, order.join(", "))
    }

    /// The first few groups in an order of one value, and of them this value only: which of equal groups come is not said.
    pub(crate) fn top_groups(&mut self) -> String {
        let from = self.from(2, 1);
        let filter = self.filter(&from.items).map(|condition| format!(" WHERE {condition}")).unwrap_or_default();
        let floats = self.choices.chance(60);
        let value = self.one_flat(&from.items, floats);
        let group = self.one_flat(&from.items, false);
        let direction = self.choices.pick(&["", " DESC"]);
        let order = format!("ORDER BY x0{direction} NULLS {}", self.choices.pick(&["LAST", "FIRST"]));
        let limit = format!("LIMIT {}", self.choices.pick(&["1", "3", "10"]));
        let alias = self.fresh("r");
        match self.choices.below(4) {
            0 => format!("SELECT {value} AS x0 FROM {}{filter} GROUP BY {value} {order} {limit}", from.sql),
            1 => format!("SELECT DISTINCT {value} AS x0 FROM {}{filter} {order} {limit}", from.sql),
            form => {
                let function = if form == 2 { "max" } else { "min" };
                let groups =
                    format!("SELECT {group} AS x1, {function}({value}) AS x0 FROM {}{filter} GROUP BY {group}", from.sql);
                format!("SELECT {alias}.x0 FROM ({groups} {order} {limit}) AS {alias}")
            }
        }
    }

    fn one_flat(&mut self, items: &[Item], floats: bool) -> String {
        let flat = |item: &Item| item.exact && !item.kind.nested();
        let fit = |item: &Item| flat(item) && item.kind != TypeKind::Bool && (!floats || item.kind == TypeKind::Float);
        let chosen = self.item(items, fit).or_else(|| self.item(items, flat));
        chosen.map_or_else(|| "CAST(1 AS BIGINT)".to_owned(), |item| item.sql)
    }
}
