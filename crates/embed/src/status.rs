//! [`status`]: how drives are, also where some are down.

use std::sync::Arc;

use futures::future::join_all;
use pithead_door::{Door, DriveStatus};
use pithead_entry::ConnectOptions;
use pithead_model::Fault;
use pithead_wire::FlightDoor;

use crate::here::DrivesHere;
use crate::{EmbedOptions, Target};

/// How each drive of a target is, by label and in the target's order. Unlike [`crate::connect`], it takes no notice of
/// what is stored, and a drive on the network that cannot be reached is a fault of its own only.
pub async fn status(target: &Target, options: &EmbedOptions) -> Result<Vec<(String, Result<DriveStatus, Fault>)>, Fault> {
    match target {
        Target::Data(directory) => {
            let here = DrivesHere::open(directory, options).await?;
            let answers = join_all(here.doors().into_iter().map(ask)).await;
            here.shutdown().await;
            Ok(answers)
        }
        Target::Drives(addresses) => Ok(join_all(addresses.iter().map(|address| ask_there(address, &options.connect))).await),
    }
}

async fn ask_there(address: &str, options: &ConnectOptions) -> (String, Result<DriveStatus, Fault>) {
    match FlightDoor::connect_with(address, options) {
        Ok(door) => ask(Arc::new(door)).await,
        Err(fault) => (address.to_owned(), Err(fault)),
    }
}

async fn ask(door: Arc<dyn Door>) -> (String, Result<DriveStatus, Fault>) {
    let status = door.status().await;
    (door.label().to_owned(), status)
}
