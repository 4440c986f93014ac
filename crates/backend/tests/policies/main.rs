//! Buffer policies: each against a model, with the real platform below it, and
//! on the whole path with the real frontend or a hostile one.

#[path = "../support/mod.rs"]
mod support;

mod frontends;
mod in_place;
mod lending;
mod map;
mod persistent;
mod rig;
mod staging;
mod staging_model;
