//! An application as a file describes it.

use std::path::Path;

use pithead_embed::{Connection, PortAt, SsdletSpec};
use pithead_model::{Blame, Fault};
use serde::Deserialize;

use crate::error::CliError;

/// The SSDlets of an application, and their connections.
#[derive(Debug, PartialEq)]
pub(super) struct Graph {
    pub(super) ssdlets: Vec<SsdletSpec>,
    /// How the file names them.
    pub(super) names: Vec<String>,
    pub(super) connections: Vec<Connection>,
    /// Where each SSDlet lies, if the file says so: then the application is one over all drives.
    pub(super) places: Option<Vec<SsdletPlacement>>,
}

/// Where an SSDlet of an application over several drives lies.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(super) enum SsdletPlacement {
    /// At the drive of this number, as they are named, from 0 on.
    Number(usize),
    /// At a drive by its name, or at each of them.
    Name(String),
}

/// The name of a place that is every drive.
pub(super) const EACH: &str = "each";

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    ssdlet: Vec<SsdletEntry>,
    #[serde(default)]
    connect: Vec<Link>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SsdletEntry {
    /// How connections name it.
    name: String,
    /// MODULE or MODULE:SSDLET.
    run: String,
    #[serde(default)]
    arguments: Vec<Argument>,
    #[serde(default)]
    at: Option<SsdletPlacement>,
}

/// An argument. The SSDlet's declaration says what its text is.
#[derive(Deserialize)]
#[serde(untagged, expecting = "an argument is a text, a number, or true or false")]
enum Argument {
    Text(String),
    Whole(i64),
    Float(f64),
    Bool(bool),
}

/// `NAME` or `NAME.PORT` each; ports are counted from 0.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Link {
    from: String,
    to: String,
}

impl Graph {
    /// One SSDlet, as `MODULE` or `MODULE:SSDLET`.
    pub(super) fn of_one(run: &str, arguments: &[String]) -> Self {
        let ssdlets = vec![spec(run, arguments.to_vec())];
        Graph { ssdlets, names: vec![run.to_owned()], connections: vec![], places: None }
    }

    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Self, CliError> {
        let text = std::fs::read_to_string(path).map_err(|error| CliError::file(path, error))?;
        Ok(Self::parse(&text).map_err(|fault| fault.at(path.display()))?)
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let File { ssdlet, connect } = toml::from_str(text).map_err(|error| wrong(error.to_string().trim_end()))?;
        let names: Vec<String> = ssdlet.iter().map(|entry| entry.name.clone()).collect();
        if let Some((_, twice)) = names.iter().enumerate().find(|(place, name)| names[..*place].contains(name)) {
            return Err(wrong(&format!("two SSDlets are named {twice:?}")));
        }
        let places = places(&ssdlet)?;
        let link = |link: &Link| Ok(Connection { from: port(&names, &link.from)?, to: port(&names, &link.to)? });
        let connections = connect.iter().map(link).collect::<Result<Vec<_>, Fault>>()?;
        check_pairs(&names, &connections)?;
        if places.is_none() {
            check_complete(&names, &connections)?;
        }
        let argument = |argument: &Argument| argument.text();
        let ssdlets = ssdlet.iter().map(|entry| spec(&entry.run, entry.arguments.iter().map(argument).collect())).collect();
        Ok(Graph { ssdlets, names, connections, places })
    }
}

impl Argument {
    /// It as it is written.
    fn text(&self) -> String {
        match self {
            Argument::Text(text) => text.clone(),
            Argument::Whole(number) => number.to_string(),
            // With a point or an exponent, and as many digits as it needs.
            Argument::Float(number) => format!("{number:?}"),
            Argument::Bool(value) => value.to_string(),
        }
    }
}

/// Fails where two ports are connected twice.
fn check_pairs(names: &[String], links: &[Connection]) -> Result<(), Fault> {
    match links.iter().enumerate().find(|(place, link)| links[..*place].contains(link)) {
        None => Ok(()),
        Some((_, Connection { from, to })) => {
            Err(wrong(&format!("{} and {} are connected twice", output(names, *from), input(names, *to))))
        }
    }
}

/// Fails where ports share a connection and are not connected. A drive refuses that, too, and knows no names of the file.
fn check_complete(names: &[String], links: &[Connection]) -> Result<(), Fault> {
    let is_linked = |from: PortAt, to: PortAt| links.contains(&Connection { from, to });
    for one in links {
        for by in links.iter().filter(|by| by.to == one.to) {
            let Some(other) = links.iter().find(|other| other.from == by.from && !is_linked(one.from, other.to)) else {
                continue;
            };
            let (from, to) = (output(names, one.from), input(names, other.to));
            let by = format!("{} and {}", input(names, one.to), output(names, by.from));
            let what = format!("{from} and {to} share a connection by way of {by}, but are not connected");
            return Err(wrong(&what).hint("connect them, too, or give one of them a port of its own"));
        }
    }
    Ok(())
}

fn output(names: &[String], at: PortAt) -> String {
    format!("{}.out({})", names[at.ssdlet], at.port)
}

fn input(names: &[String], at: PortAt) -> String {
    format!("{}.in({})", names[at.ssdlet], at.port)
}

/// Where all SSDlets lie, or that none says so.
fn places(ssdlets: &[SsdletEntry]) -> Result<Option<Vec<SsdletPlacement>>, Fault> {
    match ssdlets.iter().find(|entry| entry.at.is_none()) {
        Some(without) if ssdlets.iter().any(|entry| entry.at.is_some()) => {
            let what = format!("{:?} does not say at which drive it lies, and other SSDlets do", without.name);
            Err(wrong(&what).hint("add `at`: the number or the name of a drive, or \"each\""))
        }
        _ => Ok(ssdlets.iter().map(|entry| entry.at.clone()).collect()),
    }
}

fn spec(run: &str, arguments: Vec<String>) -> SsdletSpec {
    let (module, ssdlet) = match run.split_once(':') {
        Some((module, ssdlet)) => (module, Some(ssdlet.to_owned())),
        None => (run, None),
    };
    SsdletSpec { module: module.to_owned(), ssdlet, arguments }
}

fn port(names: &[String], text: &str) -> Result<PortAt, Fault> {
    let (name, number) = match text.rsplit_once('.') {
        Some((name, number)) if number.parse::<usize>().is_ok() => (name, number.parse().unwrap_or(0)),
        _ => (text, 0),
    };
    let ssdlet = names.iter().position(|known| known == name);
    let ssdlet = ssdlet.ok_or_else(|| wrong(&format!("a connection names {name:?}; the SSDlets are {}", names.join(", "))))?;
    Ok(PortAt { ssdlet, port: number })
}

fn wrong(why: &str) -> Fault {
    Fault::new(Blame::User, format!("no application: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "
        [[ssdlet]]
        name = \"map\"
        run = \"wordcount:idMapper\"
        arguments = [\"text\"]
        [[ssdlet]]
        name = \"reduce\"
        run = \"wordcount:idReducer\"
        [[connect]]
        from = \"map.1\"
        to = \"reduce\"";

    #[test]
    fn a_file_describes_an_application() {
        let graph = Graph::parse(WORDS).unwrap();
        assert_eq!(graph.ssdlets[0], Graph::of_one("wordcount:idMapper", &["text".to_owned()]).ssdlets[0]);
        let (from, to) = (PortAt { ssdlet: 0, port: 1 }, PortAt { ssdlet: 1, port: 0 });
        assert_eq!(graph.connections, [Connection { from, to }]);
    }

    #[test]
    fn all_ssdlets_say_where_they_lie_or_none_does() {
        let placed = WORDS.replace("run = \"wordcount:idReducer\"", "run = \"wordcount:idReducer\"\nat = 1");
        let fault = Graph::parse(&placed).unwrap_err();
        assert!(fault.message.contains("\"map\" does not say at which drive"), "{fault}");
        let all = placed.replace("run = \"wordcount:idMapper\"", "run = \"wordcount:idMapper\"\nat = \"each\"");
        assert_eq!(
            Graph::parse(&all).unwrap().places,
            Some(vec![SsdletPlacement::Name(EACH.into()), SsdletPlacement::Number(1)])
        );
        assert_eq!(Graph::parse(WORDS).unwrap().places, None);
        assert!(Graph::parse(&placed.replace("at = 1", "at = 1.5")).is_err());
    }

    #[test]
    fn arguments_are_texts_numbers_and_truth_values() {
        let typed = WORDS.replace("[\"text\"]", "[\"text\", 100000, -7, 0.5, 1e300, 2.0, inf, true]");
        let arguments = &Graph::parse(&typed).unwrap().ssdlets[0].arguments;
        assert_eq!(arguments[..4], ["text", "100000", "-7", "0.5"]);
        assert_eq!(arguments[4..], ["1e300", "2.0", "inf", "true"]);
        let fault = Graph::parse(&WORDS.replace("[\"text\"]", "[[1]]")).unwrap_err();
        assert!(fault.message.contains("an argument is a text, a number, or true or false"), "{fault}");
    }

    /// Rows of s2 came to w, to which it was not connected, as both shared the connection of s and w2.
    #[test]
    fn ports_that_share_a_connection_are_connected() {
        let ssdlets: String =
            ["s", "s2", "w", "w2"].map(|name| format!("[[ssdlet]]\nname = \"{name}\"\nrun = \"pass\"\n")).concat();
        let graph = |links: &[(&str, &str)]| {
            let links: String =
                links.iter().map(|(from, to)| format!("[[connect]]\nfrom = \"{from}\"\nto = \"{to}\"\n")).collect();
            Graph::parse(&(ssdlets.clone() + &links))
        };
        let fault = graph(&[("s", "w"), ("s", "w2"), ("s2", "w2")]).unwrap_err();
        let what = "s2.out(0) and w.in(0) share a connection by way of w2.in(0) and s.out(0), but are not connected";
        assert!(fault.message.ends_with(what), "{fault}");
        assert!(graph(&[("s", "w"), ("s", "w2"), ("s2", "w2"), ("s2", "w")]).is_ok());
        let fault = graph(&[("s", "w"), ("s.0", "w.0")]).unwrap_err();
        assert!(fault.message.ends_with("s.out(0) and w.in(0) are connected twice"), "{fault}");
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let cases = [
            (WORDS.replace("to = \"reduce\"", "to = \"sort\""), "names \"sort\"; the SSDlets are map, reduce"),
            (WORDS.replace("\"reduce\"\n        run", "\"map\"\n        run"), "two SSDlets are named \"map\""),
            (WORDS.replace("run =", "module ="), "module"),
            ("ssdlet = 3".to_owned(), "ssdlet"),
        ];
        for (text, expected) in cases {
            let fault = Graph::parse(&text).unwrap_err();
            assert!(fault.blame == Blame::User && fault.message.contains(expected), "{fault}");
        }
    }
}
