//! A Xen guest that attacks its backend: by its rings, grants, events, keys and control messages.
//! For the lab, beside honest guests.
//!
//! It connects its vif by the rules, attacks, and shows then that a frontend that keeps the rules is
//! served on the same vif. That is a round; each attack ([`attacks::ALL`]) has several, from a seed.
//! The node `data/hostile` of the guest says how far it is, and at the end `over`, or why not.
//!
//! | word of the guest's `cmdline` | | |
//! |---|---|---|
//! | `rounds=3` | rounds of each attack | 2 |
//! | `seed=7` | the same seed gives the same attacks | 1 |
//! | `attack=storm` | this attack alone; may be repeated | all |
//! | `victim=00:16:3e:00:00:65` | the destination of its frames | all stations |
//! | `end=crash` | crashes at the end, connected, its pages mapped | powers off |
#![no_std]
#![no_main]

extern crate alloc;

mod attacks;
mod control;
mod enemy;
mod packets;
mod rings;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use attacks::{ALL, Attack, Stage};
use enemy::{Enemy, SAID};
use grantway_bare::{Bare, Boot, Shutdown, println, shutdown};
use grantway_hypervisor::Error;
use grantway_ports::parse_address;
use grantway_testkit::Numbers;

grantway_bare::entry!(main);

fn main(boot: Boot) {
    let platform = match Bare::new() {
        Ok(platform) => platform,
        Err(e) => {
            println!("hostile: {e}");
            shutdown(Shutdown::Crash)
        }
    };
    let mut enemy = match Enemy::new(&platform) {
        Ok(enemy) => enemy,
        Err(e) => {
            println!("hostile: {e}");
            shutdown(Shutdown::Crash)
        }
    };
    let said = run(&boot, &mut enemy).unwrap_or_else(|why| format!("failed: {why}"));
    let _ = enemy.store.write(SAID, said.as_bytes());
    println!("hostile: {said}");
    match boot.argument("end") {
        Some("crash") => shutdown(Shutdown::Crash),
        _ => shutdown(Shutdown::PowerOff),
    }
}

/// Attacks. Returns the number of rounds, and how many of them the backend ended.
fn run(boot: &Boot, enemy: &mut Enemy) -> Result<String, String> {
    let rounds = number(boot, "rounds", 2)?;
    let mut numbers = Numbers::new(number(boot, "seed", 1)? << 1);
    if let Some(victim) = boot.argument("victim") {
        let address = parse_address(victim);
        enemy.victim =
            address.ok_or_else(|| format!("victim={victim}: expected 00:16:3e:00:00:01"))?;
    }
    let chosen = chosen(boot)?;
    let (mut made, mut ended) = (0, 0);
    for round in 1..=rounds {
        for attack in &chosen {
            let at = format!("{} {round}", attack.name);
            let outcome =
                one_round(enemy, attack, &mut numbers).map_err(|e| format!("{at}: {e}"))?;
            made += 1;
            ended += u64::from(outcome.is_some());
            let outcome = outcome.unwrap_or_else(|| "it stands".to_string());
            println!("hostile: {at}: {outcome}");
            enemy.store.write(SAID, at.as_bytes()).map_err(|e| e.to_string())?;
        }
    }
    if boot.argument("end") == Some("crash") {
        // Its last connection, with requests under way.
        let mut rings = enemy.connect().map_err(|e| e.to_string())?;
        attacks::leave_busy(enemy, &mut rings, &mut numbers).map_err(|e| e.to_string())?;
        core::mem::forget(rings);
    }
    Ok(format!("over: {made} rounds, {ended} connections ended by the backend"))
}

/// One round: returns why the backend ended the connection; none if it did not.
fn one_round(
    enemy: &mut Enemy,
    attack: &Attack,
    numbers: &mut Numbers,
) -> Result<Option<String>, String> {
    let text = |e: Error| e.to_string();
    let mut rings = enemy.connect().map_err(text)?;
    let mut stage = Stage { enemy, rings: &mut rings, numbers };
    (attack.run)(&mut stage).map_err(text)?;
    let ended = enemy.outcome(attack.ends).map_err(text)?;
    enemy.leave(rings);
    // Whoever comes in its place is served.
    let mut rings = enemy.connect().map_err(text)?;
    packets::is_served(enemy, &mut rings)?;
    enemy.leave(rings);
    Ok(ended)
}

/// Returns the attacks that the arguments name; all without any.
fn chosen(boot: &Boot) -> Result<Vec<&'static Attack>, String> {
    let named = boot.all("attack").map(|name| {
        let found = ALL.iter().find(|attack| attack.name == name);
        found.ok_or_else(|| format!("attack={name}: there is none of this name"))
    });
    let named: Vec<_> = named.collect::<Result<_, _>>()?;
    Ok(if named.is_empty() { ALL.iter().collect() } else { named })
}

fn number(boot: &Boot, name: &str, default: u64) -> Result<u64, String> {
    let Some(text) = boot.argument(name) else { return Ok(default) };
    text.parse().map_err(|_| format!("{name}={text}: expected a number"))
}
