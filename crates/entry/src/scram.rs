//! SCRAM-SHA-256 (RFC 5802, RFC 7677), as far as it is arithmetic: what a server keeps of a secret, and how a client proves that it has the
//! secret without sending it.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// What a verifier's text begins with: PostgreSQL writes them so, too.
const SCHEME: &str = "SCRAM-SHA-256";
/// Rounds of hashing between a secret and its keys, for verifiers that are made here. Tokens are random, so that no more are needed.
const ITERATIONS: u32 = 4_096;
/// Rounds that a verifier of a file may ask for. RFC 7677 wants 4,096 at least; clients do them, and may be slow.
const ITERATIONS_ALLOWED: std::ops::RangeInclusive<u32> = 4_096..=1_000_000;
/// Bytes of a salt that is made here.
const SALT_BYTES: usize = 16;
/// Bytes of a salt of a file, at most: as many as an invented one can have.
const SALT_BYTES_MAX: usize = 32;

/// Bytes of a key, a proof, a signature.
pub type Key = [u8; 32];

/// What is kept of a secret. The secret cannot be found from it; but who has it can pretend to be the server.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    pub(crate) salting: Salting,
    pub(crate) stored_key: Key,
    pub(crate) server_key: Key,
}

/// How a secret becomes keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Salting {
    pub(crate) salt: Vec<u8>,
    pub(crate) iterations: u32,
}

/// A question to somebody who says a name, and the answers that are right. Who has that name may have several secrets, and an answer is
/// looked at once for each. Nobody may have it: then the question looks like those for names with a secret, as far as all of these have
/// salts of one length and as many rounds, as [`Verifier::new`] makes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    salting: Salting,
    verifiers: Vec<Verifier>,
}

/// A proof that was right.
#[derive(Debug, PartialEq, Eq)]
pub struct Proven {
    /// The client's key, which only those have who know the secret.
    pub(crate) client_key: Key,
    /// What proves to the client that the server knows it, too.
    pub server_signature: Key,
}

impl Salting {
    /// A salt that nobody else has.
    pub(crate) fn random() -> Salting {
        Salting { salt: rand::random::<[u8; SALT_BYTES]>().to_vec(), iterations: ITERATIONS }
    }

    /// The same for everybody who asks for a name that nobody has; as long as this one, and with as many rounds.
    fn invented(&self, secret: &Key, name: &str) -> Salting {
        let salt = hmac(secret, &[b"salt", name.as_bytes()]);
        Salting { salt: salt[..self.salt.len().min(SALT_BYTES_MAX)].to_vec(), iterations: self.iterations }
    }
}

impl Verifier {
    /// That of a secret in ASCII. Others would have to be prepared by SASLprep (RFC 4013) first.
    pub(crate) fn new(secret: &str, salting: Salting) -> Verifier {
        let salted = salted(secret, &salting);
        let client_key = hmac(&salted, &[b"Client Key"]);
        Verifier { salting, stored_key: Sha256::digest(client_key).into(), server_key: hmac(&salted, &[b"Server Key"]) }
    }

    /// Reads what [`Verifier`]'s `Display` writes: `SCRAM-SHA-256$4096:salt$stored key:server key`, the three in base64.
    pub fn parse(text: &str) -> Option<Verifier> {
        let (scheme, rest) = text.split_once('$')?;
        let (salting, keys) = rest.split_once('$')?;
        let ((iterations, salt), (stored_key, server_key)) = (salting.split_once(':')?, keys.split_once(':')?);
        let iterations = iterations.parse().ok().filter(|iterations| ITERATIONS_ALLOWED.contains(iterations))?;
        let salt = STANDARD.decode(salt).ok().filter(|salt| (1..=SALT_BYTES_MAX).contains(&salt.len()))?;
        let key = |text: &str| Key::try_from(STANDARD.decode(text).ok()?).ok();
        let (stored_key, server_key) = (key(stored_key)?, key(server_key)?);
        (scheme == SCHEME).then_some(Verifier { salting: Salting { salt, iterations }, stored_key, server_key })
    }

    /// The client's key and the server's signature, where a proof over a message is right.
    fn check(&self, message: &[u8], proof: &Key) -> Option<Proven> {
        let signature = hmac(&self.stored_key, &[message]);
        let client_key: Key = std::array::from_fn(|place| proof[place] ^ signature[place]);
        let server_signature = hmac(&self.server_key, &[message]);
        bool::from(Key::from(Sha256::digest(client_key)).ct_eq(&self.stored_key))
            .then_some(Proven { client_key, server_signature })
    }
}

#[cfg(test)]
impl Verifier {
    /// The client's key of a secret, salted as this one.
    pub(crate) fn client_key(&self, secret: &str) -> Key {
        hmac(&salted(secret, &self.salting), &[b"Client Key"])
    }
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Salting { salt, iterations } = &self.salting;
        let [salt, stored, server] = [&salt[..], &self.stored_key, &self.server_key].map(|bytes| STANDARD.encode(bytes));
        write!(f, "{SCHEME}${iterations}:{salt}${stored}:{server}")
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier(…)")
    }
}

impl Challenge {
    /// For somebody with these verifiers. There is one salt in a question, that of the first: all are to have the same.
    pub fn new(verifiers: Vec<Verifier>) -> Option<Challenge> {
        let salting = verifiers.first()?.salting.clone();
        Some(Challenge { salting, verifiers })
    }

    /// For a name that nobody has, with a salt and rounds like those of a verifier. `secret` makes it up, and nobody knows an answer.
    pub(crate) fn invented(like: &Verifier, secret: &Key, name: &str) -> Challenge {
        let key = |what: &[u8]| hmac(secret, &[what, name.as_bytes()]);
        let salting = like.salting.invented(secret, name);
        let verifier = Verifier { salting: salting.clone(), stored_key: key(b"stored"), server_key: key(b"server") };
        Challenge { salting, verifiers: vec![verifier] }
    }

    /// The salt.
    pub fn salt(&self) -> &[u8] {
        &self.salting.salt
    }

    /// How many rounds of hashing.
    pub fn iterations(&self) -> u32 {
        self.salting.iterations
    }

    /// Whether a proof over the exchange's message is right. All secrets are tried, whether or not one fits.
    pub fn check(&self, message: &[u8], proof: &Key) -> Option<Proven> {
        let mut proven = None;
        for verifier in &self.verifiers {
            proven = verifier.check(message, proof).or(proven);
        }
        proven
    }
}

/// A number that nobody finds who does not know all of these verifiers.
pub(crate) fn secret_of<'a>(verifiers: impl IntoIterator<Item = &'a Verifier>) -> Key {
    let mut hash = Sha256::new();
    for verifier in verifiers {
        hash.update(verifier.stored_key);
        hash.update(verifier.server_key);
    }
    hash.finalize().into()
}

/// HMAC-SHA-256 over parts that follow each other.
pub(crate) fn hmac(key: &[u8], parts: &[&[u8]]) -> Key {
    let mut mac = keyed(key);
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    // HMAC takes keys of every length: `new_from_slice` fails for other constructions only.
    let Ok(mac) = Hmac::<Sha256>::new_from_slice(key) else { unreachable!("HMAC takes keys of every length") };
    mac
}

/// `Hi` of RFC 5802: the first block of PBKDF2.
fn salted(secret: &str, salting: &Salting) -> Key {
    let mac = keyed(secret.as_bytes());
    let next = |parts: &[&[u8]]| -> Key {
        let mut mac = mac.clone();
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes().into()
    };
    let mut last = next(&[&salting.salt, &1_u32.to_be_bytes()]);
    let mut sum = last;
    for _ in 1..salting.iterations {
        last = next(&[&last]);
        sum.iter_mut().zip(last).for_each(|(sum, last)| *sum ^= last);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7677, 3: the password is `pencil`.
    const SALT: &str = "W22ZaJ0SNY7soEsUEjb6gQ==";
    const MESSAGE: &[u8] = b"n=user,r=rOprNGfwEbeRWgbNEkqO,\
        r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
        c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";

    fn pencil() -> Verifier {
        Verifier::new("pencil", Salting { salt: STANDARD.decode(SALT).unwrap(), iterations: 4_096 })
    }

    fn key(text: &str) -> Key {
        STANDARD.decode(text).unwrap().try_into().unwrap()
    }

    #[test]
    fn the_example_of_rfc_7677_is_proven() {
        let proof = key("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        let challenge = Challenge::new(vec![pencil()]).unwrap();
        let proven = challenge.check(MESSAGE, &proof).unwrap();
        assert_eq!(proven.server_signature, key("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="));
        assert_eq!(Key::from(Sha256::digest(proven.client_key)), pencil().stored_key);
        let mut wrong = proof;
        wrong[31] ^= 1;
        assert!(challenge.check(MESSAGE, &wrong).is_none() && challenge.check(&MESSAGE[1..], &proof).is_none());
        assert!(challenge.check(MESSAGE, &[0; 32]).is_none());
    }

    #[test]
    fn verifiers_are_written_as_postgresql_writes_them() {
        // What PostgreSQL keeps of a role whose password is `pencil`, with this salt.
        let text = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
                    WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
        assert_eq!(pencil().to_string(), text);
        assert_eq!(Verifier::parse(text).unwrap(), pencil());
        for wrong in [
            "",
            "SCRAM-SHA-256",
            &text[..text.len() - 4],
            &text.replace("SHA-256", "SHA-1"),
            &text.replace("4096", "4095"),
            &text.replace("4096", "-1"),
            &text.replace("W22Z", "?"),
            &text.replace("W22ZaJ0SNY7soEsUEjb6gQ==", ""),
            &text.replace("wfPL", ""),
            &format!("{text}="),
        ] {
            assert_eq!(Verifier::parse(wrong), None, "{wrong}");
        }
        assert!(!format!("{:?}", pencil()).contains("WG5d"));
    }

    #[test]
    fn each_of_several_secrets_proves_who_it_is() {
        let salting = Salting::random();
        let verifiers = ["one", "two"].map(|secret| Verifier::new(secret, salting.clone()));
        let challenge = Challenge::new(verifiers.to_vec()).unwrap();
        for secret in ["one", "two"] {
            let client_key = hmac(&salted(secret, &salting), &[b"Client Key"]);
            let signature = hmac(&Key::from(Sha256::digest(client_key)), &[b"message"]);
            let proof = std::array::from_fn(|place| client_key[place] ^ signature[place]);
            assert_eq!(challenge.check(b"message", &proof).unwrap().client_key, client_key);
        }
        assert!(Challenge::new(vec![]).is_none());
    }

    #[test]
    fn names_that_nobody_has_are_asked_like_others() {
        let (like, secret) = (pencil(), secret_of(&[pencil()]));
        let ask = |name: &str| Challenge::invented(&like, &secret, name);
        assert_eq!((ask("a").salt().len(), ask("a").iterations()), (16, 4_096));
        assert!(ask("a") == ask("a") && ask("a").salt() != ask("b").salt());
        assert!(ask("a").salt() != Challenge::invented(&like, &[0; 32], "a").salt());
        let proof = key("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        assert!(ask("a").check(MESSAGE, &proof).is_none());
    }
}
