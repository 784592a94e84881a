//! The objects of a bucket, and those that a pattern matches: answers to `ListObjectsV2`.

use std::io::Read;

use glob::{MatchOptions, Pattern};
use pithead_model::{Blame, Fault};

use super::address::S3Address;
use super::answer::refused;
use super::client::Client;
use super::request::Request;
use super::trouble::{Tries, Trouble, odd};
use super::xml::{decoded, element, element_and_rest, unescaped};

/// Answers to one question, of a thousand keys each.
const ANSWERS_MAX: usize = 1_000;
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// As patterns of files of this machine: `*` does not reach into folders, `**` does.
const MATCHING: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: false };

/// The objects that a pattern matches, in the order of their keys; or the one that has the pattern as its key.
pub(crate) fn list(client: &Client, address: &S3Address) -> Result<Vec<S3Address>, Fault> {
    let wrong = |error: glob::PatternError| Fault::invalid(format!("{address} is not a pattern for files: {error}"));
    let pattern = Pattern::new(&address.key).map_err(wrong)?;
    let mut keys = Vec::new();
    let mut is_key = false;
    objects(client, &address.bucket, address.prefix(), &mut |object| {
        is_key |= object.key == address.key;
        if pattern.matches_with(&object.key, MATCHING) {
            keys.push(object.key);
        }
        true
    })?;
    if is_key {
        // As with files: what there is by that name is meant by it.
        return Ok(vec![address.clone()]);
    }
    keys.sort_unstable();
    keys.dedup();
    match keys.is_empty() {
        true => Err(Fault::invalid(format!("no object matches {address}"))),
        false => Ok(keys.into_iter().map(|key| S3Address { key, bucket: address.bucket.clone() }).collect()),
    }
}

/// Gives all objects whose keys begin so to a sink, which says whether it wants more. What stands for a folder is none.
pub(crate) fn objects(
    client: &Client,
    bucket: &str,
    prefix: &str,
    sink: &mut dyn FnMut(ListedObject) -> bool,
) -> Result<(), Fault> {
    let name = format!("s3://{bucket}/{prefix}");
    let mut from: Option<String> = None;
    for _ in 0..ANSWERS_MAX {
        let page = page(client, bucket, prefix, from.as_deref(), &name)?;
        if !page.objects.into_iter().filter(|object| !object.key.ends_with('/')).all(&mut *sink) {
            return Ok(());
        }
        match page.next {
            Some(next) if from.as_ref() != Some(&next) => from = Some(next),
            Some(_) => return Err(odd(&name, "the server lists the same keys again and again")),
            None => return Ok(()),
        }
    }
    let fault = Fault::new(Blame::Limit, format!("more than a million keys begin with {name}"));
    Err(fault.hint("name more of the keys, such as another folder"))
}

/// An object as a list tells of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ListedObject {
    pub(crate) key: String,
    pub(crate) bytes: Option<u64>,
    /// As answers for the object give it: within quotation marks.
    pub(crate) etag: Option<String>,
    pub(crate) changed: String,
}

/// Some keys, and where the next ones begin.
#[derive(Debug, Default, PartialEq, Eq)]
struct Page {
    objects: Vec<ListedObject>,
    next: Option<String>,
}

fn page(client: &Client, bucket: &str, prefix: &str, from: Option<&str>, name: &str) -> Result<Page, Fault> {
    let mut tries = Tries::new(name, client.patience);
    loop {
        let request = client.s3.listing(bucket, prefix, from)?;
        match ask(client, &request, name) {
            Ok(text) => return Page::read(&text).ok_or_else(|| odd(name, "the server's list of keys cannot be read")),
            Err(trouble) => tries.again(trouble)?,
        }
    }
}

fn ask(client: &Client, request: &Request, name: &str) -> Result<String, Trouble> {
    let response = client.send(request, &[], Some(client.patience.piece)).map_err(|error| Trouble::of(name, &error))?;
    if response.status() != http::StatusCode::OK {
        return Err(refused(response, name, Some(&client.s3)));
    }
    let mut text = Vec::new();
    let read = response.into_body().into_reader().take(ANSWER_BYTES_MAX).read_to_end(&mut text);
    read.map_err(|error| Trouble::in_body(&error))?;
    String::from_utf8(text).map_err(|_| Trouble::Lasting(odd(name, "the server's list of keys is no text")))
}

impl Page {
    /// Takes an answer apart; none: it is not one, or not all of one.
    fn read(text: &str) -> Option<Page> {
        let all = element(text, "ListBucketResult")?;
        let is_encoded = element(all, "EncodingType").is_some_and(|how| how == "url");
        let mut page = Page::default();
        let mut rest = all;
        while let Some((object, after)) = element_and_rest(rest, "Contents") {
            let key = unescaped(element(object, "Key")?);
            page.objects.push(ListedObject {
                key: if is_encoded { decoded(&key)? } else { key.into_owned() },
                bytes: element(object, "Size").and_then(|bytes| bytes.trim().parse().ok()),
                etag: element(object, "ETag").map(|etag| quoted(&unescaped(etag))).filter(|etag| etag.len() > 2),
                changed: element(object, "LastModified").unwrap_or_default().trim().to_owned(),
            });
            rest = after;
        }
        // One that has no end.
        if rest.contains("<Contents") {
            return None;
        }
        if element(all, "IsTruncated").is_some_and(|more| more == "true") {
            page.next = Some(unescaped(element(all, "NextContinuationToken")?).into_owned());
        }
        Some(page)
    }
}

/// An ETag within quotation marks, which some servers leave out in lists.
fn quoted(etag: &str) -> String {
    format!("\"{}\"", etag.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_answer_is_read_or_refused(text in "(<(/?)(ListBucketResult|Contents|Key|IsTruncated|EncodingType|a)( |/)?>|url|true|%[0-9a-f]{0,2}|&#?x?[0-9a-z]{0,4};?|é|[<>&/]){0,30}") {
            let _ = Page::read(&text);
            let _ = Page::read(&format!("<ListBucketResult>{text}</ListBucketResult>"));
        }
    }

    #[test]
    fn keys_are_read_as_servers_write_them() {
        let text = "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://s3/\"><Name>lake</Name><EncodingType>url</EncodingType>\
            <IsTruncated>true</IsTruncated><Contents><Key>a%20b/S%C3%A3o+1.csv</Key><Size>3</Size>\
            <ETag>&quot;x-2&quot;</ETag><LastModified>2026-01-02T03:04:05.000Z</LastModified></Contents>\
            <Contents><Key>c</Key><Owner><ID>x</ID></Owner></Contents><NextContinuationToken>t/=&amp;</NextContinuationToken></ListBucketResult>";
        let page = Page::read(text).unwrap();
        let first = ListedObject {
            key: "a b/São 1.csv".into(),
            bytes: Some(3),
            etag: Some("\"x-2\"".into()),
            changed: "2026-01-02T03:04:05.000Z".into(),
        };
        let key = |key: &str| ListedObject { key: key.into(), ..ListedObject::default() };
        assert_eq!(page, Page { objects: vec![first, key("c")], next: Some("t/=&".into()) });
        let plain = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a&amp;b%+&#39;</Key></Contents></ListBucketResult>";
        assert_eq!(Page::read(plain).unwrap(), Page { objects: vec![key("a&b%+'")], next: None });
        assert_eq!(Page::read("<ListBucketResult></ListBucketResult>").unwrap(), Page::default());
    }

    #[test]
    fn what_is_no_list_or_not_all_of_it_is_refused() {
        for text in [
            "",
            "<html>no</html>",
            "<ListBucketResult><Contents><Key>a</Key></Contents>",
            "<ListBucketResult><Contents></Contents></ListBucketResult>",
            "<ListBucketResult><Contents><Key>a</Key></ListBucketResult>",
            "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
            "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%f</Key></Contents></ListBucketResult>",
            "<ListBucketResult",
        ] {
            assert_eq!(Page::read(text), None, "{text}");
        }
    }
}
