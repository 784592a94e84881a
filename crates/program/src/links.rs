//! [`Links`]: which ends of a connection were connected with which.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

/// An end of a connection: a port of an SSDlet, or one of the host program's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// The application of the SSDlet; each end of a host program is an owner of its own.
    pub owner: u64,
    pub ssdlet: usize,
    pub port: usize,
    /// How messages name it.
    pub name: String,
}

impl End {
    /// A new end of the host program.
    pub fn host(name: String) -> Self {
        Self { owner: new_owner(), ssdlet: 0, port: 0, name }
    }
}

/// A number that no other owner of ends has in this process.
pub(crate) fn new_owner() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The ends of a connection, and the pairs of them that were connected. What is put into a connection reaches all who read from it, so
/// each pair has to be there before anything is put.
#[derive(Debug, Default)]
pub(crate) struct Links {
    outputs: Vec<End>,
    inputs: Vec<End>,
    /// By the places of the ends.
    pairs: BTreeSet<(usize, usize)>,
    /// Whether it is to stay apart from other connections: a host program has an end of it, or an application that was started.
    pub is_fixed: bool,
}

impl Links {
    /// Whether this very pair is connected.
    pub fn contains(&self, from: &End, to: &End) -> bool {
        let at = |ends: &[End], end: &End| ends.iter().position(|known| known == end);
        let pair = at(&self.outputs, from).zip(at(&self.inputs, to));
        pair.is_some_and(|pair| self.pairs.contains(&pair))
    }

    pub fn add(&mut self, from: End, to: End) {
        let pair = (place(&mut self.outputs, from), place(&mut self.inputs, to));
        self.pairs.insert(pair);
    }

    /// Connects an end of the host program.
    pub fn add_host(&mut self, from: End, to: End) {
        self.add(from, to);
        self.is_fixed = true;
    }

    /// Takes all pairs of another connection.
    pub fn absorb(&mut self, other: Links) {
        for (from, to) in other.pairs {
            self.add(other.outputs[from].clone(), other.inputs[to].clone());
        }
    }

    /// The names of two ends that are not connected, an output and an input.
    pub fn lacking(&self) -> Option<(String, String)> {
        if self.pairs.len() == self.outputs.len() * self.inputs.len() {
            return None;
        }
        let mut all = (0..self.outputs.len()).flat_map(|from| (0..self.inputs.len()).map(move |to| (from, to)));
        let (from, to) = all.find(|pair| !self.pairs.contains(pair))?;
        Some((self.outputs[from].name.clone(), self.inputs[to].name.clone()))
    }
}

/// The place of an end, which is added if it is new.
fn place(ends: &mut Vec<End>, end: End) -> usize {
    let known = ends.iter().position(|known| *known == end);
    known.unwrap_or_else(|| {
        ends.push(end);
        ends.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(name: &str) -> End {
        End { owner: 0, ssdlet: 0, port: 0, name: name.to_owned() }
    }

    #[test]
    fn a_pair_that_lacks_is_named() {
        let mut links = Links::default();
        links.add(end("s"), end("w"));
        let mut others = Links::default();
        others.add(end("s2"), end("w2"));
        links.absorb(others);
        links.add(end("s"), end("w2"));
        assert!(links.contains(&end("s"), &end("w2")) && !links.contains(&end("s2"), &end("w")));
        assert_eq!(links.lacking(), Some(("s2".to_owned(), "w".to_owned())));
        links.add(end("s2"), end("w"));
        assert_eq!(links.lacking(), None);
        assert_ne!(End::host("the host".to_owned()), End::host("the host".to_owned()));
    }
}
