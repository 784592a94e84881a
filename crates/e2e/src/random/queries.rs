//! Whole queries: what is selected, grouped, ordered and put together.

use crate::random::choices::{Choices, Trace};
use crate::random::expressions::COMPUTED;
use crate::random::scope::{Generator, Item, Relation};
use crate::random::style::{Filter, Style, WISHES, styles};
use crate::random::tables::Database;
use crate::random::values::TypeKind;

/// A query, and the ways that it is asked in, one after another.
#[derive(Clone)]
pub(crate) struct Query {
    pub(crate) asks: Vec<Ask>,
    /// How it was made.
    pub(crate) trace: Trace,
    /// Its number in the script: who is asked hangs on it.
    pub(crate) turn: usize,
}

/// A statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ask {
    /// With `DIV` for the division of whole numbers.
    pub(crate) sql: String,
    /// The order of its rows is total.
    pub(crate) ordered: bool,
    /// What it is to the query: "plain", "twin", or one of the wishes.
    pub(crate) relation: &'static str,
    /// The ask before it whose answer it must give.
    pub(crate) same_as: Option<usize>,
}

/// A query without ORDER BY, as part of others.
pub(crate) struct Body {
    pub(crate) sql: String,
    /// Its columns, by their bare names.
    pub(crate) items: Vec<Item>,
    pub(crate) rows: f64,
}

/// A column of a SELECT.
pub(crate) struct Output {
    pub(crate) sql: String,
    pub(crate) item: Item,
}

/// What a SELECT gives, and what stands around that.
struct Selected {
    distinct: bool,
    outputs: Vec<Output>,
    /// What stands after WHERE.
    tail: String,
    /// Each row of its answer is made of one row of FROM.
    by_row: bool,
}

/// A query made by these decisions.
pub(crate) fn query(choices: Choices, database: &Database, turn: usize) -> Query {
    let (plain, wish, trace) = written(choices, database, Style::default());
    let again = |style| written(Choices::given(trace.taken.clone()), database, style).0;
    let ask = |(sql, ordered): (String, bool), relation, same_as| Ask { sql, ordered, relation, same_as };
    let mut asks = vec![ask(plain, "plain", None)];
    let twin = ask(again(Style { second: true, ..Style::default() }), "twin", None);
    if twin.sql != asks[0].sql {
        asks.push(twin);
        return Query { asks, trace, turn };
    }
    for (style, same_as) in styles(wish) {
        let other = ask(again(style), wish, same_as);
        if wish != "again" && other.sql == asks[0].sql {
            // Nothing of it hangs on the style.
            asks.truncate(1);
            break;
        }
        asks.push(other);
    }
    Query { asks, trace, turn }
}

/// The statement and whether it is ordered, how else it is to be asked, and the decisions.
fn written(choices: Choices, database: &Database, style: Style) -> ((String, bool), &'static str, Trace) {
    let mut generator = Generator::new(choices, database, style);
    let wish = WISHES[generator.choices.weighted(&[40, 8, 8, 8, 14, 8, 14])];
    let statement = generator.statement();
    (statement, wish, generator.choices.into_trace())
}

impl Generator<'_> {
    fn statement(&mut self) -> (String, bool) {
        let mut with = Vec::new();
        for _ in 0..2 {
            let start = self.choices.begin();
            let common = self.choices.chance(10);
            if common {
                let body = self.body(None, 1);
                let name = self.fresh("w");
                let sql = if self.style.inlined { format!("({})", body.sql) } else { name.clone() };
                with.push(format!("{name} AS ({})", body.sql));
                self.commons.push(Relation { sql, items: body.items, rows: body.rows });
            }
            self.choices.end("common", start);
        }
        let (sql, ordered) = match self.choices.weighted(&[88, 5, 7]) {
            1 => (self.distinct_on(), true),
            2 => (self.top_groups(), false),
            _ => {
                self.outermost = true;
                let body = self.body(None, 2);
                let order = self.order(&body.items);
                (format!("{}{order}", body.sql), !order.is_empty())
            }
        };
        let with = if with.is_empty() || self.style.inlined { String::new() } else { format!("WITH {} ", with.join(", ")) };
        (format!("{with}{sql}"), ordered)
    }

    /// ORDER BY all columns, so that equal rows are alike, and often LIMIT; or nothing.
    fn order(&mut self, items: &[Item]) -> String {
        if !items.iter().all(|item| item.exact && !item.kind.nested()) || !self.choices.chance(35) {
            return String::new();
        }
        if self.choices.chance(8) {
            return " ORDER BY ALL NULLS LAST".to_owned();
        }
        let first = self.choices.below(items.len());
        let places = (0..items.len()).map(|place| (first + place) % items.len() + 1);
        let places: Vec<String> = places
            .map(|place| {
                let direction = self.choices.pick(&["", " DESC"]);
                format!("{place}{direction} NULLS {}", self.choices.pick(&["LAST", "FIRST"]))
            })
            .collect();
        let limit = match self.choices.below(4) {
            0 => String::new(),
            1 => format!(" LIMIT {} OFFSET {}", self.choices.pick(&["3", "10", "100"]), self.choices.pick(&["1", "5", "50"])),
            _ => format!(" LIMIT {}", self.choices.pick(&["1", "5", "20", "0"])),
        };
        format!(" ORDER BY {}{limit}", places.join(", "))
    }

    /// A SELECT, or several put together. With `kinds`: columns of computed values of these kinds.
    pub(crate) fn body(&mut self, kinds: Option<&[TypeKind]>, depth: usize) -> Body {
        let start = self.choices.begin();
        let body = match kinds.is_none() && depth > 0 && self.choices.chance(14) {
            true => self.set_operation(depth - 1),
            false => self.select(kinds, depth),
        };
        self.choices.end("body", start);
        body
    }

    fn set_operation(&mut self, depth: usize) -> Body {
        self.outermost = false;
        let count = self.choices.below(3) + 1;
        let kinds: Vec<TypeKind> = (0..count).map(|_| COMPUTED[self.choices.below(COMPUTED.len())]).collect();
        let first = self.body(Some(&kinds), depth);
        let second = self.body(Some(&kinds), depth);
        const WORDS: [&str; 6] = ["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL"];
        let word = WORDS[self.choices.weighted(&[25, 25, 25, 25, 2, 2])];
        let alias = [self.fresh("r"), self.fresh("r")];
        // In parentheses and under a name: engines differ in what an ORDER BY within may do.
        let sql =
            format!("SELECT * FROM ({}) AS {} {word} SELECT * FROM ({}) AS {}", first.sql, alias[0], second.sql, alias[1]);
        Body { sql, items: first.items, rows: first.rows + second.rows }
    }

    fn select(&mut self, kinds: Option<&[TypeKind]>, depth: usize) -> Body {
        let outermost = std::mem::take(&mut self.outermost);
        let from = self.from([2, 3, 5][depth.min(2)], depth);
        let filter = self.filter(&from.items);
        let form = match kinds {
            Some(_) => 0,
            None => self.choices.weighted(&[45, 10, 40, 10]),
        };
        let selected = match form {
            1 => Selected { distinct: true, outputs: self.columns(&from.items, kinds), tail: String::new(), by_row: true },
            2 => {
                let (outputs, tail) = self.aggregate(&from.items, outermost);
                Selected { distinct: false, outputs, tail, by_row: false }
            }
            3 => self.windowed(&from.items),
            _ => Selected { distinct: false, outputs: self.columns(&from.items, kinds), tail: String::new(), by_row: true },
        };
        let mut items = Vec::new();
        let mut list = Vec::new();
        for output in &selected.outputs {
            let name = self.output_name(&items);
            list.push(format!("{} AS {name}", output.sql));
            items.push(Item { sql: name, ..output.item.clone() });
        }
        let head = format!("SELECT {}{} FROM {}", if selected.distinct { "DISTINCT " } else { "" }, list.join(", "), from.sql);
        let style = if outermost { self.style.filter } else { Filter::Kept };
        let sql = filtered(&head, filter.as_deref(), &selected, style);
        Body { sql, items, rows: from.rows }
    }

    /// Window functions, and which of the rows are wanted by another.
    fn windowed(&mut self, items: &[Item]) -> Selected {
        if self.choices.chance(40) {
            return Selected { distinct: false, outputs: self.framed_window(items), tail: String::new(), by_row: false };
        }
        let outputs = self.windows(items);
        let ranked = self.item(items, |item| item.exact && !item.kind.nested() && item.kind != TypeKind::Binary);
        let tail = match ranked {
            Some(item) if self.choices.chance(25) => {
                let order = format!("{}{} NULLS LAST", self.name(&item), self.choices.pick(&["", " DESC"]));
                format!(" QUALIFY {}() OVER (ORDER BY {order}) <= 3", self.choices.pick(&["rank", "dense_rank"]))
            }
            _ => String::new(),
        };
        Selected { distinct: false, outputs, tail, by_row: false }
    }

    fn output_name(&mut self, taken: &[Item]) -> String {
        // Names that tables have, too; that plans make up; and that look like expressions.
        const NAMES: [&str; 14] = [
            "",
            "k",
            "id",
            "a",
            "b",
            "c",
            "d",
            "value_0",
            "part_0",
            "distinct_1",
            "merged_0",
            "\"count(*)\"",
            "\"a + b\"",
            "\"a - b\"",
        ];
        let mut name = self.choices.pick(&NAMES);
        if !self.database.without.makes("names") && name.len() > 2 {
            name = "";
        }
        let known = taken.iter().any(|item| item.sql.trim_matches('"') == name.trim_matches('"'));
        match self.style.renamed {
            true => format!("z{}", taken.len()),
            false if name.is_empty() || known => format!("x{}", taken.len()),
            false => name.to_owned(),
        }
    }

    /// A condition, or none.
    pub(crate) fn filter(&mut self, items: &[Item]) -> Option<String> {
        let mut conditions = Vec::new();
        for _ in 0..3 {
            let start = self.choices.begin();
            if self.choices.chance(40) {
                conditions.push(self.predicate(items, 2));
            }
            self.choices.end("condition", start);
        }
        (!conditions.is_empty()).then(|| conditions.join(" AND "))
    }

    fn columns(&mut self, items: &[Item], kinds: Option<&[TypeKind]>) -> Vec<Output> {
        if let Some(kinds) = kinds {
            return kinds.iter().map(|kind| self.computed(*kind, items)).collect();
        }
        let mut outputs = vec![self.any_column(items)];
        for _ in 0..4 {
            let start = self.choices.begin();
            if self.choices.chance(50) {
                outputs.push(self.any_column(items));
            }
            self.choices.end("column", start);
        }
        outputs
    }

    fn any_column(&mut self, items: &[Item]) -> Output {
        if self.choices.chance(35) {
            let kind = COMPUTED[self.choices.below(COMPUTED.len())];
            return self.computed(kind, items);
        }
        match self.raw(items) {
            Some((sql, item)) => Output { sql, item },
            None => self.computed(TypeKind::Int, items),
        }
    }

    pub(crate) fn computed(&mut self, kind: TypeKind, items: &[Item]) -> Output {
        Output { sql: self.value(kind, items, 2), item: Item::computed(kind) }
    }
}

/// A SELECT with its WHERE in a style.
fn filtered(head: &str, filter: Option<&str>, selected: &Selected, style: Filter) -> String {
    let Some(filter) = filter else { return format!("{head}{}", selected.tail) };
    let under = |condition: &str| format!("{head} WHERE {condition}{}", selected.tail);
    match style {
        Filter::Kept => under(filter),
        Filter::Dropped => format!("{head}{}", selected.tail),
        Filter::Split if selected.by_row => {
            let all = [under(filter), under(&format!("NOT ({filter})")), under(&format!("({filter}) IS NULL"))];
            all.join(if selected.distinct { " UNION " } else { " UNION ALL " })
        }
        Filter::Split | Filter::Exhausted => under(&format!("(({filter}) OR NOT ({filter}) OR ({filter}) IS NULL)")),
    }
}

impl Item {
    /// A computed value of a kind.
    pub(crate) fn computed(kind: TypeKind) -> Item {
        Item { sql: String::new(), kind, tame: true, exact: true, stored: false, key: false, distinct: 10.0, samples: vec![] }
    }
}
