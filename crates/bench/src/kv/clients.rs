//! Connections that put and get as fast as they are answered.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::try_join_all;
use pithead_kinetic::client::{Client, ClientOptions};
use pithead_kinetic::proto::{Body, KeyValue};
use pithead_kinetic::{Code, FACTORY_IDENTITY, FACTORY_KEY, Limits, RequestKind};
use pithead_model::{Blame, Fault};
use pithead_observe::ProcessUse;

use super::redis::Connection;
use super::{KEYS, Measured, Operation};

/// Who is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Server {
    /// A drive.
    Kinetic { port: u16, process: u32 },
    /// Redis.
    Redis { port: u16, process: u32 },
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) operation: Operation,
    pub(super) value_bytes: usize,
    pub(super) connections: usize,
    pub(super) seconds: f64,
}

impl Server {
    fn name(self) -> &'static str {
        match self {
            Server::Kinetic { .. } => "pithead",
            Server::Redis { .. } => "redis",
        }
    }

    fn cpu_seconds(self) -> f64 {
        let (Server::Kinetic { process, .. } | Server::Redis { process, .. }) = self;
        ProcessUse::of_process(process).cpu_seconds
    }
}

/// A connection to either.
pub(crate) enum Caller {
    Kinetic(Box<Client>),
    Redis(Connection),
}

/// Lets all connections work for the given time. Each has keys of its own, and has put and got them once before the clock starts.
pub(super) async fn measure(server: Server, work: Work) -> Result<Measured, Fault> {
    let mut callers = Vec::new();
    for number in 0..work.connections {
        let mut caller = Caller::connect(server).await?;
        caller.warm_up(number, work).await?;
        callers.push(caller);
    }
    let cpu = server.cpu_seconds();
    let started = Instant::now();
    let until = started + Duration::from_secs_f64(work.seconds);
    let tasks = callers.into_iter().enumerate().map(|(number, caller)| {
        let task = tokio::spawn(caller.run(number, work, until));
        async { task.await.map_err(|error| Fault::bug(error.to_string()))? }
    });
    let mut latencies: Vec<f64> = try_join_all(tasks).await?.concat();
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), server.cpu_seconds() - cpu);
    latencies.sort_by(f64::total_cmp);
    let count = latencies.len().max(1) as f64;
    let at = |share: f64| latencies.get((share * (count - 1.0)) as usize).copied().unwrap_or(f64::NAN) * 1e6;
    Ok(Measured {
        server: server.name(),
        operation: work.operation,
        value_bytes: work.value_bytes,
        connections: work.connections,
        operations_s: count / seconds,
        mb_s: count * work.value_bytes as f64 / seconds / 1e6,
        p50_us: at(0.5),
        p99_us: at(0.99),
        cpu_us: cpu / count * 1e6,
    })
}

impl Caller {
    pub(crate) async fn connect(server: Server) -> Result<Caller, Fault> {
        match server {
            Server::Redis { port, .. } => Ok(Caller::Redis(Connection::open(port).await?)),
            Server::Kinetic { port, .. } => {
                let options = ClientOptions {
                    host: "127.0.0.1".to_owned(),
                    port,
                    tls: None,
                    identity: FACTORY_IDENTITY,
                    key: FACTORY_KEY.to_vec(),
                    wait: Duration::from_secs(60),
                    limits: Limits::default(),
                };
                let client = Client::connect(&options).await.map_err(|error| Fault::new(Blame::Device, error.to_string()))?;
                Ok(Caller::Kinetic(Box::new(client)))
            }
        }
    }

    async fn warm_up(&mut self, number: usize, work: Work) -> Result<(), Fault> {
        let value = value_of(work.value_bytes);
        for index in 0..KEYS {
            let key = key_of(number, index, work.value_bytes);
            if work.operation == Operation::Get {
                self.put(&key, &value, false).await?;
                self.get(&key, work.value_bytes).await?;
            } else if index < 2 {
                self.put(&key, &value, work.operation == Operation::PutThrough).await?;
            }
        }
        Ok(())
    }

    /// Seconds that each operation took.
    async fn run(mut self, number: usize, work: Work, until: Instant) -> Result<Vec<f64>, Fault> {
        let value = value_of(work.value_bytes);
        let keys: Vec<String> = (0..KEYS).map(|index| key_of(number, index, work.value_bytes)).collect();
        let mut latencies = Vec::new();
        for key in keys.iter().cycle() {
            let started = Instant::now();
            if started >= until {
                break;
            }
            match work.operation {
                Operation::Get => self.get(key, work.value_bytes).await?,
                operation => self.put(key, &value, operation == Operation::PutThrough).await?,
            }
            latencies.push(started.elapsed().as_secs_f64());
        }
        Ok(latencies)
    }

    pub(crate) async fn put(&mut self, key: &str, value: &Bytes, through: bool) -> Result<(), Fault> {
        match self {
            Caller::Redis(connection) => connection.set(key, value).await,
            Caller::Kinetic(client) => {
                let asked =
                    KeyValue { force: Some(true), synchronization: Some(if through { 1 } else { 2 }), ..key_value(key) };
                call(client, RequestKind::Put, asked, value.clone()).await.map(drop)
            }
        }
    }

    async fn get(&mut self, key: &str, bytes: usize) -> Result<(), Fault> {
        let got = match self {
            Caller::Redis(connection) => connection.get(key).await?,
            Caller::Kinetic(client) => call(client, RequestKind::Get, key_value(key), Bytes::new()).await?.len(),
        };
        match got == bytes {
            true => Ok(()),
            false => Err(Fault::bug(format!("{key} has {got} bytes, and {bytes} were put"))),
        }
    }
}

async fn call(client: &mut Client, kind: RequestKind, asked: KeyValue, value: Bytes) -> Result<Bytes, Fault> {
    let body = Body { key_value: Some(asked), ..Body::default() };
    let reply = client.call(kind, body, value).await.map_err(|error| Fault::new(Blame::Device, error.to_string()))?;
    match reply.code {
        Code::Success => Ok(reply.value),
        code => Err(Fault::new(Blame::Device, format!("{}: {}", code.name(), reply.what))),
    }
}

fn key_value(key: &str) -> KeyValue {
    KeyValue { key: Some(key.to_owned().into()), ..KeyValue::default() }
}

fn key_of(connection: usize, index: u64, value_bytes: usize) -> String {
    format!("bench/{value_bytes}/{connection:02}/{index:04}")
}

/// Bytes that no compression makes fewer.
pub(crate) fn value_of(bytes: usize) -> Bytes {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(bytes).collect()
}
