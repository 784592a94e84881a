//! Two of Biscuit's applications as SSDlets: string search with the drive's matcher, and pointer chasing over a graph.

mod chase;
mod search;

use pithead_ssdlet::register;

register!(idSearch => search::Search, idChase => chase::Chase);
