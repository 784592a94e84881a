//! SCRAM-SHA-256 (RFC 5802, RFC 7677) as the protocol carries it: a client proves that it has a token without sending it, bound to the
//! server's certificate where both can (RFC 5929).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pithead_entry::{Challenge, Key, Proven};
use subtle::ConstantTimeEq;

use crate::error::Complaint;
use crate::link::{Link, Read};
use crate::message::{Fields, Malformed, Message};
use crate::reply::text;
use crate::sql_state::{NOT_AUTHORIZED, PROTOCOL_VIOLATION};

/// Asks for an exchange, and names the mechanisms.
const ASK: i32 = 10;
/// Goes on with one.
const GO_ON: i32 = 11;
/// Ends one well.
const END: i32 = 12;
/// The mechanism without a binding to the certificate.
const PLAIN: &str = "SCRAM-SHA-256";
/// That with one.
const BOUND: &str = "SCRAM-SHA-256-PLUS";
/// What a binding is made of.
const END_POINT: &str = "tls-server-end-point";
/// Random bytes of the server's part of the nonce.
const NONCE_BYTES: usize = 18;

/// Why an exchange came to nothing; none: the client has gone.
type Refusal = Option<Complaint>;

/// Has a client prove its token. `end_point`: what the server's certificate binds the exchange to, where there is TLS and such a thing.
/// None: the proof is wrong.
pub(crate) async fn exchange(
    link: &mut Link,
    challenge: &Challenge,
    end_point: Option<&[u8]>,
) -> Result<Option<Proven>, Refusal> {
    send(link, ASK, &mechanisms(end_point.is_some())).await?;
    let (mechanism, first) = chosen(&answer(link).await?)?;
    let first = First::read(&mechanism, &first, end_point)?;
    let nonce = format!("{}{}", first.nonce, STANDARD.encode(rand::random::<[u8; NONCE_BYTES]>()));
    let asked = format!("r={nonce},s={},i={}", STANDARD.encode(challenge.salt()), challenge.iterations());
    send(link, GO_ON, asked.as_bytes()).await?;
    let last = Last::read(&as_text(&answer(link).await?)?, &nonce)?;
    let message = format!("{},{asked},{}", first.bare, last.without_proof);
    let is_bound = bool::from(last.binding.ct_eq(&first.binding));
    let proven = challenge.check(message.as_bytes(), &last.proof).filter(|_| is_bound);
    if let Some(proven) = &proven {
        // What follows it is sent with it.
        put(link, END, format!("v={}", STANDARD.encode(proven.server_signature)).as_bytes());
    }
    Ok(proven)
}

/// The names of the mechanisms, each with its end, and the end of the list.
fn mechanisms(bound: bool) -> Vec<u8> {
    let mut names = Vec::new();
    if bound {
        text(&mut names, BOUND);
    }
    text(&mut names, PLAIN);
    names.push(0);
    names
}

fn put(link: &mut Link, code: i32, data: &[u8]) {
    link.out.message(b'R', |out| {
        out.extend_from_slice(&code.to_be_bytes());
        out.extend_from_slice(data);
    });
}

async fn send(link: &mut Link, code: i32, data: &[u8]) -> Result<(), Refusal> {
    put(link, code, data);
    link.flush().await.map_err(|_| None)
}

/// The body of the client's next message.
async fn answer(link: &mut Link) -> Result<Vec<u8>, Refusal> {
    match link.next().await {
        Read::Message(tag, body) => match Message::read(tag, body) {
            Ok(Message::Password(bytes)) => Ok(bytes),
            Ok(Message::Terminate) => Err(None),
            _ => Err(violation("expected an answer of SASL")),
        },
        Read::Gone => Err(None),
        Read::TooLarge { .. } | Read::Malformed(_) => Err(violation("expected an answer of SASL")),
    }
}

/// The mechanism that a client chose, and its first message.
fn chosen(body: &[u8]) -> Result<(String, String), Refusal> {
    let read = |fields: &mut Fields<'_>| -> Result<_, Malformed> { Ok((fields.text()?, fields.value()?)) };
    let mut fields = Fields { rest: body };
    match read(&mut fields) {
        Ok((mechanism, Some(first))) if fields.rest.is_empty() => Ok((mechanism, as_text(&first)?)),
        Ok(_) => Err(violation("expected a mechanism of SASL and its first message")),
        Err(why) => Err(violation(&why.to_string())),
    }
}

fn as_text(bytes: &[u8]) -> Result<String, Refusal> {
    String::from_utf8(bytes.to_vec()).map_err(|_| violation("a message of SCRAM is not UTF-8"))
}

fn violation(what: &str) -> Refusal {
    Some(Complaint::fatal(PROTOCOL_VIOLATION, format!("malformed SCRAM exchange: {what}")))
}

/// A client's first message.
#[derive(Debug, PartialEq, Eq)]
struct First {
    /// Without what says how it is bound.
    bare: String,
    /// The client's part of the nonce.
    nonce: String,
    /// What the last message has to be bound to.
    binding: Vec<u8>,
}

impl First {
    /// Reads `BINDING,[AUTHORIZATION],n=USER,r=NONCE`. The user that counts is the one that the connection began with.
    fn read(mechanism: &str, message: &str, end_point: Option<&[u8]>) -> Result<First, Refusal> {
        let is_bound = match mechanism {
            PLAIN => false,
            BOUND if end_point.is_some() => true,
            other => return Err(violation(&format!("the mechanism {other:?} was not offered"))),
        };
        let mut parts = message.splitn(3, ',');
        let (Some(flag), Some(authorization), Some(bare)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(violation("the first message is cut short"));
        };
        check_flag(flag, is_bound, end_point.is_some())?;
        if !authorization.is_empty() {
            return Err(violation("nobody can be another one than the user that the connection began with"));
        }
        let header = &message[..message.len() - bare.len()];
        let bound_to = end_point.filter(|_| is_bound).unwrap_or_default();
        let binding = [header.as_bytes(), bound_to].concat();
        Ok(First { bare: bare.to_owned(), nonce: nonce(bare)?.to_owned(), binding })
    }
}

/// Whether a client is bound as its mechanism says, and is not made believe that the server cannot be.
fn check_flag(flag: &str, is_bound: bool, offered: bool) -> Result<(), Refusal> {
    match (flag, flag.strip_prefix("p=")) {
        (_, Some(END_POINT)) if is_bound => Ok(()),
        (_, Some(kind)) if is_bound => Err(violation(&format!("a binding of the kind {kind:?}; {END_POINT} is known"))),
        ("y", _) if !is_bound && offered => {
            let what = "the client takes it that the server binds no exchange to its certificate, and the server does";
            Err(Some(Complaint::fatal(NOT_AUTHORIZED, what).hint("somebody between the two may have changed what was offered")))
        }
        ("n" | "y", _) if !is_bound => Ok(()),
        _ => Err(violation("the binding does not go with the mechanism")),
    }
}

/// The client's part of the nonce, from `n=USER,r=NONCE`. What may follow is ignored, as RFC 5802 asks.
fn nonce(bare: &str) -> Result<&str, Refusal> {
    let mut attributes = bare.split(',');
    match (attributes.next().and_then(|user| user.strip_prefix("n=")), attributes.next()) {
        (Some(_), Some(nonce)) => {
            let nonce = nonce.strip_prefix("r=").filter(|nonce| is_printable(nonce));
            nonce.ok_or_else(|| violation("the first message has no nonce"))
        }
        // `m=`: an extension that has to be understood.
        _ => Err(violation("the first message does not begin with a user")),
    }
}

fn is_printable(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A client's last message.
#[derive(Debug, PartialEq, Eq)]
struct Last {
    without_proof: String,
    /// What it is bound to.
    binding: Vec<u8>,
    proof: Key,
}

impl Last {
    /// Reads `c=BINDING,r=NONCE,p=PROOF`.
    fn read(message: &str, nonce: &str) -> Result<Last, Refusal> {
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or_else(|| violation("the last message has no proof"))?;
        let mut attributes = without_proof.split(',');
        let binding = attributes.next().and_then(|binding| STANDARD.decode(binding.strip_prefix("c=")?).ok());
        let binding = binding.ok_or_else(|| violation("the last message does not begin with what it is bound to"))?;
        let same = attributes.next().and_then(|text| text.strip_prefix("r=")).is_some_and(|text| text == nonce);
        if !same {
            return Err(violation("the last message has another nonce"));
        }
        let proof = STANDARD.decode(proof).ok().and_then(|proof| Key::try_from(proof).ok());
        let proof = proof.ok_or_else(|| violation("the proof is not one of SCRAM-SHA-256"))?;
        Ok(Last { without_proof: without_proof.to_owned(), binding, proof })
    }
}

#[cfg(test)]
mod tests {
    use pithead_entry::Verifier;

    use super::*;

    /// RFC 7677, 3.
    const FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const ASKED: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const LAST: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const PENCIL: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:\
                          wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

    fn code(refusal: Refusal) -> &'static str {
        refusal.expect("the client is told").code
    }

    #[test]
    fn the_example_of_rfc_7677_is_read() {
        let first = First::read(PLAIN, FIRST, None).unwrap();
        assert_eq!((first.bare.as_str(), &first.binding[..]), ("n=user,r=rOprNGfwEbeRWgbNEkqO", &b"n,,"[..]));
        assert!(NONCE.starts_with(&first.nonce));
        let last = Last::read(LAST, NONCE).unwrap();
        assert_eq!(last.binding, first.binding);
        let challenge = Challenge::new(vec![Verifier::parse(PENCIL).unwrap()]).unwrap();
        assert_eq!(ASKED, format!("r={NONCE},s={},i={}", STANDARD.encode(challenge.salt()), challenge.iterations()));
        let message = format!("{},{ASKED},{}", first.bare, last.without_proof);
        let proven = challenge.check(message.as_bytes(), &last.proof).unwrap();
        assert_eq!(STANDARD.encode(proven.server_signature), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn bindings_go_with_their_mechanisms() {
        let there = Some(&b"end point"[..]);
        let bound = First::read(BOUND, "p=tls-server-end-point,,n=,r=abc", there).unwrap();
        assert_eq!(bound.binding, b"p=tls-server-end-point,,end point");
        // As libpq does where no binding is offered, or where it is told to use none.
        assert_eq!(First::read(PLAIN, "y,,n=,r=abc", None).unwrap().binding, b"y,,");
        assert_eq!(First::read(PLAIN, "n,,n=,r=abc", there).unwrap().binding, b"n,,");
        let refused = |mechanism, message, there| code(First::read(mechanism, message, there).unwrap_err());
        assert_eq!(refused(PLAIN, "y,,n=,r=abc", there), NOT_AUTHORIZED, "somebody has taken the other mechanism out");
        for (mechanism, message, there) in [
            (BOUND, "p=tls-server-end-point,,n=,r=abc", None),
            (BOUND, "n,,n=,r=abc", there),
            (BOUND, "p=tls-unique,,n=,r=abc", there),
            (PLAIN, "p=tls-server-end-point,,n=,r=abc", there),
            ("SCRAM-SHA-1", "n,,n=,r=abc", there),
            (PLAIN, "n,a=other,n=,r=abc", there),
            (PLAIN, "n,,m=x,n=,r=abc", there),
            (PLAIN, "n,,n=,r=", there),
            (PLAIN, "n,,n=,r=a b", there),
            (PLAIN, "n,,n=", there),
            (PLAIN, "n", there),
            (PLAIN, "", there),
        ] {
            assert_eq!(refused(mechanism, message, there), PROTOCOL_VIOLATION, "{message}");
        }
    }

    #[test]
    fn last_messages_are_read_whole_or_refused() {
        for wrong in [
            "",
            "c=biws",
            &LAST[..LAST.len() - 4],
            &LAST.replace("k0", "k1"),
            &LAST.replace("c=biws", "c=?"),
            &LAST.replace("c=biws,", ""),
            &LAST.replace("dHzb", ""),
        ] {
            assert_eq!(code(Last::read(wrong, NONCE).unwrap_err()), PROTOCOL_VIOLATION, "{wrong}");
        }
    }

    #[test]
    fn messages_name_their_mechanism() {
        assert_eq!(mechanisms(true), b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0");
        assert_eq!(mechanisms(false), b"SCRAM-SHA-256\0\0");
        let good = b"SCRAM-SHA-256\0\0\0\0\x03n,,";
        assert_eq!(chosen(good).unwrap(), ("SCRAM-SHA-256".to_owned(), "n,,".to_owned()));
        for cut in 0..good.len() {
            assert_eq!(code(chosen(&good[..cut]).unwrap_err()), PROTOCOL_VIOLATION, "{cut}");
        }
        for wrong in [&b"x\0\xff\xff\xff\xff"[..], b"x\0\0\0\0\x01\xff", b"x\0\0\0\0\0y", b"x\0\x7f\xff\xff\xff"] {
            assert!(chosen(wrong).is_err(), "{wrong:?}");
        }
    }
}
