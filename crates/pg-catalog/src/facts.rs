//! [`Facts`]: what the catalogue's rows are made of.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::SchemaRef;

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

type List = Box<dyn Fn() -> (Vec<String>, Vec<Listed>) + Send + Sync>;

/// Gives the value of a setting.
pub type Shown = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Domains and datasets as one statement sees them, and who asks. They are listed when something first asks for them.
pub struct Facts {
    /// Who asks.
    pub user: String,
    /// The number of the connection.
    pub process: i64,
    /// The value of a setting, as SHOW gives it.
    pub(crate) shown: Shown,
    list: List,
    numbered: OnceLock<Numbered>,
}

/// Domains and datasets with their numbers.
#[derive(Debug)]
pub(crate) struct Numbered {
    pub(crate) domains: Vec<(i64, String)>,
    pub(crate) tables: Vec<(i64, Listed)>,
}

impl Facts {
    /// Facts that `list` gives: the names of domains, and the datasets.
    pub fn new(
        user: String,
        process: i64,
        shown: Shown,
        list: impl Fn() -> (Vec<String>, Vec<Listed>) + Send + Sync + 'static,
    ) -> Arc<Facts> {
        Arc::new(Facts { user, process, shown, list: Box::new(list), numbered: OnceLock::new() })
    }

    pub(crate) fn numbered(&self) -> &Numbered {
        self.numbered.get_or_init(|| {
            let (domains, tables) = (self.list)();
            Numbered::new(domains, tables)
        })
    }
}

impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facts").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Numbered {
    /// Numbers follow from names, so that every host gives the same ones, and later again. Where two names would have one number, the
    /// later one has the next that is free.
    fn new(mut domains: Vec<String>, mut tables: Vec<Listed>) -> Numbered {
        domains.sort();
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
        Numbered { domains, tables }
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

/// The parts of a name that SQL writes, with quotes taken off and the rest in small letters.
fn parts(name: &str) -> Vec<String> {
    let (mut parts, mut quoted) = (vec![String::new()], false);
    for character in name.trim().chars() {
        let last = parts.len() - 1;
        match character {
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            other if quoted => parts[last].push(other),
            other if other.is_whitespace() => {}
            other => parts[last].extend(other.to_lowercase()),
        }
    }
    parts
}

/// FNV-1a, with the ends of the parts in it.
fn hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
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
        let all = Numbered::new(vec!["main".into(), "lab".into()], tables.clone());
        let fewer = Numbered::new(vec!["main".into()], tables[..10].to_vec());
        for (oid, table) in &fewer.tables {
            assert_eq!(all.find(&table.name, "main"), Some(*oid));
        }
        let mut oids: Vec<_> = all.tables.iter().map(|(oid, _)| *oid).chain(all.domains.iter().map(|(oid, _)| *oid)).collect();
        oids.sort_unstable();
        oids.dedup();
        assert_eq!(oids.len(), 2002);
        assert!(oids.iter().all(|oid| (16_384..1 << 31).contains(oid)));
    }

    #[test]
    fn names_are_read_as_sql_writes_them() {
        assert_eq!(parts("Lab.\"My.Table\""), ["lab", "My.Table"]);
        assert_eq!(parts("\"main\" . \"My T\""), ["main", "My T"]);
        assert_eq!(parts("t"), ["t"]);
    }
}
