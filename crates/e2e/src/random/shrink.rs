//! Makes a query and its data small while the same two still differ.

use crate::random::arena::{Arena, Difference, Verdict};
use crate::random::choices::Choices;
use crate::random::opinion::Opinion;
use crate::random::queries::{Query, query};
use crate::random::tables::{Database, Table};

/// Queries tried at most.
const QUERIES_MAX: usize = 600;
/// Databases loaded at most.
const DATABASES_MAX: usize = 60;

/// A failure.
pub(crate) struct Failure {
    pub(crate) database: Database,
    pub(crate) query: Query,
    pub(crate) difference: Difference,
}

impl Failure {
    /// Shrinks the query over the same data, then the data under the same query.
    pub(crate) async fn shrink(mut self, arena: &Arena, seed: u64, opinion: &mut Option<Opinion>) -> Failure {
        self.shrink_query(arena, opinion).await;
        self.shrink_data(seed, opinion).await;
        self
    }

    async fn shrink_query(&mut self, arena: &Arena, opinion: &mut Option<Opinion>) {
        let mut tried = 0;
        let mut again = true;
        while again {
            again = false;
            for taken in self.query.trace.simpler() {
                let smaller = query(Choices::given(taken), &self.database);
                if !smaller.trace.is_below(&self.query.trace) || smaller.sql == self.query.sql {
                    continue;
                }
                tried += 1;
                if tried > QUERIES_MAX {
                    return;
                }
                if let Some(difference) = self.same_difference(arena, &smaller, opinion).await {
                    (self.query, self.difference, again) = (smaller, difference, true);
                    break;
                }
            }
        }
    }

    async fn same_difference(&self, arena: &Arena, query: &Query, opinion: &mut Option<Opinion>) -> Option<Difference> {
        match arena.judge(query, opinion.as_mut(), Some(&self.difference.voice)).await {
            Verdict::Differ(told) if told.voice == self.difference.voice && told.refused == self.difference.refused => {
                Some(told)
            }
            _ => None,
        }
    }

    async fn shrink_data(&mut self, seed: u64, opinion: &mut Option<Opinion>) {
        let mut loaded = 0;
        let mut again = true;
        while again && loaded < DATABASES_MAX {
            again = false;
            for database in simpler(&self.database, &self.query.sql) {
                loaded += 1;
                if loaded > DATABASES_MAX {
                    break;
                }
                let Ok(arena) = Arena::load(&database, seed, opinion.as_mut()).await else { continue };
                let told = self.same_difference(&arena, &self.query, opinion).await;
                arena.shutdown().await;
                if let Some(difference) = told {
                    (self.database, self.difference, again) = (database, difference, true);
                    break;
                }
            }
        }
    }
}

/// Databases with less in them: without tables and columns that the query does not name, then with fewer rows.
fn simpler(database: &Database, sql: &str) -> Vec<Database> {
    let mut all = Vec::new();
    for (place, table) in database.tables.iter().enumerate() {
        if !sql.contains(&format!("{} AS", table.name)) {
            let mut tables = database.tables.clone();
            tables.remove(place);
            all.push(Database { tables });
            continue;
        }
        let mut fewer = fewer_rows(table);
        fewer.extend(fewer_columns(table, sql));
        all.extend(fewer.into_iter().map(|smaller| {
            let mut tables = database.tables.clone();
            tables[place] = smaller;
            Database { tables }
        }));
    }
    all
}

fn fewer_rows(table: &Table) -> Vec<Table> {
    let rows = table.rows.num_rows() as u64;
    let parts = if rows > 12 { 2 } else { rows };
    let kept = |part: u64| (0..rows).filter(move |row| row * parts / rows.max(1) != part).collect::<Vec<u64>>();
    (0..parts).map(|part| table.with_rows(&kept(part))).collect()
}

fn fewer_columns(table: &Table, sql: &str) -> Vec<Table> {
    let mut layout: Vec<String> = format!("{:?}", table.layout).split('"').map(str::to_owned).collect();
    layout.push("id".to_owned());
    let named = |name: &str| sql.contains(&format!(".{name}")) || layout.iter().any(|word| word == name);
    table.columns.iter().filter(|column| !named(&column.name)).map(|column| table.without(&column.name)).collect()
}
