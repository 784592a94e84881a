//! What `pithead kv` prints.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use pithead_kinetic::RequestKind;
use pithead_kinetic::proto::{Configuration, GetLog, Interface, KeyValue, LogLimits};
use serde_json::{Map, Value, json};

use crate::error::CliError;

/// Bytes in JSON: as text under this name, or under another one where they are no text.
fn put_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_base64"), STANDARD.encode(bytes).into()),
    };
}

fn print(json: &Value) -> Result<(), CliError> {
    Ok(writeln!(std::io::stdout(), "{json}")?)
}

fn described(entry: &KeyValue) -> Map<String, Value> {
    let mut object = Map::new();
    let fields = [("key", &entry.key), ("version", &entry.db_version), ("tag", &entry.tag)];
    for (name, bytes) in fields {
        put_bytes(&mut object, name, bytes.as_deref().unwrap_or_default());
    }
    object.insert("algorithm".to_owned(), entry.algorithm.into());
    object
}

/// A value, just its bytes; in JSON with what is said of it.
pub(super) fn value(entry: &KeyValue, value: &[u8], json: bool) -> Result<(), CliError> {
    if !json {
        let mut stdout = std::io::stdout();
        stdout.write_all(value)?;
        return Ok(stdout.flush()?);
    }
    let mut object = described(entry);
    put_bytes(&mut object, "value", value);
    print(&Value::Object(object))
}

/// A key on a line of its own, and then its value.
pub(super) fn key_and_value(entry: &KeyValue, bytes: &[u8]) -> Result<(), CliError> {
    writeln!(std::io::stdout(), "{}", entry.key.as_deref().unwrap_or_default().escape_ascii())?;
    value(entry, bytes, false)
}

/// What is said of a value.
pub(super) fn metadata(entry: &KeyValue, json: bool) -> Result<(), CliError> {
    if json {
        return print(&Value::Object(described(entry)));
    }
    let text = |bytes: &Option<Bytes>| bytes.as_deref().unwrap_or_default().escape_ascii().to_string();
    let algorithm = entry.algorithm.map_or("none".to_owned(), |algorithm| algorithm.to_string());
    let (key, version, tag) = (text(&entry.key), text(&entry.db_version), text(&entry.tag));
    Ok(writeln!(std::io::stdout(), "key        {key}\nversion    {version}\ntag        {tag}\nalgorithm  {algorithm}")?)
}

/// A version.
pub(super) fn version(entry: KeyValue, json: bool) -> Result<(), CliError> {
    let version = entry.db_version.unwrap_or_default();
    if json {
        let mut object = Map::new();
        put_bytes(&mut object, "version", &version);
        return print(&Value::Object(object));
    }
    Ok(writeln!(std::io::stdout(), "{}", version.escape_ascii())?)
}

/// Keys, one a line.
pub(super) fn keys(keys: &[Bytes], json: bool) -> Result<(), CliError> {
    let mut stdout = std::io::stdout().lock();
    for key in keys {
        if json {
            let mut object = Map::new();
            put_bytes(&mut object, "key", key);
            writeln!(stdout, "{}", Value::Object(object))?;
        } else {
            writeln!(stdout, "{}", key.escape_ascii())?;
        }
    }
    Ok(())
}

/// That it was done: nothing is said of it, but in JSON.
pub(super) fn done(json: bool) -> Result<(), CliError> {
    if json { print(&json!({"status": "SUCCESS"})) } else { Ok(()) }
}

/// A log of the drive. As text it is JSON, too, over several lines.
pub(super) fn log(log: &GetLog, value: &[u8], json: bool) -> Result<(), CliError> {
    let log = log_json(log, value);
    if json { print(&log) } else { Ok(writeln!(std::io::stdout(), "{log:#}")?) }
}

fn log_json(log: &GetLog, value: &[u8]) -> Value {
    let mut object = Map::new();
    let shares = log.utilizations.iter().filter_map(|it| Some((it.name.clone()?, it.value?.into())));
    insert(&mut object, "utilizations", shares.collect::<Map<_, _>>());
    let degrees = log.temperatures.iter().filter_map(|it| Some((it.name.clone()?, it.current?.into())));
    insert(&mut object, "temperatures", degrees.collect::<Map<_, _>>());
    if let Some(capacity) = &log.capacity {
        let told = json!({"nominal_bytes": capacity.nominal_capacity_in_bytes, "portion_full": capacity.portion_full});
        object.insert("capacity".to_owned(), told);
    }
    if let Some(told) = &log.configuration {
        object.insert("configuration".to_owned(), configuration(told));
    }
    let kind = |number: Option<i32>| number.and_then(RequestKind::of).map(|kind| kind.name().to_owned());
    let counts =
        log.statistics.iter().filter_map(|it| Some((kind(it.message_type)?, json!({"count": it.count, "bytes": it.bytes}))));
    insert(&mut object, "statistics", counts.collect::<Map<_, _>>());
    if let Some(messages) = &log.messages {
        let lines: Vec<String> = String::from_utf8_lossy(messages).lines().map(str::to_owned).collect();
        object.insert("messages".to_owned(), lines.into());
    }
    if let Some(told) = &log.limits {
        object.insert("limits".to_owned(), limits(told));
    }
    if log.device.is_some() || !value.is_empty() {
        put_bytes(&mut object, "device", value);
    }
    Value::Object(object)
}

fn configuration(told: &Configuration) -> Value {
    json!({
        "vendor": told.vendor, "model": told.model, "serial_number": text(&told.serial_number),
        "world_wide_name": text(&told.world_wide_name), "version": told.version,
        "interfaces": told.interface.iter().map(interface).collect::<Vec<_>>(), "port": told.port, "tls_port": told.tls_port,
        "compilation_date": told.compilation_date, "source_hash": told.source_hash,
        "protocol_version": told.protocol_version, "protocol_compilation_date": told.protocol_compilation_date,
        "protocol_source_hash": told.protocol_source_hash, "power_level": told.current_power_level.map(power_level),
    })
}

fn interface(told: &Interface) -> Value {
    json!({"name": told.name, "mac": text(&told.mac), "ipv4": text(&told.ipv4_address), "ipv6": text(&told.ipv6_address)})
}

/// A level by its name, or by its number where that is none of the protocol's.
fn power_level(level: i32) -> Value {
    match level {
        1 => "operational".into(),
        2 => "hibernate".into(),
        3 => "shutdown".into(),
        4 => "failed".into(),
        other => other.into(),
    }
}

fn limits(told: &LogLimits) -> Value {
    json!({
        "key_bytes": told.max_key_size, "value_bytes": told.max_value_size, "version_bytes": told.max_version_size,
        "tag_bytes": told.max_tag_size, "message_bytes": told.max_message_size, "range_keys": told.max_key_range_count,
        "batch_commands": told.max_operation_count_per_batch, "batches": told.max_batch_count_per_device,
        "connections": told.max_connections, "outstanding_reads": told.max_outstanding_read_requests,
        "outstanding_writes": told.max_outstanding_write_requests, "identities": told.max_identity_count,
        "pin_bytes": told.max_pin_size,
    })
}

fn text(bytes: &Option<Bytes>) -> Option<String> {
    bytes.as_deref().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

fn insert(object: &mut Map<String, Value>, name: &str, part: Map<String, Value>) {
    if !part.is_empty() {
        object.insert(name.to_owned(), Value::Object(part));
    }
}

#[cfg(test)]
mod tests {
    use pithead_kinetic::proto::{Capacity, Utilization};

    use super::*;

    #[test]
    fn bytes_that_are_no_text_have_another_name() {
        let entry = KeyValue { key: Some("k".into()), tag: Some(Bytes::from_static(&[0xff])), ..KeyValue::default() };
        let told = Value::Object(described(&entry));
        assert_eq!(told, json!({"algorithm": null, "key": "k", "tag_base64": "/w==", "version": ""}));
    }

    #[test]
    fn a_log_has_what_was_asked_for() {
        let log = GetLog {
            utilizations: vec![Utilization { name: Some("CPU".to_owned()), value: Some(0.5) }],
            capacity: Some(Capacity { nominal_capacity_in_bytes: Some(100), portion_full: Some(0.25) }),
            ..GetLog::default()
        };
        let told = log_json(&log, b"");
        assert_eq!(told, json!({"capacity": {"nominal_bytes": 100, "portion_full": 0.25}, "utilizations": {"CPU": 0.5}}));
    }

    /// Half of it was left out.
    #[test]
    fn all_that_a_drive_says_of_itself_is_printed() {
        let lo = Interface { name: Some("lo".to_owned()), ipv4_address: Some("127.0.0.1".into()), ..Interface::default() };
        let configuration = Configuration {
            interface: vec![lo],
            compilation_date: Some("today".to_owned()),
            source_hash: Some("ab".to_owned()),
            world_wide_name: Some("drive 7".into()),
            protocol_compilation_date: Some("then".to_owned()),
            protocol_source_hash: Some("cd".to_owned()),
            current_power_level: Some(2),
            ..Configuration::default()
        };
        let limits = LogLimits {
            max_outstanding_read_requests: Some(5),
            max_outstanding_write_requests: Some(6),
            ..LogLimits::default()
        };
        let log = GetLog { configuration: Some(configuration), limits: Some(limits), ..GetLog::default() };
        let told = log_json(&log, b"");
        for (name, expected) in [
            ("interfaces", json!([{"name": "lo", "mac": null, "ipv4": "127.0.0.1", "ipv6": null}])),
            ("compilation_date", "today".into()),
            ("source_hash", "ab".into()),
            ("world_wide_name", "drive 7".into()),
            ("protocol_compilation_date", "then".into()),
            ("protocol_source_hash", "cd".into()),
            ("power_level", "hibernate".into()),
        ] {
            assert_eq!(told["configuration"][name], expected, "{name}");
        }
        assert_eq!((&told["limits"]["outstanding_reads"], &told["limits"]["outstanding_writes"]), (&json!(5), &json!(6)));
        assert_eq!(power_level(9), json!(9));
    }
}
