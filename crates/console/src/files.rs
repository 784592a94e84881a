//! The page's files, which are parts of the program: nothing is asked of other servers.

use hyper::StatusCode;

use crate::refused::{Reply, reply};

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Path, type and bytes of each file.
const FILES: &[(&str, &str, &[u8])] = &[
    ("/", "text/html; charset=utf-8", include_bytes!("page/index.html")),
    ("/console.css", "text/css; charset=utf-8", include_bytes!("page/console.css")),
    ("/main.js", SCRIPT, include_bytes!("page/main.js")),
    ("/dom.js", SCRIPT, include_bytes!("page/dom.js")),
    ("/units.js", SCRIPT, include_bytes!("page/units.js")),
    ("/server.js", SCRIPT, include_bytes!("page/server.js")),
    ("/drives.js", SCRIPT, include_bytes!("page/drives.js")),
    ("/traffic.js", SCRIPT, include_bytes!("page/traffic.js")),
    ("/statements.js", SCRIPT, include_bytes!("page/statements.js")),
    ("/plan.js", SCRIPT, include_bytes!("page/plan.js")),
    ("/query.js", SCRIPT, include_bytes!("page/query.js")),
    ("/icon.svg", "image/svg+xml", include_bytes!("page/icon.svg")),
];

/// The file of a path.
pub(crate) fn find(path: &str) -> Option<Reply> {
    let (_, kind, bytes) = FILES.iter().find(|(known, ..)| *known == path)?;
    Some(reply(StatusCode::OK, kind, *bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the page names of itself is there, and nothing else is named: no address, no inline script, no inline style.
    #[test]
    fn the_page_is_whole_and_names_nothing_outside() {
        for (path, _, bytes) in FILES {
            let text = std::str::from_utf8(bytes).unwrap();
            let allowed = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!allowed.contains("http://") && !allowed.contains("https://"), "{path} names an address");
            assert!(!text.contains("innerHTML") && !text.contains("eval("), "{path} makes markup or code of texts");
            let is_path = |part: &&str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"./_-".contains(&byte));
            for part in text.split('"').filter(|part| part.starts_with(['.', '/'])).filter(is_path) {
                let named = part.trim_start_matches('.');
                assert!(named.starts_with("/api/") || find(named).is_some(), "{path} names {part}");
            }
        }
        let page = std::str::from_utf8(FILES[0].2).unwrap();
        assert!(!page.contains("<style") && !page.contains("style=") && !page.contains("onclick"));
        assert_eq!(page.matches("<script").count(), page.matches("<script type=\"module\" src=\"").count());
    }
}
