//! Cookies (RFC 6265), by which clients say which session of Flight's a call belongs to.

use bytes::Bytes;
use tonic::metadata::MetadataMap;

/// The name that Flight suggests for it.
const COOKIE: &str = "arrow_flight_session_id";

/// The session that a call says it belongs to.
pub(crate) fn session_of(headers: &MetadataMap) -> Option<Bytes> {
    let cookies = headers.get_all("cookie").iter().filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(';'));
    let mut ours = cookies.filter_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='));
    ours.next().map(|value| handle(value.trim_matches('"')))
}

/// The handle of a cookie's value. What is none becomes one that nothing is kept under.
fn handle(text: &str) -> Bytes {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect::<Option<Vec<u8>>>().unwrap_or_default().into()
}

/// The cookie of a session.
pub(crate) fn cookie(handle: &[u8]) -> String {
    let digits: String = handle.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{COOKIE}={digits}")
}

/// The cookie that takes it away from a client.
pub(crate) fn no_cookie(handle: &[u8]) -> String {
    format!("{}; Max-Age=0", cookie(handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_found_among_others() {
        let found = |cookies: &[&str]| {
            let mut headers = MetadataMap::new();
            for text in cookies {
                headers.append("cookie", text.parse().unwrap());
            }
            session_of(&headers)
        };
        let handle = [0x0a, 0xff];
        assert_eq!(found(&[&cookie(&handle)]).unwrap(), &handle[..]);
        assert_eq!(found(&["a=b; arrow_flight_session_id=0aff;c=d"]).unwrap(), &handle[..]);
        assert_eq!(found(&["a=b", "arrow_flight_session_id=\"0AFF\""]).unwrap(), &handle[..]);
        assert_eq!(found(&[]), None);
        assert_eq!(found(&["xarrow_flight_session_id=0aff; arrow_flight_session_idx=1"]), None);
        // It says that it belongs to a session, and there is none like it.
        for wrong in ["arrow_flight_session_id=", "arrow_flight_session_id=0af", "arrow_flight_session_id=zz"] {
            assert_eq!(found(&[wrong]).unwrap(), &b""[..]);
        }
        assert_eq!(no_cookie(&handle), "arrow_flight_session_id=0aff; Max-Age=0");
    }
}
