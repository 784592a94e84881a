//! What access files say, and what they must not say.

use super::*;

fn file() -> (Token, String) {
    let token = Token::random();
    let text = format!(
        "# who may do what\n[[identity]]\nname = \"reports\"\ntoken = \"{}\"\nread = [\"main\"]\nwrite = [\"staging\"]\n\
         [[identity]]\nname = \"ops\"\ncertificate = \"ops.example\"\nadminister = [\"*\"]\n",
        token.hash()
    );
    (token, text)
}

#[test]
fn rights_go_by_domain_and_higher_ones_include_lower_ones() {
    let (token, text) = file();
    let access = Access::parse(&text).unwrap();
    let reports = access.by_token(token.text().as_bytes()).unwrap();
    let may = |right, domain| reports.may(right, domain);
    assert!(may(Right::Read, "main") && !may(Right::Write, "main") && !may(Right::Administer, "main"));
    assert!(may(Right::Read, "staging") && may(Right::Write, "staging") && !may(Right::Administer, "staging"));
    assert!(!may(Right::Read, "other") && !may(Right::Read, "*"));
    let ops = access.by_certificate(&["x".into(), "ops.example".into()]).unwrap();
    assert!(ops.may(Right::Administer, "any") && ops.may(Right::Read, "any"));
    let fault = reports.check(Right::Write, "main").unwrap_err();
    assert_eq!(fault.blame, Blame::Access);
    assert!(fault.message.contains("reports") && fault.message.contains("write") && fault.message.contains("main"), "{fault}");
}

#[test]
fn strangers_are_nobody() {
    let (token, text) = file();
    let access = Access::parse(&text).unwrap();
    let hash = token.hash();
    for other in [Token::random().text(), "", "reports", &hash] {
        assert_eq!(access.by_token(other.as_bytes()), None);
    }
    assert_eq!(access.by_certificate(&[]), None);
    assert_eq!(access.by_certificate(&["reports".into()]), None);
    assert_eq!(Access::parse("").unwrap().by_token(b""), None);
}

#[test]
fn an_identity_may_have_several_tokens() {
    let (token, text) = file();
    let next = Token::random();
    let added = format!("{text}[[identity]]\nname = \"reports\"\ntoken = \"{}\"\n", next.hash());
    let access = Access::parse(&added).unwrap();
    let by = |token: &Token| access.by_token(token.text().as_bytes()).cloned();
    assert!(by(&token).is_some() && by(&token) == by(&next));
    assert!(access.has_name("reports") && !access.has_name("other"));
    let twice = format!("{added}[[identity]]\nname = \"ops\"\ntoken = \"{}\"\n", next.hash());
    assert!(Access::parse(&twice).unwrap_err().to_string().contains("share"));
}

#[test]
fn rights_to_modules_are_apart_from_those_to_domains() {
    let (token, text) = file();
    let text = text.replacen("write = [\"staging\"]", "run_programs = [\"count\"]\nload_programs = [\"mine\"]", 1);
    let access = Access::parse(&text).unwrap();
    let reports = access.by_token(token.text().as_bytes()).unwrap();
    let may = |right, module| reports.may_program(right, module);
    assert!(may(ProgramRight::Run, "count") && !may(ProgramRight::Load, "count"));
    assert!(may(ProgramRight::Run, "mine") && may(ProgramRight::Load, "mine") && !may(ProgramRight::Run, "other"));
    let fault = reports.check_program(ProgramRight::Load, "count").unwrap_err();
    assert!(fault.blame == Blame::Access && fault.hint.unwrap().contains("load_programs"));
    let ops = access.by_certificate(&["ops.example".to_owned()]).unwrap();
    assert!(ops.may(Right::Administer, "main") && !ops.may_program(ProgramRight::Run, "count"));
    assert!(Identity::anyone().may_program(ProgramRight::Load, "any"));
    let twice = format!("{text}[[identity]]\nname = \"ops\"\ntoken = \"{}\"\nrun_programs = [\"*\"]\n", Token::random().hash());
    assert!(Access::parse(&twice).unwrap_err().to_string().contains("named twice"));
}

#[test]
fn a_file_that_cannot_be_meant_is_refused() {
    let (_, text) = file();
    let twice = format!("{text}[[identity]]\nname = \"ops\"\ncertificate = \"b\"\n");
    let same_certificate = format!("{text}[[identity]]\nname = \"ops2\"\ncertificate = \"ops.example\"\n");
    let cases = [
        ("name = 3", "access file"),
        ("[[identity]]\nname = \"a\"", "neither"),
        ("[[identity]]\nname = \"\"\ncertificate = \"a\"", "not a name"),
        ("[[identity]]\nname = \"a\"\ntoken = \"secret\"", "not a hash"),
        ("[[identity]]\nname = \"a\"\ncertificate = \"a\"\nreads = []", "reads"),
        (twice.as_str(), "named twice"),
        (same_certificate.as_str(), "share"),
    ];
    for (text, expected) in cases {
        let fault = Access::parse(text).unwrap_err();
        assert!(fault.blame == Blame::User && fault.to_string().contains(expected), "{text}: {fault}");
    }
}

/// The line of an entry that proves a token.
fn scram(verifier: &Verifier) -> String {
    format!("scram = \"{verifier}\"\n")
}

#[test]
fn tokens_are_proven_where_the_file_has_all_of_a_name() {
    let (token, text) = file();
    let plain = Access::parse(&text).unwrap();
    assert!(["reports", "ops", "nobody"].iter().all(|name| plain.challenge(name).is_none()), "no proof is kept at all");
    let one = plain.verifier("reports", &token);
    let proving = text.replacen("read = ", &format!("{}read = ", scram(&one)), 1);
    let access = Access::parse(&proving).unwrap();
    let asked = access.challenge("reports").unwrap();
    assert_eq!((asked.salt(), asked.iterations()), (&one.salting.salt[..], one.salting.iterations));
    assert!(access.by_token(token.text().as_bytes()).is_some(), "the token itself is known, too");

    // Names without a token, and those of nobody, are asked as others are: always the same.
    let ask = |access: &Access, name: &str| access.challenge(name).unwrap().salt().to_vec();
    for name in ["ops", "nobody", ""] {
        assert!(ask(&access, name).len() == 16 && ask(&access, name) == ask(&Access::parse(&proving).unwrap(), name));
    }
    assert!(ask(&access, "ops") != ask(&access, "nobody"));

    // A second token has the same salt, so that either can be proven; without a proof of it, tokens are sent as before.
    let next = Token::random();
    let two = access.verifier("reports", &next);
    assert!(two.salting == one.salting && two != one);
    let added = format!("{proving}[[identity]]\nname = \"reports\"\ntoken = \"{}\"\n", next.hash());
    assert!(Access::parse(&added).unwrap().challenge("reports").is_none());
    let both = Access::parse(&format!("{added}{}", scram(&two))).unwrap();
    assert_eq!(both.challenge("reports"), Challenge::new(vec![one, two]));

    // One with another salt could never be proven.
    let other = scram(&plain.verifier("reports", &next));
    let fault = Access::parse(&format!("{added}{other}")).unwrap_err();
    assert!(fault.message.contains("salts") && fault.hint.unwrap().contains("pithead token"));
}

/// Who asked for a name before and after any edit of the file saw whether somebody has it.
#[test]
fn names_that_nobody_has_are_asked_the_same_after_edits() {
    let entry = |name: &str, token: &Token| {
        let line = scram(&Access::default().verifier(name, token));
        format!("[[identity]]\nname = \"{name}\"\ntoken = \"{}\"\n{line}", token.hash())
    };
    let [one, two, three] = ["one", "two", "three"].map(|name| entry(name, &Token::random()));
    let ask = |text: &str| Access::parse(text).unwrap().challenge("nobody").unwrap().salt().to_vec();
    let before = ask(&format!("{one}{two}"));
    assert_eq!(ask(&format!("{one}{two}{three}")), before);
    assert_eq!(ask(&format!("{one}{two}{}", entry("four", &Token::random()))), before);
    assert!(ask(&format!("{one}{three}")) != before);
}

#[test]
fn a_key_that_was_proven_is_known_for_as_long_as_the_file_has_it() {
    let (token, text) = file();
    let verifier = Access::default().verifier("reports", &token);
    let proving = text.replacen("read = ", &format!("{}read = ", scram(&verifier)), 1);
    let access = Access::parse(&proving).unwrap();
    let key = verifier.client_key(token.text());
    assert_eq!(access.by_client_key(&key).unwrap().name, "reports");
    assert!(access.by_client_key(&[0; 32]).is_none() && access.by_client_key(&verifier.stored_key).is_none());
    assert!(Access::parse(&text).unwrap().by_client_key(&key).is_none());
    assert!(access.by_token(&key).is_none(), "it is no token");
}

#[test]
fn proofs_that_cannot_be_meant_are_refused() {
    let (token, text) = file();
    let line = scram(&Access::default().verifier("reports", &token));
    let other = Token::random();
    let stolen = format!("{text}[[identity]]\nname = \"thief\"\ntoken = \"{}\"\n{line}", other.hash());
    let cases = [
        (text.replacen("read = ", "scram = \"SCRAM-SHA-1$1:a$b:c\"\nread = ", 1), "SCRAM-SHA-256$4096"),
        (text.replacen("certificate", &format!("{line}certificate"), 1), "no token"),
        (stolen.replacen("read = ", &format!("{line}read = "), 1), "share"),
    ];
    for (text, expected) in cases {
        let fault = Access::parse(&text).unwrap_err();
        assert!(fault.blame == Blame::User && fault.to_string().contains(expected), "{text}: {fault}");
    }
    // It says nothing that a person should not see.
    let access = Access::parse(&text.replacen("read = ", &format!("{line}read = "), 1)).unwrap();
    assert!(!format!("{access:?}").contains(&line[40..60]));
}
