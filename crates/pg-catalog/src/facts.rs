//! [`Facts`]: what the catalogue's rows are made of.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;

use crate::DATABASE;

/// The first number that PostgreSQL gives to what users make.
const FIRST_OID: u64 = 16_384;
/// Numbers that tables may have.
const OIDS: u64 = (1 << 31) - FIRST_OID;

/// A dataset as the catalogue lists it.
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its domain: the schema.
    pub domain: String,
    /// Its name: the table.
    pub name: String,
    /// Its columns.
    pub schema: SchemaRef,
    /// How many rows it has.
    pub rows: u64,
    /// Its bytes as they are stored, of one copy.
    pub bytes: u64,
    /// The query of a view; none: it is a table.
    pub view: Option<String>,
}

/// A function that somebody has made, as the catalogue lists it.
#[derive(Clone, Debug)]
pub struct ListedFunction {
    /// Its domain: the schema.
    pub domain: String,
    /// Its name.
    pub name: String,
    /// Its arguments: their names, where they have any, and the numbers of their types.
    pub arguments: Vec<(Option<String>, u32)>,
    /// The number of the type of its results.
    pub returns: u32,
    /// Whether it has one result for the rows of a group.
    pub is_aggregate: bool,
    /// Whether it has any number of results for each row.
    pub returns_set: bool,
    /// When it gives the same again, as `provolatile` has it: `i` always, `s` within a statement, `v` never.
    pub volatility: char,
    /// Whether it is called where an argument is NULL.
    pub called_on_null: bool,
    /// Its name in its module.
    pub export: String,
    /// What its module is known by.
    pub module: String,
}

/// What is known of a column's values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColumnStatistics {
    /// The part of the rows that have none; none: it is not known.
    pub nulls: Option<f64>,
    /// About how many different ones there are; 0: it is not known.
    pub distinct: u64,
}

/// A right to a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// See its tables, and ask them.
    Read,
    /// Change them.
    Write,
}

/// Where facts come from.
pub trait Source: Send + Sync {
    /// The names of domains, and the datasets.
    fn list(&self) -> (Vec<String>, Vec<Listed>);

    /// The functions of these domains.
    fn functions(&self) -> Vec<ListedFunction>;

    /// Whether who asks has a right to a domain; none: to all of them.
    fn may(&self, privilege: Privilege, domain: Option<&str>) -> bool;

    /// What is known of the columns of a table, in their order; of some nothing.
    fn statistics(&self, domain: &str, name: &str) -> Vec<ColumnStatistics>;
}

/// The domains that bare names are looked up in, one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchPath {
    /// Those that there are. Empty: the session's own domain alone.
    pub domains: Vec<String>,
    /// The names that the first one does not have, and the first of the others that does.
    pub elsewhere: BTreeMap<String, String>,
}

/// A statement that a connection has prepared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreparedFacts {
    /// Its name.
    pub name: String,
    /// Its text.
    pub sql: String,
    /// The numbers of the types of its parameters.
    pub types: Vec<u32>,
    /// Whether it was prepared by PREPARE, and not by a message.
    pub by_sql: bool,
}

/// A cursor of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CursorFacts {
    /// Its name.
    pub name: String,
    /// Its query.
    pub sql: String,
    /// Whether it outlives its transaction.
    pub is_held: bool,
    /// Whether its values come in binary.
    pub is_binary: bool,
}

/// What the catalogue asks of a connection. A function that gives the values of settings is one that tells nothing else.
pub trait ConnectionFacts: Send + Sync {
    /// The value of a setting, as SHOW gives it; none: there is no such setting.
    fn show(&self, name: &str) -> Option<String>;

    /// Sets a setting when the statement that asks for it has ended: its value then, or what is wrong with it.
    fn set(&self, name: &str, _value: &str, _local: bool) -> Result<String, String> {
        Err(format!("{name} cannot be set by a function here"))
    }

    /// Ends what runs over the connection of a number, or that connection with it. Whether there is one, or why it may not be ended.
    fn end(&self, _process: i64, _with_connection: bool) -> Result<bool, String> {
        Ok(false)
    }

    /// The database, as the client has named it.
    fn database(&self) -> String {
        DATABASE.to_owned()
    }

    /// The domain of who sets no path.
    fn domain(&self) -> String {
        "main".to_owned()
    }

    /// Where bare names are looked up.
    fn path(&self) -> Arc<SearchPath> {
        Arc::default()
    }

    /// Whether the columns of results have the names that PostgreSQL gives them.
    fn names_results(&self) -> bool {
        false
    }

    /// What it has prepared.
    fn prepared(&self) -> Vec<PreparedFacts> {
        Vec::new()
    }

    /// Its cursors.
    fn cursors(&self) -> Vec<CursorFacts> {
        Vec::new()
    }
}

impl<F: Fn(&str) -> Option<String> + Send + Sync> ConnectionFacts for F {
    fn show(&self, name: &str) -> Option<String> {
        self(name)
    }
}

/// A connection, as far as the catalogue asks it.
pub type Shown = Arc<dyn ConnectionFacts>;

/// Domains, datasets and functions as one statement sees them, and who asks. They are listed when something first asks for
/// them.
pub struct Facts {
    /// Who asks.
    pub user: String,
    /// The number of the connection.
    pub process: i64,
    /// The database, as the client has named it.
    pub(crate) database: String,
    /// Where bare names are looked up.
    pub(crate) path: Arc<SearchPath>,
    /// What else its connection tells.
    pub(crate) shown: Shown,
    source: Box<dyn Source>,
    numbered: OnceLock<Numbered>,
}

/// Domains, datasets and functions with their numbers.
#[derive(Debug)]
pub(crate) struct Numbered {
    pub(crate) domains: Vec<(i64, String)>,
    pub(crate) tables: Vec<(i64, Listed)>,
    pub(crate) functions: Vec<(i64, ListedFunction)>,
}

impl Facts {
    /// Facts of a source.
    pub fn new(user: String, process: i64, shown: Shown, source: impl Source + 'static) -> Arc<Facts> {
        let (database, path) = (shown.database(), shown.path());
        Arc::new(Facts { user, process, database, path, shown, source: Box::new(source), numbered: OnceLock::new() })
    }

    pub(crate) fn numbered(&self) -> &Numbered {
        self.numbered.get_or_init(|| {
            let (domains, tables) = self.source.list();
            Numbered::new(domains, tables, self.source.functions())
        })
    }

    /// Whether who asks has a right to a domain; none: to all of them.
    pub(crate) fn may(&self, privilege: Privilege, domain: Option<&str>) -> bool {
        self.source.may(privilege, domain)
    }

    /// What is known of the columns of a table.
    pub(crate) fn statistics(&self, table: &Listed) -> Vec<ColumnStatistics> {
        self.source.statistics(&table.domain, &table.name)
    }
}

impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facts").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Numbered {
    /// Numbers follow from names, so that every host gives the same ones, and later again. Where two names would have one number, the
    /// later one has the next that is free. Functions come last, so that they change no number of a table.
    fn new(mut domains: Vec<String>, mut tables: Vec<Listed>, mut functions: Vec<ListedFunction>) -> Numbered {
        domains.sort();
        functions.sort_by(|one, other| (&one.domain, &one.name).cmp(&(&other.domain, &other.name)));
        tables.sort_by(|one, other| (&one.domain, &one.name).cmp(&(&other.domain, &other.name)));
        let mut taken = HashSet::new();
        let mut number = |parts: &[&str]| {
            let mut oid = FIRST_OID + hash(parts) % OIDS;
            while !taken.insert(oid) {
                oid = FIRST_OID + (oid + 1 - FIRST_OID) % OIDS;
            }
            oid as i64
        };
        let domains = domains.into_iter().map(|name| (number(&[&name]), name)).collect();
        let tables = tables.into_iter().map(|table| (number(&[&table.domain, &table.name]), table)).collect();
        let functions = functions.into_iter();
        let functions = functions.map(|function| (number(&[&function.domain, &function.name, "function"]), function)).collect();
        Numbered { domains, tables, functions }
    }

    pub(crate) fn domain(&self, name: &str) -> i64 {
        self.domains.iter().find(|(_, domain)| domain == name).map_or(0, |(oid, _)| *oid)
    }

    /// The table of a name as SQL writes it, bare ones in `domain`.
    pub(crate) fn find(&self, name: &str, domain: &str) -> Option<i64> {
        let parts = parts(name);
        let (domain, name) = match parts.as_slice() {
            [name] => (domain, name.as_str()),
            [domain, name] => (domain.as_str(), name.as_str()),
            [_, domain, name] => (domain.as_str(), name.as_str()),
            _ => return None,
        };
        let found = self.tables.iter().find(|(_, table)| table.name == name && table.domain == domain);
        found.map(|(oid, _)| *oid)
    }
}

/// The parts of a name that SQL writes, with quotes taken off and the rest in small letters. Within quotes, two of them are one.
pub(crate) fn parts(name: &str) -> Vec<String> {
    let (mut parts, mut quoted) = (vec![String::new()], false);
    let mut characters = name.trim().chars().peekable();
    while let Some(character) = characters.next() {
        let last = parts.len() - 1;
        match character {
            '"' if quoted && characters.next_if_eq(&'"').is_some() => parts[last].push('"'),
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            other if quoted => parts[last].push(other),
            other if other.is_whitespace() => {}
            other => parts[last].extend(other.to_lowercase()),
        }
    }
    parts
}

/// The number that a table has, unless another one of the same number comes before it: see [`Numbered::new`].
pub fn table_number(domain: &str, name: &str) -> u32 {
    // Below 1 << 31.
    (FIRST_OID + hash(&[domain, name]) % OIDS) as u32
}

/// FNV-1a, with the ends of the parts in it.
fn hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A source of tests: the tables `main.t`, `lab.n` and the view `lab.v` with columns `a` and `b`, the functions `main.luhn` and
/// `lab.words` and the aggregate `main.mean`, for `me`, who may read both domains and write `lab`.
#[cfg(test)]
pub(crate) struct TestSource;

#[cfg(test)]
impl Source for TestSource {
    fn list(&self) -> (Vec<String>, Vec<Listed>) {
        use arrow::datatypes::{DataType, Field, Schema};
        let fields = vec![Field::new("a", DataType::Int32, false), Field::new("b", DataType::Utf8View, true)];
        let schema = Arc::new(Schema::new(fields));
        let listed = |domain: &str, name: &str, view: Option<&str>| Listed {
            domain: domain.into(),
            name: name.into(),
            schema: Arc::clone(&schema),
            rows: 4,
            bytes: 9000,
            view: view.map(str::to_owned),
        };
        let tables = vec![listed("main", "t", None), listed("lab", "n", None), listed("lab", "v", Some("SELECT 1"))];
        (vec!["main".into(), "lab".into()], tables)
    }

    fn functions(&self) -> Vec<ListedFunction> {
        let listed = |domain: &str, name: &str, arguments: &[(Option<&str>, u32)], returns: u32| ListedFunction {
            domain: domain.into(),
            name: name.into(),
            arguments: arguments.iter().map(|(name, of)| (name.map(str::to_owned), *of)).collect(),
            returns,
            is_aggregate: false,
            returns_set: false,
            volatility: 'i',
            called_on_null: false,
            export: name.into(),
            module: "0f".repeat(32),
        };
        let luhn = listed("main", "luhn", &[(Some("digits"), 25), (None, 23)], 16);
        let (mean, words) = (listed("main", "mean", &[(Some("order"), 701)], 701), listed("lab", "words", &[(None, 25)], 25));
        vec![
            ListedFunction { export: "checked".into(), ..luhn },
            ListedFunction { is_aggregate: true, ..mean },
            ListedFunction { returns_set: true, volatility: 'v', called_on_null: true, ..words },
        ]
    }

    fn may(&self, privilege: Privilege, domain: Option<&str>) -> bool {
        domain.is_some() && privilege == Privilege::Read || domain == Some("lab")
    }

    fn statistics(&self, _: &str, name: &str) -> Vec<ColumnStatistics> {
        let known = |nulls, distinct| ColumnStatistics { nulls, distinct };
        if name == "t" { vec![known(Some(0.0), 4), known(Some(0.25), 0)] } else { Vec::new() }
    }
}

/// A connection of tests, which has one setting. Of others there are 7 and 8, and it may not end the latter.
#[cfg(test)]
struct TestConnection;

#[cfg(test)]
impl ConnectionFacts for TestConnection {
    fn show(&self, name: &str) -> Option<String> {
        (name == "work_mem").then(|| "4MB".to_owned())
    }

    fn set(&self, name: &str, value: &str, _: bool) -> Result<String, String> {
        self.show(name).map(|_| value.to_owned()).ok_or_else(|| format!("unrecognized configuration parameter {name:?}"))
    }

    fn end(&self, process: i64, with_connection: bool) -> Result<bool, String> {
        if with_connection && process == 8 { Err("it is somebody else's".to_owned()) } else { Ok([7, 8].contains(&process)) }
    }
}

/// Facts of tests.
#[cfg(test)]
pub(crate) fn facts_of_tests() -> Arc<Facts> {
    Facts::new("me".into(), 1, Arc::new(TestConnection), TestSource)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Schema;

    use super::*;

    #[test]
    fn numbers_follow_from_names_and_never_meet() {
        let listed = |domain: &str, name: &str| Listed {
            domain: domain.into(),
            name: name.into(),
            schema: Arc::new(Schema::empty()),
            rows: 0,
            bytes: 0,
            view: None,
        };
        let tables: Vec<_> = (0..2000).map(|number| listed("main", &format!("t{number}"))).collect();
        let function = TestSource.functions().remove(0);
        let named = |number: usize| ListedFunction { name: format!("t{number}"), ..function.clone() };
        let functions: Vec<_> = (0..1000).map(named).collect();
        let all = Numbered::new(vec!["main".into(), "lab".into()], tables.clone(), functions.clone());
        let fewer = Numbered::new(vec!["main".into()], tables[..10].to_vec(), functions[..10].to_vec());
        for (oid, table) in &fewer.tables {
            assert_eq!(all.find(&table.name, "main"), Some(*oid));
            assert_eq!(i64::from(table_number("main", &table.name)), *oid);
        }
        for (oid, function) in &fewer.functions {
            assert!(all.functions.iter().any(|(known, other)| known == oid && other.name == function.name));
        }
        let mut oids: Vec<_> = all.tables.iter().map(|(oid, _)| *oid).chain(all.domains.iter().map(|(oid, _)| *oid)).collect();
        oids.extend(all.functions.iter().map(|(oid, _)| *oid));
        oids.sort_unstable();
        oids.dedup();
        assert_eq!(oids.len(), 3002);
        assert!(oids.iter().all(|oid| (16_384..1 << 31).contains(oid)));
    }

    #[test]
    fn names_are_read_as_sql_writes_them() {
        assert_eq!(parts("Lab.\"My.Table\""), ["lab", "My.Table"]);
        assert_eq!(parts("\"main\" . \"My T\""), ["main", "My T"]);
        assert_eq!(parts("t"), ["t"]);
        assert_eq!(parts("Main.\"a\"\"b\""), ["main", "a\"b"]);
        assert_eq!(parts("\"\"\"\".\"x.\"\"\""), ["\"", "x.\""]);
    }
}
