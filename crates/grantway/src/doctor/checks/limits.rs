//! How many queues fit into what may be granted and mapped.

use crate::doctor::facts::limits::{Limits, XenLimit};
use crate::doctor::facts::platform::{PlatformFacts, Role};
use crate::doctor::finding::{Finding, Verdict};

/// Pages of a queue: a ring of 256 slots each way, a page a slot, and the two
/// rings themselves.
pub const QUEUE_PAGES: u64 = 2 * 256 + 2;
/// Entries of a page of the grant table (version 1).
const GRANTS_IN_FRAME: u64 = 4096 / 8;
/// Handles in a page of the maptrack table.
const HANDLES_IN_FRAME: u64 = 4096 / 16;
/// Pieces of an address space that a process has anyway.
const OWN_PIECES: u64 = 1000;

/// The limits that matter to `role`, with this many `queues` attached.
pub fn judge(limits: &Limits, platform: &PlatformFacts, role: Role, queues: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(limits.gntalloc.map(|pages| gntalloc(pages, role)));
    findings.push(grants(limits.grant_frames.as_ref(), role));
    if role != Role::Guest {
        let twice = platform.maps_twice();
        findings.push(maptrack(limits.maptrack_frames.as_ref(), twice, role, queues));
        findings.extend(limits.map_count.map(|pieces| map_count(pieces, queues)));
    }
    findings
}

fn gntalloc(pages: u64, role: Role) -> Finding {
    let subject = "xen-gntalloc limit";
    let fit = pages / QUEUE_PAGES;
    let found = format!("{pages} pages: {} of {QUEUE_PAGES}", many(fit, "frontend queue"));
    if fit > 0 {
        return Finding::ok(subject, found);
    }
    // What is granted here only matters to a frontend here.
    let verdict = if role == Role::Guest { Verdict::Fail } else { Verdict::Warn };
    let remedy = "echo 4096 > /sys/module/xen_gntalloc/parameters/limit";
    Finding::new(verdict, subject, &found, Some(remedy))
}

fn grants(frames: Option<&XenLimit>, role: Role) -> Finding {
    let subject = "grant table";
    let Some(limit) = frames else {
        return unknown(subject, "gnttab_max_frames", "max_grant_frames", role);
    };
    let grants = limit.value.saturating_mul(GRANTS_IN_FRAME);
    let fit = grants / QUEUE_PAGES;
    let found = format!(
        "{} ({}): {grants} grants, at most {} a guest",
        many(limit.value, "frame"),
        limit.source,
        many(fit, "queue")
    );
    match fit {
        0 => Finding::warn(subject, found, boot_option("gnttab_max_frames=64")),
        _ => Finding::ok(subject, found),
    }
}

fn maptrack(frames: Option<&XenLimit>, twice: bool, role: Role, queues: u64) -> Finding {
    let subject = "maptrack";
    let Some(limit) = frames else {
        return unknown(subject, "gnttab_max_maptrack_frames", "max_maptrack_frames", role);
    };
    let handles = limit.value.saturating_mul(HANDLES_IN_FRAME);
    let pages = if twice { handles / 2 } else { handles };
    let each = if twice { "two a page on PV, so " } else { "" };
    let found = format!(
        "{} ({}): {handles} handles, {each}{pages} mapped pages, {} with all pages mapped; {} attached",
        many(limit.value, "frame"),
        limit.source,
        many(pages / QUEUE_PAGES, "queue"),
        many(queues, "queue")
    );
    if queues.saturating_mul(QUEUE_PAGES) <= pages {
        return Finding::ok(subject, found);
    }
    let wanted = limit.value.saturating_mul(4).max(4096);
    let option = format!("gnttab_max_maptrack_frames={wanted}");
    Finding::warn(subject, found, boot_option(&option))
}

fn map_count(pieces: u64, queues: u64) -> Finding {
    let subject = "vm.max_map_count";
    let wanted = queues.saturating_mul(QUEUE_PAGES).saturating_add(OWN_PIECES);
    let fit = pieces.saturating_sub(OWN_PIECES) / QUEUE_PAGES;
    let found = format!(
        "{pieces}: {} mapped page by page; {} attached",
        many(fit, "queue"),
        many(queues, "queue")
    );
    match wanted <= pieces {
        true => Finding::ok(subject, found),
        false => {
            let enough = wanted.next_power_of_two().max(262_144);
            Finding::warn(subject, found, format!("sysctl -w vm.max_map_count={enough}"))
        }
    }
}

fn unknown(subject: &str, option: &str, key: &str, role: Role) -> Finding {
    match role {
        Role::Dom0 => Finding::warn(
            subject,
            format!("{option} is unknown: neither xenhypfs nor xl says it"),
            "xl info | grep xen_commandline",
        ),
        // No fault of this domain's: nobody inside can see it.
        _ => Finding::ok(
            subject,
            format!("not to be seen from inside; in dom0: {key} of this domain in xl.cfg(5)"),
        ),
    }
}

fn boot_option(option: &str) -> String {
    format!(
        "add {option} to GRUB_CMDLINE_XEN_DEFAULT in /etc/default/grub, then: update-grub && reboot"
    )
}

fn many(number: u64, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {what}{s}")
}
