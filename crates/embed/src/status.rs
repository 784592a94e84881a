//! [`status`] and [`background`]: how drives are, also where some are down.

use futures::future::join_all;
use pithead_door::{BackgroundOrder, BackgroundStatus, Door, DriveStatus};
use pithead_model::Fault;
use pithead_wire::FlightDoor;

use crate::here::DrivesHere;
use crate::{EmbedOptions, Target};

/// What each drive of a target says, by label and in the target's order.
pub type Answers<T> = Vec<(String, Result<T, Fault>)>;

/// How each drive of a target is. Unlike [`crate::connect`], it takes no notice of what is stored, and a drive on the network that cannot
/// be reached is a fault of its own only.
pub async fn status(target: &Target, options: &EmbedOptions) -> Result<Answers<DriveStatus>, Fault> {
    each(target, options, async |door: &dyn Door| door.status().await).await
}

/// Tells the background services of each drive of a target something, and how they are then. In a directory, what is told holds for
/// whichever process has the drives next.
pub async fn background(
    target: &Target,
    options: &EmbedOptions,
    order: &BackgroundOrder,
) -> Result<Answers<BackgroundStatus>, Fault> {
    each(target, options, async |door: &dyn Door| door.background(order.clone()).await).await
}

/// The same with several orders, one after the other, and how each drive's services are after each of them. A drive that
/// refuses one is not told the rest, and the others are.
pub async fn background_in_turn(
    target: &Target,
    options: &EmbedOptions,
    orders: &[BackgroundOrder],
) -> Result<Answers<Vec<BackgroundStatus>>, Fault> {
    each(target, options, async |door: &dyn Door| {
        let mut answers = Vec::with_capacity(orders.len());
        for order in orders {
            answers.push(door.background(order.clone()).await?);
        }
        Ok(answers)
    })
    .await
}

/// Asks all drives at once.
async fn each<T>(
    target: &Target,
    options: &EmbedOptions,
    ask: impl AsyncFn(&dyn Door) -> Result<T, Fault>,
) -> Result<Answers<T>, Fault> {
    match target {
        Target::Data(directory) => {
            let here = DrivesHere::open(directory, options).await?;
            let doors = here.doors();
            let answers = join_all(doors.iter().map(async |door| (door.label().to_owned(), ask(&**door).await))).await;
            drop(doors);
            here.shutdown().await;
            Ok(answers)
        }
        Target::Drives(addresses) => {
            let ask_there = async |address: &String| match FlightDoor::connect_with(address, &options.connect) {
                Ok(door) => (door.label().to_owned(), ask(&door).await),
                Err(fault) => (address.clone(), Err(fault)),
            };
            Ok(join_all(addresses.iter().map(ask_there)).await)
        }
    }
}
