//! The byte-pattern matcher: what Biscuit's drives have as hardware beside each channel (Gu et al. 2016; see
//! `docs/bibliography.md`), in software. Predicates over texts and binary values become patterns of bytes, which are
//! searched for where the bytes lie, compressed or not.
//!
//! It knows bytes, codes and rows, but not the library that stores them.

mod codes;
mod firsts;
mod like;
mod needle;
mod pattern;
mod rows;
mod sample;
mod set;
mod symbols;
mod tree;

pub(crate) use codes::{CodeSearch, Coded};
pub(crate) use rows::RowSet;
pub(crate) use symbols::Symbols;
pub(crate) use tree::Matcher;
