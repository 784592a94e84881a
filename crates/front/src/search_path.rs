//! The search path of a connection: the domains that bare names are looked up in, one after the other.

use std::sync::Arc;

use pithead_pg_catalog::{SearchPath, quoted};

use crate::connection::{Halt, Talk, during};
use crate::work::in_own_task;

/// The entry that stands for the domain of the user's name.
const USER: &str = "$user";
/// The schema that PostgreSQL's users have at first.
const PUBLIC: &str = "public";
/// Schemas that are searched anyway, and hold nothing of users.
const OWN: [&str; 4] = ["pg_catalog", "information_schema", "pg_temp", ""];

/// A domain of a search path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) domain: String,
    /// Whether clients name it as a matter of course, so that it need not be there.
    is_usual: bool,
}

/// The domains that a search path names, for a user.
pub(crate) fn wanted(path: &str, user: &str) -> Vec<Wanted> {
    let domains = entries(path).into_iter().filter(|name| !OWN.contains(&name.as_str()));
    let one = |name: String| match name.as_str() {
        USER => Wanted { domain: user.to_owned(), is_usual: true },
        PUBLIC => Wanted { domain: name, is_usual: true },
        _ => Wanted { domain: name, is_usual: false },
    };
    domains.map(one).collect()
}

/// The names between commas: in small letters, unless they are in quotes.
fn entries(path: &str) -> Vec<String> {
    let (mut entries, mut entry, mut in_quotes, mut was_quoted) = (Vec::new(), String::new(), None, false);
    let mut end = |entry: &mut String, was_quoted: &mut bool| {
        let name = std::mem::take(entry);
        entries.push(if std::mem::take(was_quoted) { name } else { name.trim().to_lowercase() });
    };
    for character in path.chars() {
        match (in_quotes, character) {
            (None, '"' | '\'') => {
                entry.clear();
                (in_quotes, was_quoted) = (Some(character), true);
            }
            (Some(quote), character) if character == quote => in_quotes = None,
            (None, ',') => end(&mut entry, &mut was_quoted),
            // What is between a quote and a comma.
            (None, _) if was_quoted => {}
            (_, other) => entry.push(other),
        }
    }
    end(&mut entry, &mut was_quoted);
    entries
}

/// What SHOW says: what is searched. What is usual and not there is left out.
pub(crate) fn shown(path: &str, user: &str, there: &SearchPath, default: &str) -> String {
    let wanted = wanted(path, user);
    let is_searched = |wanted: &&Wanted| !wanted.is_usual || there.domains.contains(&wanted.domain);
    let searched: Vec<String> = wanted.iter().filter(is_searched).map(|wanted| quoted(&wanted.domain)).collect();
    if searched.is_empty() { quoted(default) } else { searched.join(", ") }
}

/// Whether it has to be looked at which domains of a path there are, before each statement.
pub(crate) fn has_to_be_looked_at(wanted: &[Wanted]) -> bool {
    wanted.len() > 1 || wanted.iter().any(|wanted| wanted.is_usual)
}

impl Talk {
    /// Finds out which domains of the search path there are, and has the first one be the session's.
    pub(crate) async fn look_along(&mut self) -> Result<(), Halt> {
        let wanted = self.settings.wanted();
        let there = match has_to_be_looked_at(&wanted) {
            true => self.domains_there(&wanted).await?,
            false => SearchPath::default(),
        };
        let is_own = |wanted: &&Wanted| !wanted.is_usual;
        let first = there.domains.first().or_else(|| wanted.iter().find(is_own).map(|wanted| &wanted.domain));
        let first = first.cloned().unwrap_or_else(|| self.front.host.options().domain.clone());
        if self.session.domain() != first {
            self.set_at_session("datafusion.catalog.default_schema", &first).await?;
        }
        self.settings.found(there);
        Ok(())
    }

    /// The same before a statement, where it may have changed.
    pub(crate) async fn look_along_again(&mut self) -> Result<(), Halt> {
        match has_to_be_looked_at(&self.settings.wanted()) {
            true => self.look_along().await,
            false => Ok(()),
        }
    }

    async fn domains_there(&mut self, wanted: &[Wanted]) -> Result<SearchPath, Halt> {
        let session = Arc::clone(&self.session);
        let domains: Vec<String> = wanted.iter().map(|wanted| wanted.domain.clone()).collect();
        let looking = in_own_task(&self.entrance.work, async move { session.search_path(&domains).await });
        Ok(during(&mut self.link, &self.place.cancel, looking).await??)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_lists_of_domains() {
        let domains = |path: &str| wanted(path, "me").into_iter().map(|wanted| wanted.domain).collect::<Vec<_>>();
        assert_eq!(domains("\"$user\", public, Lab,\"My, D\" , pg_catalog"), ["me", "public", "lab", "My, D"]);
        assert_eq!((domains(""), domains(" Main ")), (vec![], vec!["main".to_owned()]));
        assert!(!has_to_be_looked_at(&wanted("lab", "me")) && has_to_be_looked_at(&wanted("public", "me")));
        assert!(has_to_be_looked_at(&wanted("lab, main", "me")));
    }

    #[test]
    fn what_is_shown_is_what_is_searched() {
        let there = SearchPath { domains: vec!["public".to_owned()], ..SearchPath::default() };
        let none = SearchPath::default();
        assert_eq!(shown("\"$user\", public", "me", &none, "main"), "main");
        assert_eq!(shown("\"$user\", public", "me", &there, "main"), "public");
        assert_eq!(shown("lab, \"My D\"", "me", &none, "main"), "lab, \"My D\"");
    }
}
