//! Ways to write one list of decisions as SQL, whose answers have something to do with each other.

/// How decisions are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Style {
    /// The other of every pair that looks nearly alike ([`crate::random::twins`]); its answer is another.
    pub(crate) second: bool,
    /// Other names of relations and of columns.
    pub(crate) renamed: bool,
    /// Common table expressions stand where they are used.
    pub(crate) inlined: bool,
    /// What becomes of the outermost WHERE.
    pub(crate) filter: Filter,
    /// The outermost GROUP BY lacks its last expression; its answer is another.
    pub(crate) coarser: bool,
}

/// What becomes of a WHERE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Filter {
    /// It stands there.
    #[default]
    Kept,
    /// It does not.
    Dropped,
    /// Three queries together: where it is true, where it is false, and where it is NULL. As without it.
    Split,
    /// It is true, or false, or NULL. As without it.
    Exhausted,
}

/// The ways that a query is asked in, besides its first one.
pub(crate) const WISHES: [&str; 7] = ["once", "again", "renamed", "inlined", "split", "exhausted", "coarser"];

/// The styles of a wish, each with the place of the one that it must equal, if there is one. The first style, at place 0, is the
/// plain one.
pub(crate) fn styles(wish: &str) -> Vec<(Style, Option<usize>)> {
    let plain = Style::default();
    let dropped = Style { filter: Filter::Dropped, ..plain };
    match wish {
        "again" => vec![(plain, Some(0))],
        "renamed" => vec![(Style { renamed: true, ..plain }, Some(0))],
        "inlined" => vec![(Style { inlined: true, ..plain }, Some(0))],
        "split" => vec![(dropped, None), (Style { filter: Filter::Split, ..plain }, Some(1))],
        "exhausted" => vec![(dropped, None), (Style { filter: Filter::Exhausted, ..plain }, Some(1))],
        "coarser" => vec![(Style { coarser: true, ..plain }, None)],
        _ => vec![],
    }
}
