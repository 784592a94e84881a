//! Messages of GETLOG.

use bytes::Bytes;

/// The logs that a client can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogType {
    /// How busy parts of the machine are.
    Utilizations = 0,
    /// How warm they are.
    Temperatures = 1,
    /// How full the store is.
    Capacities = 2,
    /// What the drive is, and where it listens.
    Configuration = 3,
    /// Requests so far, by kind.
    Statistics = 4,
    /// What has happened lately, for people.
    Messages = 5,
    /// The bounds that hold here.
    Limits = 6,
    /// A log by name.
    Device = 7,
}

impl LogType {
    /// The log with this number; none if there is no such log.
    pub fn of(number: i32) -> Option<LogType> {
        use LogType::{Capacities, Configuration, Device, Limits, Messages, Statistics, Temperatures, Utilizations};
        [Utilizations, Temperatures, Capacities, Configuration, Statistics, Messages, Limits, Device]
            .into_iter()
            .find(|log| *log as i32 == number)
    }
}

/// What the drive says of itself.
#[derive(Clone, PartialEq, prost::Message)]
pub struct GetLog {
    /// Numbers of [`LogType`].
    #[prost(int32, repeated, packed = "false", tag = "1")]
    pub types: Vec<i32>,
    /// How busy parts of the machine are.
    #[prost(message, repeated, tag = "2")]
    pub utilizations: Vec<Utilization>,
    /// How warm they are.
    #[prost(message, repeated, tag = "3")]
    pub temperatures: Vec<Temperature>,
    /// How full the store is.
    #[prost(message, optional, tag = "4")]
    pub capacity: Option<Capacity>,
    /// What the drive is.
    #[prost(message, optional, tag = "5")]
    pub configuration: Option<Configuration>,
    /// Requests so far.
    #[prost(message, repeated, tag = "6")]
    pub statistics: Vec<Statistics>,
    /// What has happened lately.
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub messages: Option<Bytes>,
    /// The bounds that hold here.
    #[prost(message, optional, tag = "8")]
    pub limits: Option<LogLimits>,
    /// A log by name, whose content is the frame's value.
    #[prost(message, optional, tag = "9")]
    pub device: Option<DeviceLog>,
}

/// How busy a part is.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Utilization {
    /// The part: HDA the medium, EN0 the link, CPU the processor.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// From 0 to 1.
    #[prost(float, optional, tag = "2")]
    pub value: Option<f32>,
}

/// How warm a part is, degrees Celsius.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Temperature {
    /// The sensor.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// Now.
    #[prost(float, optional, tag = "2")]
    pub current: Option<f32>,
    /// The least that it may be.
    #[prost(float, optional, tag = "3")]
    pub minimum: Option<f32>,
    /// The most that it may be.
    #[prost(float, optional, tag = "4")]
    pub maximum: Option<f32>,
    /// What it should be.
    #[prost(float, optional, tag = "5")]
    pub target: Option<f32>,
}

/// How full the store is.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Capacity {
    /// Bytes that the store can hold.
    #[prost(uint64, optional, tag = "4")]
    pub nominal_capacity_in_bytes: Option<u64>,
    /// From 0 to 1.
    #[prost(float, optional, tag = "5")]
    pub portion_full: Option<f32>,
}

/// What the drive is, and where it listens.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Configuration {
    /// Who made it.
    #[prost(string, optional, tag = "5")]
    pub vendor: Option<String>,
    /// What it is.
    #[prost(string, optional, tag = "6")]
    pub model: Option<String>,
    /// Which one it is.
    #[prost(bytes = "bytes", optional, tag = "7")]
    pub serial_number: Option<Bytes>,
    /// The release.
    #[prost(string, optional, tag = "8")]
    pub version: Option<String>,
    /// Where it is reached.
    #[prost(message, repeated, tag = "9")]
    pub interface: Vec<Interface>,
    /// The port in clear.
    #[prost(int32, optional, tag = "10")]
    pub port: Option<i32>,
    /// The port of TLS.
    #[prost(int32, optional, tag = "11")]
    pub tls_port: Option<i32>,
    /// When it was compiled: here, when its executable was written.
    #[prost(string, optional, tag = "12")]
    pub compilation_date: Option<String>,
    /// From which source: here, a hash of the release's name.
    #[prost(string, optional, tag = "13")]
    pub source_hash: Option<String>,
    /// Which one it is, in the whole world.
    #[prost(bytes = "bytes", optional, tag = "14")]
    pub world_wide_name: Option<Bytes>,
    /// The version of the protocol.
    #[prost(string, optional, tag = "15")]
    pub protocol_version: Option<String>,
    /// When the protocol was compiled, which is a part of the program here.
    #[prost(string, optional, tag = "16")]
    pub protocol_compilation_date: Option<String>,
    /// From which source the protocol was compiled: here, a hash of its version.
    #[prost(string, optional, tag = "17")]
    pub protocol_source_hash: Option<String>,
    /// The power level, as in [`super::PowerManagement`].
    #[prost(int32, optional, tag = "18")]
    pub current_power_level: Option<i32>,
}

/// Where a drive is reached.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Interface {
    /// Its name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// Its hardware address.
    #[prost(bytes = "bytes", optional, tag = "2")]
    pub mac: Option<Bytes>,
    /// As text.
    #[prost(bytes = "bytes", optional, tag = "3")]
    pub ipv4_address: Option<Bytes>,
    /// As text.
    #[prost(bytes = "bytes", optional, tag = "4")]
    pub ipv6_address: Option<Bytes>,
}

/// Requests of one kind since the drive was started.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Statistics {
    /// The kind.
    #[prost(int32, optional, tag = "1")]
    pub message_type: Option<i32>,
    /// How many.
    #[prost(uint64, optional, tag = "4")]
    pub count: Option<u64>,
    /// Bytes of their values and of the values in their answers.
    #[prost(uint64, optional, tag = "5")]
    pub bytes: Option<u64>,
}

/// The bounds that hold here; 0xFFFFFFFF: none.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LogLimits {
    /// Bytes of a key.
    #[prost(uint32, optional, tag = "1")]
    pub max_key_size: Option<u32>,
    /// Bytes of a value.
    #[prost(uint32, optional, tag = "2")]
    pub max_value_size: Option<u32>,
    /// Bytes of a version.
    #[prost(uint32, optional, tag = "3")]
    pub max_version_size: Option<u32>,
    /// Bytes of a tag.
    #[prost(uint32, optional, tag = "4")]
    pub max_tag_size: Option<u32>,
    /// Connections at one time.
    #[prost(uint32, optional, tag = "5")]
    pub max_connections: Option<u32>,
    /// Reads that wait at one time.
    #[prost(uint32, optional, tag = "6")]
    pub max_outstanding_read_requests: Option<u32>,
    /// Writes that wait at one time.
    #[prost(uint32, optional, tag = "7")]
    pub max_outstanding_write_requests: Option<u32>,
    /// Bytes of a message without its value.
    #[prost(uint32, optional, tag = "8")]
    pub max_message_size: Option<u32>,
    /// Keys of a range.
    #[prost(uint32, optional, tag = "9")]
    pub max_key_range_count: Option<u32>,
    /// Identities.
    #[prost(uint32, optional, tag = "10")]
    pub max_identity_count: Option<u32>,
    /// Bytes of a PIN.
    #[prost(uint32, optional, tag = "11")]
    pub max_pin_size: Option<u32>,
    /// Commands of a batch.
    #[prost(uint32, optional, tag = "12")]
    pub max_operation_count_per_batch: Option<u32>,
    /// Open batches.
    #[prost(uint32, optional, tag = "13")]
    pub max_batch_count_per_device: Option<u32>,
}

/// The name of a log.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeviceLog {
    /// The name.
    #[prost(bytes = "bytes", optional, tag = "1")]
    pub name: Option<Bytes>,
}
