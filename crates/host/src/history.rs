//! Statements about versions of a domain: SHOW LOG, RESTORE, and how long versions are kept.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use pithead_entry::Right;
use pithead_fleet::{AsOf, LogEntry, log};
use pithead_model::{DatasetName, Fault, boxed, parse_period};
use pithead_remote::QueryProfile;

use crate::as_of::{self, Moment};
use crate::rest::{Rest, expected, places};
use crate::tokens::is_word;
use crate::{Answer, Commitment, Parameters, Session};

/// A statement about versions.
pub(crate) enum History {
    /// `SHOW LOG [FROM domain]`.
    Log(Option<String>),
    /// `RESTORE [TABLE] [domain.]name TO …`, and `RESTORE DOMAIN name TO …`, whose list has one part.
    Restore { name: Vec<String>, is_domain: bool, to: Moment },
    /// `ALTER DOMAIN name SET HISTORY '7d'`, or DEFAULT: none.
    Keep { domain: String, history_ms: Option<u64> },
    /// `ALTER DOMAIN name FORGET HISTORY`.
    Forget(String),
}

/// Takes a statement for one of these if it begins so.
pub(crate) fn read(tokens: &[TokenWithSpan]) -> Result<Option<History>, Fault> {
    let places = places(tokens);
    let mut rest = Rest::new(tokens, &places);
    let read = if rest.take(&["SHOW", "LOG"]) {
        let domain = if rest.take(&["FROM"]) || rest.take(&["IN"]) { Some(rest.name("a domain")?) } else { None };
        History::Log(domain)
    } else if rest.take(&["RESTORE"]) {
        rest.restore()?
    } else if rest.take(&["ALTER", "DOMAIN"]) || rest.take(&["ALTER", "SCHEMA"]) {
        rest.alter()?
    } else {
        return Ok(None);
    };
    match rest.is_over() {
        true => Ok(Some(read)),
        false => Err(expected("nothing more", "SHOW LOG [FROM domain], or RESTORE TABLE t TO VERSION AS OF 12")),
    }
}

impl Rest<'_> {
    fn restore(&mut self) -> Result<History, Fault> {
        const FORM: &str = "RESTORE [TABLE|DOMAIN] name TO VERSION AS OF 12, or TO TIMESTAMP AS OF '2026-11-24 10:00:00'";
        let is_domain = self.take(&["DOMAIN"]) || self.take(&["SCHEMA"]);
        let _ = !is_domain && self.take(&["TABLE"]);
        let name = self.names()?;
        self.take(&["TO"]);
        if self.take(&["VERSION"]) {
            self.take(&["AS", "OF"]);
            let Some(Token::Number(number, _)) = self.token(0).map(|token| token.token.clone()) else {
                return Err(expected("a version's number", FORM));
            };
            self.at += 1;
            let version = number.parse().map_err(|_| expected("a version's number", FORM))?;
            return Ok(History::Restore { name, is_domain, to: Moment::version(version) });
        }
        if !self.take(&["TIMESTAMP"]) {
            return Err(expected("VERSION or TIMESTAMP", FORM));
        }
        self.take(&["AS", "OF"]);
        let (end, to) = as_of::time_at(self.tokens, self.places, self.at)?;
        self.at = end;
        Ok(History::Restore { name, is_domain, to })
    }

    fn alter(&mut self) -> Result<History, Fault> {
        const FORM: &str = "ALTER DOMAIN name SET HISTORY '7d', SET HISTORY DEFAULT, or FORGET HISTORY";
        let domain = self.name("a domain")?;
        if self.take(&["FORGET", "HISTORY"]) {
            return Ok(History::Forget(domain));
        }
        if !self.take(&["SET", "HISTORY"]) {
            return Err(expected("SET HISTORY or FORGET HISTORY", FORM));
        }
        if self.take(&["DEFAULT"]) {
            return Ok(History::Keep { domain, history_ms: None });
        }
        let is_sign = |token: &TokenWithSpan| token.token == Token::Eq || is_word(token, "TO");
        self.at += usize::from(self.token(0).is_some_and(is_sign));
        let text = match self.token(0).map(|token| token.token.clone()) {
            Some(Token::SingleQuotedString(text)) => text,
            Some(Token::Number(number, _)) => number,
            _ => return Err(expected("a time such as '7d'", FORM)),
        };
        self.at += 1;
        Ok(History::Keep { domain, history_ms: Some(history_ms(&text)?) })
    }
}

/// A time for which versions are kept, such as `7d`, in milliseconds.
pub(crate) fn history_ms(text: &str) -> Result<u64, Fault> {
    let period = parse_period(text)?;
    Ok(u64::try_from(period.as_millis()).unwrap_or(u64::MAX))
}

impl History {
    /// One word for what kind it is.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            History::Log(_) => "query",
            History::Restore { .. } | History::Keep { .. } | History::Forget(_) => "write",
        }
    }

    /// The columns that it gives; none: it gives no rows.
    pub(crate) fn schema(&self) -> Option<SchemaRef> {
        match self {
            History::Log(_) => Some(log_schema()),
            History::Restore { .. } | History::Keep { .. } | History::Forget(_) => None,
        }
    }

    pub(crate) async fn run(
        &self,
        session: &Session,
        parameters: &Parameters,
        commitment: &Commitment,
    ) -> Result<Answer, Fault> {
        parameters.refuse("a statement about versions")?;
        let fleet = session.host.fleet();
        match self {
            History::Log(domain) => {
                let domain = domain.clone().unwrap_or_else(|| session.domain());
                session.check(Right::Read, &domain)?;
                let entries = log(&fleet.history(&domain).await?);
                Ok(Answer::of(log_rows(&entries)?, QueryProfile::start()))
            }
            History::Restore { name, is_domain, to } => {
                let (domain, dataset) = target(name, *is_domain, &session.domain())?;
                session.check(Right::Write, &domain)?;
                let to = session.moment(to).await?;
                commitment.change(fleet.restore(&domain, dataset.as_deref(), to)).await?;
                Ok(Answer::done())
            }
            History::Keep { domain, history_ms } => {
                session.check(Right::Administer, domain)?;
                commitment.change(fleet.set_history(domain, *history_ms)).await?;
                Ok(Answer::done())
            }
            History::Forget(domain) => {
                session.check(Right::Administer, domain)?;
                commitment.change(fleet.forget_history(domain)).await?;
                Ok(Answer::done())
            }
        }
    }
}

/// The domain, and the dataset unless all of it is meant.
fn target(name: &[String], is_domain: bool, domain: &str) -> Result<(String, Option<String>), Fault> {
    let checked = |domain: &str, dataset: &str| DatasetName::new(domain, dataset);
    match (name, is_domain) {
        ([domain], true) => Ok((checked(domain, "any")?.domain, None)),
        ([dataset], false) => checked(domain, dataset).map(|name| (name.domain, Some(name.dataset))),
        ([domain, dataset], false) => checked(domain, dataset).map(|name| (name.domain, Some(name.dataset))),
        _ => Err(expected("[domain.]dataset, or DOMAIN and a domain's name", "RESTORE TABLE t TO VERSION AS OF 12")),
    }
}

impl Session {
    /// A moment in this session's time zone.
    async fn moment(&self, moment: &Moment) -> Result<AsOf, Fault> {
        let time_zone = self.state.lock().config_options().execution.time_zone.clone();
        moment.resolve(time_zone.as_deref()).await
    }

    /// A version by its number, or a time as text, in this session's time zone unless it says another one.
    #[boxed]
    pub async fn as_of(&self, text: &str) -> Result<AsOf, Fault> {
        match text.trim().parse() {
            Ok(version) => Ok(AsOf::Version(version)),
            Err(_) => self.moment(&Moment::time(&format!("'{}'", text.trim().replace('\'', "''")))).await,
        }
    }
}

fn log_schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![
        Field::new("version", DataType::Int64, false),
        Field::new("time", time, true),
        Field::new("name", DataType::Utf8, true),
        Field::new("change", DataType::Utf8, false),
        Field::new("rows", DataType::Int64, true),
        Field::new("rows_added", DataType::Int64, false),
        Field::new("rows_removed", DataType::Int64, false),
    ]))
}

/// The newest version first.
fn log_rows(entries: &[LogEntry]) -> Result<RecordBatch, Fault> {
    let mut entries: Vec<&LogEntry> = entries.iter().collect();
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.version));
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let numbers = |of: fn(&LogEntry) -> u64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(entries.iter().map(|entry| number(of(entry)))))
    };
    let times = entries.iter().map(|entry| entry.time_ms.map(number)).collect::<TimestampMillisecondArray>();
    let columns: Vec<ArrayRef> = vec![
        numbers(|entry| entry.version),
        Arc::new(times.with_timezone("UTC")),
        Arc::new(entries.iter().map(|entry| entry.name.as_deref()).collect::<StringArray>()),
        Arc::new(StringArray::from_iter_values(entries.iter().map(|entry| entry.change.text()))),
        Arc::new(entries.iter().map(|entry| entry.rows.map(number)).collect::<Int64Array>()),
        numbers(|entry| entry.rows_added),
        numbers(|entry| entry.rows_removed),
    ];
    RecordBatch::try_new(log_schema(), columns).map_err(Fault::bug)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::tokens;

    fn told(sql: &str) -> Result<Option<String>, Fault> {
        Ok(read(&tokens(sql).unwrap())?.map(|history| match history {
            History::Log(domain) => format!("log {domain:?}"),
            History::Restore { name, is_domain, to } => format!("restore {} {is_domain} {to:?}", name.join(".")),
            History::Keep { domain, history_ms } => format!("keep {domain} {history_ms:?}"),
            History::Forget(domain) => format!("forget {domain}"),
        }))
    }

    #[test]
    fn statements_are_read_by_their_words() {
        for (sql, expected) in [
            ("SHOW LOG", "log None"),
            ("show log from \"Lab\";", "log Some(\"Lab\")"),
            ("RESTORE t TO VERSION AS OF 3", "restore t false Moment(\"3\")"),
            ("RESTORE TABLE lab.T VERSION 3", "restore lab.t false Moment(\"3\")"),
            ("RESTORE DOMAIN lab TO TIMESTAMP AS OF '2026-11-24' ;", "restore lab true Moment(\"t'2026-11-24'\")"),
            ("ALTER DOMAIN lab SET HISTORY '7d'", "keep lab Some(604800000)"),
            ("ALTER SCHEMA lab SET HISTORY = 0", "keep lab Some(0)"),
            ("ALTER DOMAIN lab SET HISTORY DEFAULT", "keep lab None"),
            ("ALTER DOMAIN lab FORGET HISTORY", "forget lab"),
        ] {
            assert_eq!(told(sql).unwrap().as_deref(), Some(expected), "{sql}");
        }
        for sql in ["SHOW TABLES", "ALTER TABLE t ADD COLUMN a INT", "SELECT 1"] {
            assert_eq!(told(sql), Ok(None), "{sql}");
        }
        for sql in
            ["SHOW LOG t", "RESTORE t", "RESTORE t TO 3", "RESTORE t TO VERSION AS OF x", "ALTER DOMAIN lab SET HISTORY 'long'"]
        {
            assert!(told(sql).is_err(), "{sql}");
        }
    }
}
