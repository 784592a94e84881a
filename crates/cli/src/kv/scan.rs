//! `pithead kv scan`: MEDIASCAN, as often as it takes.

use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use pithead_kinetic::client::Client;
use pithead_kinetic::proto::{Body, Header, Range};
use pithead_kinetic::{Code, RequestKind};
use pithead_model::{Blame, Fault};

use super::{Waiting, done, show};
use crate::error::CliError;
use crate::store_keys::key_bytes;

/// Keys that one request names at most.
const NAMED_MAX: i32 = 200;

#[derive(Debug, Args)]
pub(super) struct ScanArgs {
    /// The first key
    #[arg(long, value_name = "KEY", default_value = "")]
    from: String,
    /// The last key [default: the last of all]
    #[arg(long, value_name = "KEY")]
    to: Option<String>,
}

/// What a scan does after an answer.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Done,
    /// Goes on behind this key.
    Behind(Bytes),
    /// The identity may not list the next key.
    NotAllowed,
    /// Not even one value was read in time.
    TooSlow,
}

/// Runs the command: prints keys as they are found, until all values were read.
pub(super) async fn run(client: &mut Client, args: ScanArgs, waiting: &Waiting, json: bool) -> Result<(), CliError> {
    let last: Bytes = match &args.to {
        Some(key) => key_bytes(key)?.into(),
        // No key is longer, and so none is larger.
        None => vec![u8::MAX; 4_096].into(),
    };
    let (mut from, mut is_first) = (Bytes::from(key_bytes(&args.from)?), true);
    loop {
        let asked = Range {
            start_key: Some(from.clone()),
            end_key: Some(last.clone()),
            start_key_inclusive: Some(is_first),
            end_key_inclusive: Some(true),
            max_returned: Some(NAMED_MAX),
            ..Range::default()
        };
        let body = Body { range: Some(asked), ..Body::default() };
        let kind = Some(RequestKind::MediaScan as i32);
        let header = Header { message_type: kind, timeout: Some(time_of(waiting.wait)), ..Header::default() };
        let reply = match client.call_with(header, body, Bytes::new()).await {
            // It says how far it came.
            Ok(reply) if reply.code == Code::Expired && reply.body.range.is_some() => reply,
            reply => done(reply)?,
        };
        let found = reply.body.range.unwrap_or_default();
        show::keys(&found.keys, json)?;
        match next((&from, is_first), &last, reply.code, found.end_key) {
            Next::Done => return Ok(()),
            Next::Behind(key) => (from, is_first) = (key, false),
            Next::NotAllowed => return Err(not_allowed(waiting.identity, &from)),
            Next::TooSlow => {
                let fault = Fault::new(Blame::Limit, format!("no value was read within {} s", waiting.wait.as_secs()));
                return Err(fault.hint("give the drive longer: --wait").into());
            }
        }
    }
}

/// The drive's time for one request, in milliseconds: somewhat less than the answer is waited for.
fn time_of(wait: Duration) -> i64 {
    i64::try_from((wait - wait / 10).as_millis()).unwrap_or(i64::MAX)
}

/// `is_first`: the key from which on values were to be read was one of them. `reached`: how far the drive says that it came. Drives of
/// others may say nothing.
fn next((from, is_first): (&Bytes, bool), last: &Bytes, code: Code, reached: Option<Bytes>) -> Next {
    match (code, reached) {
        (Code::Success, None) => Next::Done,
        (Code::Success, Some(reached)) if reached == *last => Next::Done,
        (_, Some(reached)) if reached > *from => Next::Behind(reached),
        // At least one value was read, and so it was this one's.
        (Code::Expired, Some(reached)) if is_first && reached == *from => Next::Behind(reached),
        (Code::Success, _) => Next::NotAllowed,
        _ => Next::TooSlow,
    }
}

fn not_allowed(identity: i64, from: &[u8]) -> CliError {
    let what = format!("identity {identity} may not list all keys from \"{}\" on: they were not read", from.escape_ascii());
    Fault::new(Blame::Access, what).hint("name the keys that it may list: --from KEY --to KEY").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A scan that had stopped short of the end looked like one that had found nothing.
    #[test]
    fn a_scan_ends_at_the_last_key_only() {
        let key = Bytes::from_static;
        let from_a = |code, reached: Option<&'static [u8]>| next((&key(b"a"), false), &key(b"z"), code, reached.map(key));
        assert_eq!(from_a(Code::Success, Some(b"z")), Next::Done);
        assert_eq!(from_a(Code::Success, None), Next::Done);
        assert_eq!(from_a(Code::Success, Some(b"b")), Next::Behind(key(b"b")));
        assert_eq!(from_a(Code::Expired, Some(b"b")), Next::Behind(key(b"b")));
        assert_eq!(from_a(Code::Success, Some(b"a")), Next::NotAllowed);
        assert_eq!(from_a(Code::Expired, Some(b"a")), Next::TooSlow);
        let first = next((&key(b"a"), true), &key(b"z"), Code::Expired, Some(key(b"a")));
        assert_eq!(first, Next::Behind(key(b"a")), "its value was read");
        assert_eq!(time_of(Duration::from_secs(30)), 27_000);
    }
}
