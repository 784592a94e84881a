//! Views: queries that have names in a domain, kept as they were written.

use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};

use crate::{Blame, Fault};

/// The most views of a domain.
pub const VIEWS_MAX: usize = 4_096;
/// The most bytes of a view's query.
pub const VIEW_BYTES_MAX: usize = 64 << 10;

/// A query with a name. Whoever reads the view reads the query's tables, with rights of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// The query as it was written.
    pub sql: String,
    /// The domain that its bare names are of.
    pub domain: String,
    /// Names that the first columns have in the place of the query's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<String>,
    /// The columns that it had when it was made, which lists show. The tables of the query may be others by now.
    pub schema: SchemaRef,
}

impl View {
    /// Checks one against its bounds.
    pub fn check(&self, name: &str) -> Result<(), Fault> {
        if self.sql.len() <= VIEW_BYTES_MAX {
            return Ok(());
        }
        let what = format!("the query of view {name} has {} bytes; at most {VIEW_BYTES_MAX} are allowed", self.sql.len());
        Err(Fault::new(Blame::Limit, what).hint("make it of several views, one over the other"))
    }
}
