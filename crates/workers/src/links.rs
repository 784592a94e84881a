//! [`Links`]: connections to workers, made and guarded as those to drives are.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use datafusion::common::Result as EngineResult;
use datafusion_distributed::grpc::{BoxCloneSyncChannel, create_worker_client};
use datafusion_distributed::{ChannelResolver, WorkerChannel};
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response};
use parking_lot::Mutex;
use pithead_entry::ConnectOptions;
use pithead_model::{Blame, Fault, boxed};
use pithead_wire::channel;
use tonic::body::Body;
use tonic::transport::Channel;
use tower_service::Service;
use url::Url;

use crate::codec::external;
use crate::reached::{At, Reached};

/// Connections that are kept at most.
const LINKS_MAX: usize = 1_024;

/// A worker's connection, and what says there who calls.
type Link = (At, WithToken);

/// Connections to workers by address. Each is made when it is first used.
#[derive(Clone)]
pub struct Links {
    options: ConnectOptions,
    open: Arc<Mutex<HashMap<Url, Link>>>,
    /// The token of who has given the task that calls, if this is a worker: a task names the workers to call, and one whose address is
    /// made up must not learn the token of this one.
    caller: Option<Option<HeaderValue>>,
}

impl Links {
    /// With TLS and credentials as these options have them, which are those of links to drives.
    pub fn new(options: ConnectOptions) -> Self {
        Self { options, open: Arc::default(), caller: None }
    }

    /// The same connections with the token of who has given a task, or without one, in the place of our own.
    pub(crate) fn in_the_name_of(&self, caller: Option<HeaderValue>) -> Self {
        Self { caller: Some(caller), ..self.clone() }
    }

    fn to(&self, url: &Url) -> Result<Link, Fault> {
        let mut open = self.open.lock();
        if let Some(link) = open.get(url) {
            return Ok(link.clone());
        }
        let address = address_of(url)?;
        let (channel, token, trouble) = channel(&address, &self.options)?;
        let at = At { address: address.into(), trouble };
        let link = (at, WithToken { channel, token });
        if open.len() >= LINKS_MAX {
            open.clear();
        }
        open.insert(url.clone(), link.clone());
        Ok(link)
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "links to {} workers", self.open.lock().len())
    }
}

#[boxed]
impl ChannelResolver for Links {
    async fn get_worker_client_for_url(&self, url: &Url) -> EngineResult<Box<dyn WorkerChannel>> {
        let (at, mut channel) = self.to(url).map_err(external)?;
        if let Some(caller) = &self.caller {
            channel.token.clone_from(caller);
        }
        Ok(Box::new(Reached { at, channel: create_worker_client(BoxCloneSyncChannel::new(channel)) }))
    }
}

/// The worker at `HOST:PORT` as the engine names it.
pub(crate) fn url_of(address: &str) -> Result<Url, Fault> {
    let wrong = || {
        Fault::new(Blame::User, format!("expected a worker's address as HOST:PORT, got {address:?}"))
            .hint("name workers as --workers host1:7500,host2:7500")
    };
    let url = Url::parse(&format!("http://{}/", address.trim())).map_err(|_| wrong())?;
    let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none() && url.username().is_empty();
    // An HTTP address leaves port 80 out.
    if url.host_str().is_some() && url.port_or_known_default().is_some() && is_bare { Ok(url) } else { Err(wrong()) }
}

/// `HOST:PORT` of a worker.
pub(crate) fn address_of(url: &Url) -> Result<String, Fault> {
    match (url.host_str(), url.port_or_known_default()) {
        (Some(host), Some(port)) => Ok(format!("{host}:{port}")),
        _ => Err(Fault::new(Blame::User, format!("expected a worker's address, got {url}"))),
    }
}

/// Says on each call who calls.
#[derive(Clone)]
struct WithToken {
    channel: Channel,
    token: Option<HeaderValue>,
}

impl Service<Request<Body>> for WithToken {
    type Response = Response<Body>;
    type Error = tonic::transport::Error;
    type Future = <Channel as Service<Request<Body>>>::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::poll_ready(&mut self.channel, context)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        self.channel.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_others_are_refused() {
        for address in ["h1:7500", "127.0.0.1:80", "[::1]:9"] {
            assert_eq!(address_of(&url_of(address).unwrap()).unwrap(), address);
        }
        for wrong in ["", "a/b", "me@h:1", "h:1/x", "h:port", "h:1?x=1"] {
            assert!(url_of(wrong).unwrap_err().message.contains("HOST:PORT"), "{wrong}");
        }
    }
}
