//! Findings about limits: the number of queues that may be granted and mapped.

use crate::doctor::facts::limits::{Limits, XenLimit};
use crate::doctor::facts::platform::{PlatformFacts, Role};
use crate::doctor::finding::{Finding, Verdict};
use grantway_backend::ARENA_PAGES;
use grantway_command::footprint::Footprint;
use grantway_command::limits::{
    GNTALLOC_PAGES, GRANT_FRAMES, GRANTS_IN_FRAME, HANDLES_IN_FRAME, MAPTRACK_FRAMES, OWN_AREAS,
    for_buffers, raise_gntalloc, raise_map_count, roomy, with_buffers, xen_option,
};

/// Most pages that a queue grants, and most pages that are mapped for it.
const QUEUE_PAGES: u64 = Footprint::largest_queue();
const QUEUE_MAPPED: u64 = Footprint::most_mapped();
/// Most areas with the pages of a queue.
const QUEUE_AREAS: u64 = grantway_backend::policy::QUEUE_AREAS as u64;

/// Judges the limits that matter to `role`, if `queues` are attached.
pub fn judge(limits: &Limits, platform: &PlatformFacts, role: Role, queues: u64) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(limits.gntalloc.map(|pages| gntalloc(pages, role)));
    findings.push(grants(limits.grant_frames.as_ref(), role));
    if role != Role::Guest {
        let twice = platform.maps_twice();
        findings.push(maptrack(limits.maptrack_frames.as_ref(), twice, role, queues));
        findings.extend(limits.map_count.map(|areas| map_count(areas, queues)));
    }
    findings
}

fn gntalloc(pages: u64, role: Role) -> Finding {
    let subject = "xen-gntalloc limit";
    let remedy = raise_gntalloc(4 * GNTALLOC_PAGES);
    if role == Role::Guest {
        let fit = pages / QUEUE_PAGES;
        let found = format!(
            "{pages} pages: enough for {} of {QUEUE_PAGES} pages each",
            many(fit, "frontend queue")
        );
        return match fit {
            0 => Finding::new(Verdict::Fail, subject, &found, Some(&remedy)),
            _ => Finding::ok(subject, found),
        };
    }
    let fit = pages / ARENA_PAGES;
    let found = format!(
        "{pages} pages: enough for {} with an arena of {ARENA_PAGES} pages; other workers copy \
         through ordinary memory, which is slower",
        many(fit, "worker")
    );
    match fit {
        0 => Finding::warn(subject, found, remedy),
        _ => Finding::ok(subject, found),
    }
}

fn grants(frames: Option<&XenLimit>, role: Role) -> Finding {
    let subject = "grant table";
    let Some(limit) = frames else {
        return unknown(subject, "gnttab_max_frames", "max_grant_frames", role);
    };
    let grants = limit.value.saturating_mul(GRANTS_IN_FRAME);
    let fit = grants / QUEUE_PAGES;
    let found = format!(
        "{} ({}): {grants} grants, at most {} per guest",
        many(limit.value, "frame"),
        limit.source,
        many(fit, "queue")
    );
    match fit {
        0 => {
            let option = format!("gnttab_max_frames={GRANT_FRAMES}");
            Finding::warn(subject, found, xen_option(&option))
        }
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
    let each = if twice { "two per page on PV: " } else { "" };
    let found = format!(
        "{} ({}): {handles} handles, {each}{pages} mapped pages, {} with all pages mapped; {} attached",
        many(limit.value, "frame"),
        limit.source,
        many(pages / QUEUE_MAPPED, "queue"),
        many(queues, "queue")
    );
    if queues.saturating_mul(QUEUE_MAPPED) <= pages {
        return Finding::ok(subject, found);
    }
    let wanted = limit.value.max(MAPTRACK_FRAMES).saturating_mul(4);
    let option = format!("gnttab_max_maptrack_frames={wanted}");
    Finding::warn(subject, found, xen_option(&option))
}

fn map_count(areas: u64, queues: u64) -> Finding {
    let subject = "vm.max_map_count";
    let wanted = with_buffers(queues.saturating_mul(QUEUE_AREAS), 0).saturating_add(OWN_AREAS);
    let fit = for_buffers(areas.saturating_sub(OWN_AREAS)) / QUEUE_AREAS;
    let found = format!(
        "{areas}: enough for {} of {QUEUE_AREAS} areas each; {} attached",
        many(fit, "queue"),
        many(queues, "queue")
    );
    match wanted <= areas {
        true => Finding::ok(subject, found),
        false => Finding::warn(subject, found, raise_map_count(roomy(wanted).max(262_144))),
    }
}

fn unknown(subject: &str, option: &str, key: &str, role: Role) -> Finding {
    match role {
        Role::Dom0 => Finding::warn(
            subject,
            format!("{option} is unknown: neither xenhypfs nor xl shows it"),
            "xl info | grep xen_commandline",
        ),
        // This domain is not at fault: nobody inside can see the limit.
        _ => Finding::ok(
            subject,
            format!("not visible from this domain; dom0 sets {key} in xl.cfg(5)"),
        ),
    }
}

fn many(number: u64, what: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{number} {what}{s}")
}
