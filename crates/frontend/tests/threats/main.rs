//! Threats of a hostile or broken backend to the real frontend, one test each. After each
//! attack the frontend has said why it closed, serves a backend that keeps to the
//! rules, and at the end leaves nothing in force.

#[path = "../support/mod.rs"]
mod support;

mod answers;
mod bulk;
mod crowd;
mod ctrl;
mod first_slot;
mod handshake;
mod lending;
mod offloads;
mod pages;
mod queues;
mod replaced;
mod resume;
mod staging;
mod trusted;
mod wakeups;
