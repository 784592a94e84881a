//! Views: queries with names, kept in a domain's manifest as they were written. The planner puts the query's plan in the place of the
//! name, so a query over a view is cut as the query would be that has the view's text in it.

mod creating;
mod definition;
mod dropping;
mod in_full;
mod reading;
mod renaming;

pub(crate) use creating::{create, no_view};
pub(crate) use definition::{DroppedViews, ViewDefinition, read};
pub(crate) use dropping::drop_views;
pub(crate) use reading::{Expander, ViewTable, ViewsRead, refuse_broken, table};
pub(crate) use renaming::ViewRename;
