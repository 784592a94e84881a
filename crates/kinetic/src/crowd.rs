//! [`Crowd`]: the connections that there are, and which of them has to go for another.
//!
//! A connection is a stranger's until a request over it was signed rightly. Whoever comes when all places are taken gets that of
//! the stranger who has been there longest, so that nobody keeps clients away by connections alone.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use pithead_entry::ConnectionLimits;
use tokio::sync::Notify;

/// All connections of a server that are talked to.
#[derive(Debug)]
pub(crate) struct Crowd {
    limits: ConnectionLimits,
    inside: Mutex<Inside>,
    /// Somebody has gone.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Inside {
    next: u64,
    /// Oldest first.
    members: BTreeMap<u64, Member>,
}

#[derive(Debug)]
struct Member {
    address: IpAddr,
    /// Told once that its place is wanted. None: a client who is known, or one who was told already.
    stranger: Option<Arc<Notify>>,
}

/// A connection's place. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct CrowdPlace {
    crowd: Arc<Crowd>,
    id: u64,
    wanted: Arc<Notify>,
}

impl Crowd {
    pub fn new(limits: ConnectionLimits) -> Arc<Crowd> {
        Arc::new(Crowd { limits, inside: Mutex::default(), freed: Notify::new() })
    }

    /// A place for a stranger.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> CrowdPlace {
        let wanted = Arc::new(Notify::new());
        let mut inside = self.inside.lock();
        inside.next += 1;
        let id = inside.next;
        inside.members.insert(id, Member { address, stranger: Some(Arc::clone(&wanted)) });
        CrowdPlace { crowd: Arc::clone(self), id, wanted }
    }

    /// Has a stranger go for somebody at this address. False: there is none, or none whose place would help.
    pub fn make_room(&self, address: IpAddr) -> bool {
        let mut inside = self.inside.lock();
        let from_there = inside.members.values().filter(|member| member.address == address).count();
        let helps = |member: &Member| from_there < self.limits.per_address || member.address == address;
        let oldest = inside.members.values_mut().find(|member| member.stranger.is_some() && helps(member));
        match oldest.and_then(|member| member.stranger.take()) {
            Some(stranger) => {
                stranger.notify_one();
                true
            }
            None => false,
        }
    }

    /// Waits until somebody has gone since the last call of this.
    pub async fn freed(&self) {
        self.freed.notified().await;
    }
}

impl CrowdPlace {
    /// The client is known: nobody takes its place any more.
    pub fn keep(&self) {
        if let Some(member) = self.crowd.inside.lock().members.get_mut(&self.id) {
            member.stranger = None;
        }
    }

    /// Notified once the place is wanted for somebody else.
    pub fn wish(&self) -> Arc<Notify> {
        Arc::clone(&self.wanted)
    }
}

impl Drop for CrowdPlace {
    fn drop(&mut self) {
        self.crowd.inside.lock().members.remove(&self.id);
        self.crowd.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn is_wanted(place: &CrowdPlace) -> bool {
        tokio::time::timeout(Duration::from_millis(1), place.wanted.notified()).await.is_ok()
    }

    #[tokio::test]
    async fn the_stranger_who_has_been_there_longest_goes() {
        let (here, there) = ([127, 0, 0, 1].into(), [10, 0, 0, 1].into());
        let crowd = Crowd::new(ConnectionLimits { per_address: 3, ..ConnectionLimits::default() });
        let places = [here, here, here, there].map(|address| crowd.enter(address));
        places[0].keep();
        assert!(crowd.make_room(there), "another address may have the place of anybody");
        assert!(is_wanted(&places[1]).await);
        assert!(crowd.make_room(here));
        assert!(is_wanted(&places[2]).await);
        assert!(!crowd.make_room(here), "the place of another address would not help");
        assert!(!is_wanted(&places[0]).await && !is_wanted(&places[3]).await);
        drop(places);
        crowd.freed().await;
    }
}
