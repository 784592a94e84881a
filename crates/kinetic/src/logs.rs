//! GETLOG: what the drive says of itself. All figures are those of the drive and its machine as they are.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use pithead_store::StoreUse;
use serde_json::json;

use crate::code::Failure;
use crate::execute::{Answer, Call, Link};
use crate::identity::Permission;
use crate::machine::temperatures;
use crate::proto::{Body, Capacity, Configuration, GetLog, Interface, LogType};
use crate::release::PROTOCOL;
use crate::service::Service;

/// Numbers of logs that are told as the client sent them: as many as there are logs.
const TYPES_TOLD: usize = 8;
/// The log of the store, by the name that a client asks for.
const STORE_LOG: &[u8] = b"com.pithead.store";

impl Service {
    pub(crate) fn get_log(&self, call: &Call) -> Result<Answer, Failure> {
        call.check(Permission::GetLog, None)?;
        let nothing = GetLog::default();
        let asked = call.body.get_log.as_ref().unwrap_or(&nothing);
        let (wanted, types) = types_of(&asked.types)?;
        let mut answer = Answer::success();
        let mut log = GetLog { types, ..GetLog::default() };
        for wanted in wanted {
            match wanted {
                LogType::Utilizations => log.utilizations = self.machine.utilizations(),
                LogType::Temperatures => log.temperatures = temperatures(),
                LogType::Capacities => log.capacity = Some(capacity(&self.store.usage()?)),
                LogType::Configuration => log.configuration = Some(self.configuration(call.link)),
                LogType::Statistics => log.statistics = self.metrics.statistics(),
                LogType::Messages => log.messages = Some(self.events().into()),
                LogType::Limits => log.limits = Some(self.options.told()),
                LogType::Device => match asked.device.as_ref().and_then(|device| device.name.as_deref()) {
                    Some(STORE_LOG) => answer.value = self.store_log()?,
                    _ => {
                        let what = format!("the device's log is {}", STORE_LOG.escape_ascii());
                        answer = Failure::new(crate::Code::NotFound, what).into();
                    }
                },
            }
        }
        answer.body = Some(Body { get_log: Some(log), ..Body::default() });
        Ok(answer)
    }

    fn store_log(&self) -> Result<Bytes, Failure> {
        let usage = self.store.usage()?;
        let text = json!({
            "keys": usage.keys,
            "value_bytes": usage.value_bytes,
            "stored_bytes": usage.stored_bytes(),
            "dead_bytes": usage.dead_bytes,
            "free_bytes": usage.free_bytes,
        });
        Ok(text.to_string().into())
    }

    /// What the drive is, to who called at this address.
    pub(crate) fn configuration(&self, link: Link) -> Configuration {
        let ports = self.ports.get().copied().unwrap_or_default();
        let text = |text: &str| Some(text.to_owned());
        let serial = Some(Bytes::from(self.options.serial_number.clone()));
        Configuration {
            vendor: text("Pithead"),
            model: text("Pithead drive"),
            serial_number: serial.clone(),
            version: text(env!("CARGO_PKG_VERSION")),
            interface: link.local.map(|local| interface(local.ip().to_canonical())).into_iter().collect(),
            port: ports.plain.map(i32::from),
            tls_port: ports.tls.map(i32::from),
            compilation_date: text(&self.release.date),
            source_hash: text(&self.release.source_hash),
            world_wide_name: serial,
            protocol_version: text(PROTOCOL),
            protocol_compilation_date: text(&self.release.date),
            protocol_source_hash: text(&self.release.protocol_hash),
            current_power_level: Some(self.power.load(Ordering::Acquire)),
        }
    }
}

/// The logs that are asked for, each once, and their numbers as they are told: as the client sent them, or each once if it sent
/// more than there are logs.
fn types_of(asked: &[i32]) -> Result<(Vec<LogType>, Vec<i32>), Failure> {
    let mut wanted = Vec::new();
    for number in asked {
        let log = LogType::of(*number).ok_or_else(|| Failure::invalid("the logs are numbered from 0 to 7"))?;
        if !wanted.contains(&log) {
            wanted.push(log);
        }
    }
    let told = match asked.len() <= TYPES_TOLD {
        true => asked.to_vec(),
        false => wanted.iter().map(|log| *log as i32).collect(),
    };
    Ok((wanted, told))
}

fn interface(address: std::net::IpAddr) -> Interface {
    let text = Some(Bytes::from(address.to_string()));
    let name = Some(if address.is_loopback() { "lo" } else { "EN0" }.to_owned());
    match address.is_ipv4() {
        true => Interface { name, ipv4_address: text, ..Interface::default() },
        false => Interface { name, ipv6_address: text, ..Interface::default() },
    }
}

/// How full the store is: what it could hold is what it holds and what is free or can be given back.
fn capacity(usage: &StoreUse) -> Capacity {
    let stored = usage.stored_bytes();
    let nominal = stored.saturating_add(usage.dead_bytes).saturating_add(usage.free_bytes);
    let full = if nominal == 0 { 0.0 } else { stored as f64 / nominal as f64 };
    Capacity { nominal_capacity_in_bytes: Some(nominal), portion_full: Some(full as f32) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_asked_for_often_is_told_once() {
        use LogType::{Capacities, Limits};
        assert_eq!(types_of(&[6, 2, 6]), Ok((vec![Limits, Capacities], vec![6, 2, 6])));
        assert_eq!(types_of(&[2; 8]), Ok((vec![Capacities], vec![2; 8])));
        assert_eq!(types_of(&[[2, 6]; 5].concat()), Ok((vec![Capacities, Limits], vec![2, 6])));
        assert!(types_of(&[2, 8]).is_err() && types_of(&[-1]).is_err());
    }

    #[test]
    fn capacities_are_of_what_there_is() {
        let usage = StoreUse { value_bytes: 25, dead_bytes: 5, free_bytes: 70, ..StoreUse::default() };
        let told = capacity(&usage);
        assert_eq!((told.nominal_capacity_in_bytes, told.portion_full), (Some(100), Some(0.25)));
        assert_eq!(capacity(&StoreUse::default()).portion_full, Some(0.0));
        // A store in memory has no bound.
        let unbounded = StoreUse { free_bytes: u64::MAX, value_bytes: 7, ..StoreUse::default() };
        assert_eq!(capacity(&unbounded).nominal_capacity_in_bytes, Some(u64::MAX));
    }
}
