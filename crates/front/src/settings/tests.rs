use super::*;

fn settings() -> Arc<ClientSettings> {
    ClientSettings::new("me", "shop", "main")
}

#[test]
fn settings_are_checked_and_kept() {
    let settings = settings();
    assert_eq!(settings.set("DateStyle", "ISO, DMY").unwrap(), Effect::Told("DateStyle"));
    assert_eq!(settings.set("datestyle", "German").unwrap_err().code, WRONG_SETTING);
    // As asyncpg writes it.
    assert!(settings.set("client_encoding", "'utf-8'").is_ok());
    assert_eq!(settings.set("client_encoding", "latin1").unwrap_err().code, WRONG_SETTING);
    assert_eq!(settings.set("nothing", "1").unwrap_err().code, UNKNOWN_SETTING);
    assert_eq!(settings.set("server_version", "9").unwrap_err().code, FIXED_SETTING);
    assert_eq!(settings.set("application_name", "x").unwrap(), Effect::Told("application_name"));
    assert_eq!(settings.show("Application_Name").as_deref(), Some("x"));
    assert_eq!(settings.changed(), ["application_name", "client_encoding", "datestyle"]);
    assert!(settings.set("timezone", "Nowhere").is_err());
    settings.set("timezone", "2").unwrap();
    assert_eq!(settings.zone().0, "+02:00");
    // As pgjdbc writes what Java calls GMT+02:00, and as it expects to be told again.
    settings.set("timezone", "GMT-02:00").unwrap();
    assert_eq!((settings.zone().0.as_str(), settings.show("TimeZone").as_deref()), ("+02:00", Some("GMT-02:00")));
    settings.set("enable_seqscan", "false").unwrap();
    assert_eq!(settings.show("enable_seqscan").as_deref(), Some("off"));
}

#[test]
fn paths_are_told_as_they_are_searched() {
    let settings = settings();
    assert_eq!(settings.show("search_path").as_deref(), Some("main"));
    assert_eq!(settings.set("search_path", "\"$user\", lab, public").unwrap(), Effect::Path);
    assert_eq!(settings.show("search_path").as_deref(), Some("lab"));
    settings.found(SearchPath { domains: vec!["me".to_owned(), "lab".to_owned()], ..SearchPath::default() });
    assert_eq!(settings.show("search_path").as_deref(), Some("me, lab"));
    let before = settings.path();
    settings.found(SearchPath::clone(&before));
    assert!(Arc::ptr_eq(&settings.path(), &before), "it has not changed");
    settings.set("search_path", "default").unwrap();
    assert_eq!(settings.wanted().first().map(|wanted| wanted.domain.as_str()), Some("main"));
}

#[test]
fn settings_of_a_block_are_told_apart() {
    assert_eq!(of_later_blocks("Transaction_Read_Only"), "default_transaction_read_only");
    assert_eq!(of_later_blocks("work_mem"), "work_mem");
    assert!(is_of_block("transaction_isolation") && !is_of_block("default_transaction_isolation"));
    assert_eq!(["On", "0", "maybe"].map(truth), [Some(true), Some(false), None]);
}

#[test]
fn blocks_have_one_write_unless_the_client_asks_for_many() {
    let settings = settings();
    assert!(!settings.many_writes() && is_of_host("pithead.statement_timeout") && !is_of_host(BLOCK_WRITES));
    assert_eq!(settings.set(BLOCK_WRITES, "two").unwrap_err().code, WRONG_SETTING);
    settings.set(BLOCK_WRITES, "many").unwrap();
    assert!(settings.many_writes());
    settings.set(BLOCK_WRITES, "default").unwrap();
    assert!(!settings.many_writes());
}

#[test]
fn clients_have_settings_of_their_own() {
    let settings = settings();
    assert_eq!(settings.show("my.var"), None);
    settings.set("My.Var", "X y").unwrap();
    assert_eq!(settings.show("my.var").as_deref(), Some("X y"));
    settings.set("my.var", "default").unwrap();
    assert_eq!(settings.show("my.var").as_deref(), Some(""));
    assert!(settings.set("my.", "1").is_err() && settings.set("my.1", "1").is_err() && is_of_host("datafusion.x"));
    for number in 1..OWN_MAX {
        settings.set(&format!("my.v{number}"), "1").unwrap();
    }
    assert_eq!(settings.set("my.more", "1").unwrap_err().code, WRONG_SETTING);
    assert!(settings.set("my.v1", "2").is_ok());
}

#[test]
fn nobody_becomes_somebody_else() {
    let settings = settings();
    for (name, value) in [("role", "none"), ("role", "me"), ("role", "default"), ("session_authorization", "default")] {
        settings.set(name, value).unwrap();
    }
    assert_eq!(
        (settings.show("role").as_deref(), settings.show("session_authorization").as_deref()),
        (Some("none"), Some("me"))
    );
    assert_eq!(settings.set("role", "pithead").unwrap_err().code, "42501");
    assert_eq!(settings.set("session_authorization", "none").unwrap_err().code, "42501");
}

#[test]
fn functions_ask_for_settings() {
    let settings = settings();
    let connection: &dyn ConnectionFacts = settings.as_ref();
    assert_eq!(connection.set("Work_Mem", "8MB", true).as_deref(), Ok("8MB"));
    assert!(connection.set("nothing", "1", false).is_err() && connection.set("bytea_output", "escape", false).is_err());
    assert_eq!((connection.show("work_mem").as_deref(), settings.show("work_mem").as_deref()), (Some("8MB"), Some("4MB")));
    assert_eq!(settings.take_asked(), [Asked { name: "work_mem".into(), value: "8MB".into(), local: true }]);
    assert_eq!((settings.take_asked(), connection.database().as_str()), (vec![], "shop"));
}

#[test]
fn blocks_tell_what_they_are() {
    let settings = settings();
    let shown = || ["transaction_isolation", "transaction_read_only"].map(|name| settings.show(name).unwrap());
    assert_eq!(shown(), ["read committed", "off"]);
    settings.set("default_transaction_isolation", "serializable").unwrap();
    settings.set("default_transaction_read_only", "yes").unwrap();
    assert_eq!(shown(), ["serializable", "on"]);
    settings.set_block(Some("repeatable read"), Some(false));
    assert_eq!(shown(), ["repeatable read", "off"]);
    settings.end_block();
    assert_eq!(shown(), ["serializable", "on"]);
}
