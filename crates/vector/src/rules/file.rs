//! A reader of files of rules.

use super::names::NAMES_MAX;
use super::section::{Place, Section};
use super::{FilterRules, FirewallRules, Names, Rules, RulesError, VifRules};
use crate::batch::PortId;
use crate::bucket::Rate;
use crate::headers::Network;
use crate::nodes::bridge::table::Learning;
use crate::nodes::classifier::filter::{Filter, Treatment};
use crate::nodes::classifier::key::Pattern;
use crate::nodes::classifier::table::FilterError;
use crate::nodes::firewall::matcher::MatcherError;
use crate::nodes::firewall::rule::{Action, Rule, State};
use crate::prefix::Prefix;
use crate::secret::Secret;
use grantway_netif::headers::protocol::TCP;
use std::ops::RangeInclusive;
use toml_edit::Document;

/// Largest file, in bytes.
pub const FILE_MAX: usize = 16 << 20;

const TOP: &[&str] = &["bridge", "firewall", "vif", "rule", "filter", "flows"];
const BRIDGE: &[&str] = &["age", "stations"];
const FIREWALL: &[&str] = &["default"];
const VIF: &[&str] = &["name", "mac", "addresses", "isolated", "stations", "rate", "burst"];
const RULE: &[&str] = &[
    "name",
    "action",
    "network",
    "protocol",
    "from",
    "to",
    "from-ports",
    "to-ports",
    "vif",
    "state",
];
const FILTER: &[&str] = &[
    "name",
    "action",
    "queue",
    "rate",
    "burst",
    "port",
    "network",
    "protocol",
    "from",
    "to",
    "from-port",
    "to-port",
    "tcp-flags",
    "from-mac",
    "to-mac",
    "type",
    "vlan",
    "vif",
];

/// Reads rules. `names` gives numbers to the names of vifs.
///
/// # Errors
/// The first fault in the text: what it is, where it is, and what to do about it.
pub fn parse(text: &str, names: &mut Names, secret: Secret) -> Result<Rules, RulesError> {
    // A file that is too long is not even read as TOML.
    if text.len() > FILE_MAX {
        let found = format!("{} bytes", text.len());
        let expected = format!("at most {FILE_MAX} bytes");
        return Err(RulesError::at(
            text,
            0,
            found,
            expected,
            "write several addresses into a rule",
        ));
    }
    let document = Document::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let said = error.message().lines().collect::<Vec<_>>().join(", ");
        let line = text.get(at..).and_then(|rest| rest.lines().next()).unwrap_or("").trim_end();
        let found = format!("{:?} ({said})", line.chars().take(40).collect::<String>());
        RulesError::at(text, at, found, "TOML", "see https://toml.io for how it is written")
    })?;
    // Each part of the file adds to the rules; a part that is missing leaves the default.
    let top = Section::new(text, (document.as_table(), None), "the file", TOP)?;
    let mut rules = Rules::default();
    if let Some(bridge) = top.section("bridge", BRIDGE, "[bridge]")? {
        rules.learning = learning(&bridge)?;
    }
    if let Some(flows) = top.get("flows")? {
        rules.flows = flows.truth()?;
    }
    for vif in top.sections("vif", VIF, "[[vif]]")? {
        self::vif(&vif, names, &mut rules)?;
    }
    firewall(&top, names, &mut rules)?;
    filters(&top, names, secret, &mut rules)?;
    Ok(rules)
}

fn learning(bridge: &Section<'_>) -> Result<Learning, RulesError> {
    let mut learning = Learning::default();
    if let Some(age) = bridge.get("age")? {
        learning.age = age.number(1, 1_000_000)? * 1_000_000_000;
    }
    if let Some(stations) = bridge.get("stations")? {
        learning.stations = stations.number(1, 16_384)? as u32;
    }
    Ok(learning)
}

fn vif(section: &Section<'_>, names: &mut Names, rules: &mut Rules) -> Result<(), RulesError> {
    let name = section.need("name", "the vif's name, such as \"1.0\", or \"uplink\"")?;
    let port = port(&name, names)?;
    if rules.vif(port).is_some_and(|known| *known != VifRules::default()) {
        return Err(name.wrong("each vif once", "put what is said of it into one [[vif]]"));
    }
    let mut vif = VifRules::default();
    for mac in places(section, "mac")? {
        let (mac, _) = station(&mac, false)?;
        vif.allowed.macs.push(mac);
    }
    vif.allowed.networks = networks(section, "addresses")?;
    if let Some(isolated) = section.get("isolated")? {
        vif.isolated = isolated.truth()?;
    }
    if let Some(stations) = section.get("stations")? {
        vif.stations = Some(stations.number(0, 16_384)? as u32);
    }
    vif.rate = rate(section)?;
    if let Some(room) = rules.vif_mut(port) {
        *room = vif;
    }
    Ok(())
}

fn firewall(top: &Section<'_>, names: &mut Names, rules: &mut Rules) -> Result<(), RulesError> {
    let mut default = Action::Accept;
    if let Some(firewall) = top.section("firewall", FIREWALL, "[firewall]")? {
        default = action(&firewall.need("default", ACTION)?)?;
    }
    let sections = top.sections("rule", RULE, "[[rule]]")?;
    let read = |(number, section)| rule(number, section, names);
    let found = sections.iter().enumerate().map(read).collect::<Result<Vec<Rule>, _>>()?;
    unique(&sections, found.iter().map(|rule| rule.name.as_str()))?;
    rules.firewall = FirewallRules::new(found, default).map_err(|error| {
        let (found, expected, remedy) = match error {
            MatcherError::Rules { found } => (
                format!("{found} rules"),
                format!("at most {}", crate::nodes::firewall::RULES_MAX),
                "write several addresses into one rule",
            ),
            MatcherError::Memory { field } => (
                format!("{field} that overlap in too many ways"),
                "rules that compile into less memory".to_owned(),
                "write rules with fewer different networks or ranges",
            ),
        };
        let first = sections.first().unwrap_or(top);
        first.wrong(found, &expected, remedy)
    })?;
    Ok(())
}

const ACTION: &str = "\"accept\" or \"drop\"";

fn action(place: &Place<'_>) -> Result<Action, RulesError> {
    place.meaning(ACTION, |text| match text {
        "accept" => Some(Action::Accept),
        "drop" => Some(Action::Drop),
        _ => None,
    })
}

fn rule(number: usize, section: &Section<'_>, names: &mut Names) -> Result<Rule, RulesError> {
    let state = |place: Place<'_>| {
        let named = |text: &str| State::ALL.into_iter().find(|state| state.as_str() == text);
        place.meaning("\"new\", \"established\", \"invalid\" or \"untracked\"", named)
    };
    let mut vifs = Vec::new();
    for place in places(section, "vif")? {
        vifs.push(port(&place, names)?);
    }
    Ok(Rule {
        name: name(section, "rule", number)?,
        action: action(&section.need("action", ACTION)?)?,
        network: section.get("network")?.map(|place| network(&place)).transpose()?,
        protocol: section.get("protocol")?.map(|place| protocol(&place)).transpose()?,
        sources: networks(section, "from")?,
        targets: networks(section, "to")?,
        source_ports: section.get("from-ports")?.map(|place| ports(&place)).transpose()?,
        target_ports: section.get("to-ports")?.map(|place| ports(&place)).transpose()?,
        vifs,
        states: places(section, "state")?.into_iter().map(state).collect::<Result<_, _>>()?,
    })
}

fn filters(
    top: &Section<'_>,
    names: &mut Names,
    secret: Secret,
    rules: &mut Rules,
) -> Result<(), RulesError> {
    let sections = top.sections("filter", FILTER, "[[filter]]")?;
    let read = |(number, section)| filter(number, section, names);
    let found = sections.iter().enumerate().map(read).collect::<Result<Vec<Filter>, _>>()?;
    unique(&sections, found.iter().map(|filter| filter.name.as_str()))?;
    let place = |name: &str| {
        let at = found.iter().position(|filter| filter.name == name);
        at.and_then(|at| sections.get(at)).unwrap_or(top)
    };
    rules.filters = FilterRules::new(found.clone(), secret).map_err(|error| match &error {
        FilterError::Filters { found } => {
            let expected = format!("at most {}", crate::nodes::classifier::FILTERS_MAX);
            top.wrong(format!("{found} filters"), &expected, "leave some out")
        }
        FilterError::Masks { filter } => {
            let expected = format!("at most {}", crate::nodes::classifier::MASKS_MAX);
            let remedy = "let filters look at the same fields, or write rules";
            place(filter).wrong("one more set of fields".to_owned(), &expected, remedy)
        }
        FilterError::Twice { filter, first } => {
            let found = format!("what filter {first:?} before it wants");
            let remedy = "leave one of them out: this one would never fit";
            place(filter).wrong(found, "another key for each filter", remedy)
        }
    })?;
    Ok(())
}

const TREATMENT: &str = "\"pass\", \"drop\", \"queue\", \"mirror\", \"police\" or \"redirect\"";

fn filter(number: usize, section: &Section<'_>, names: &mut Names) -> Result<Filter, RulesError> {
    // An action may need a further key.
    let action = section.need("action", TREATMENT)?;
    let police = action.value.as_str() == Some("police");
    let treatment = match action.text(TREATMENT)? {
        "pass" => Treatment::Pass,
        "drop" => Treatment::Drop,
        "mirror" => Treatment::Mirror,
        "queue" => {
            Treatment::Queue(section.need("queue", "a queue's number")?.number(0, 15)? as u16)
        }
        "police" => match rate(section)? {
            Some(rate) => Treatment::Police(rate),
            None => {
                return Err(section
                    .need("rate", "bytes a second")
                    .err()
                    .unwrap_or_else(|| action.wrong("a rate", "add rate = ...")));
            }
        },
        "redirect" => {
            Treatment::Redirect(port(&section.need("port", "a vif's name, or \"uplink\"")?, names)?)
        }
        _ => return Err(action.wrong(TREATMENT, "correct action")),
    };
    // A key of another action would be without effect, so it is refused.
    let belong = [
        ("queue", matches!(treatment, Treatment::Queue(_))),
        ("rate", police),
        ("burst", police),
        ("port", matches!(treatment, Treatment::Redirect(_))),
    ];
    for (key, belongs) in belong {
        if let (false, Some(place)) = (belongs, section.get(key)?) {
            return Err(place.wrong(&format!("no {key} with that action"), "remove it"));
        }
    }
    let pattern = pattern(section, names)?;
    Ok(Filter { name: name(section, "filter", number)?, pattern, treatment })
}

fn pattern(section: &Section<'_>, names: &mut Names) -> Result<Pattern, RulesError> {
    // Each key adds to the pattern; a key that is missing fits every frame.
    let mut pattern = Pattern::default();
    if let Some(place) = section.get("network")? {
        pattern = pattern.network(network(&place)?);
    }
    if let Some(place) = section.get("protocol")? {
        pattern = pattern.protocol(protocol(&place)?);
    }
    if let Some(place) = section.get("from")? {
        pattern = pattern.source(&prefix(&place)?);
    }
    if let Some(place) = section.get("to")? {
        pattern = pattern.target(&prefix(&place)?);
    }
    if let Some(place) = section.get("from-port")? {
        let (port, mask) = masked(&place, 0xffff)?;
        pattern = pattern.source_port(port, mask);
    }
    if let Some(place) = section.get("to-port")? {
        let (port, mask) = masked(&place, 0xffff)?;
        pattern = pattern.target_port(port, mask);
    }
    if let Some(place) = section.get("tcp-flags")? {
        let (flags, mask) = masked(&place, 0xff)?;
        pattern = pattern.protocol(TCP).tcp_flags(flags as u8, mask as u8);
    }
    if let Some(place) = section.get("from-mac")? {
        let (mac, mask) = station(&place, true)?;
        pattern = pattern.source_mac(mac, mask);
    }
    if let Some(place) = section.get("to-mac")? {
        let (mac, mask) = station(&place, true)?;
        pattern = pattern.target_mac(mac, mask);
    }
    if let Some(place) = section.get("type")? {
        pattern = pattern.ethertype(place.number(0, 0xffff)? as u16);
    }
    if let Some(place) = section.get("vlan")? {
        pattern = pattern.vlan(place.number(0, 4095)? as u16);
    }
    if let Some(place) = section.get("vif")? {
        pattern = pattern.vif(port(&place, names)?);
    }
    Ok(pattern)
}

fn places<'a>(section: &Section<'a>, key: &'static str) -> Result<Vec<Place<'a>>, RulesError> {
    Ok(section.get(key)?.into_iter().flat_map(Place::list).collect())
}

fn name(section: &Section<'_>, what: &str, number: usize) -> Result<String, RulesError> {
    match section.get("name")? {
        Some(place) => place.meaning("a name of 1 to 64 characters", |text| {
            (1..=64).contains(&text.chars().count()).then(|| text.to_owned())
        }),
        None => Ok(format!("{what} {}", number + 1)),
    }
}

/// Checks that each section has a name of its own. Counters go by names, and so does all that stays
/// when rules are loaded again.
fn unique<'n>(
    sections: &[Section<'_>],
    names: impl Iterator<Item = &'n str>,
) -> Result<(), RulesError> {
    let mut seen = std::collections::HashSet::new();
    for (section, name) in sections.iter().zip(names) {
        if !seen.insert(name) {
            let found = format!("the name {name:?} again");
            return Err(section.wrong(found, "a name of its own for each", "rename one of them"));
        }
    }
    Ok(())
}

fn port(place: &Place<'_>, names: &mut Names) -> Result<PortId, RulesError> {
    let expected = "a vif's name, such as \"1.0\" (domain and number), or \"uplink\"";
    let name = place.meaning(expected, |text| {
        let numbers = |(domain, number): (&str, &str)| {
            domain.parse::<u16>().is_ok() && number.parse::<u32>().is_ok()
        };
        (text == "uplink" || text.split_once('.').is_some_and(numbers)).then(|| text.to_owned())
    })?;
    let number = names.number(&name);
    number.ok_or_else(|| place.wrong(&format!("at most {NAMES_MAX} vifs"), "leave some out"))
}

fn network(place: &Place<'_>) -> Result<Network, RulesError> {
    place.meaning("\"ipv4\", \"ipv6\", \"arp\" or \"other\"", |text| match text {
        "ipv4" => Some(Network::V4),
        "ipv6" => Some(Network::V6),
        "arp" => Some(Network::Arp),
        "other" => Some(Network::Other),
        _ => None,
    })
}

fn protocol(place: &Place<'_>) -> Result<u8, RulesError> {
    if place.value.is_integer() {
        return Ok(place.number(0, 255)? as u8);
    }
    let expected = "\"tcp\", \"udp\", \"icmp\", \"icmpv6\", or a number from 0 to 255";
    place.meaning(expected, |text| match text {
        "tcp" => Some(6),
        "udp" => Some(17),
        "icmp" => Some(1),
        "icmpv6" => Some(58),
        _ => None,
    })
}

fn prefix(place: &Place<'_>) -> Result<Prefix, RulesError> {
    let expected = "an IPv4 or IPv6 address, or a network, such as \"10.0.0.0/8\"";
    place.meaning(expected, |text| text.parse().ok())
}

fn networks(section: &Section<'_>, key: &'static str) -> Result<Vec<Prefix>, RulesError> {
    places(section, key)?.iter().map(prefix).collect()
}

fn ports(place: &Place<'_>) -> Result<RangeInclusive<u16>, RulesError> {
    if place.value.is_integer() {
        let port = place.number(0, 65_535)? as u16;
        return Ok(port..=port);
    }
    let expected = "a port, or ports from one to another, such as \"1024-65535\"";
    place.meaning(expected, |text| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last).then_some(first..=last)
    })
}

/// Returns a number, and the bits of it that matter.
fn masked(place: &Place<'_>, most: u16) -> Result<(u16, u16), RulesError> {
    if place.value.is_integer() {
        return Ok((place.number(0, most.into())? as u16, most));
    }
    let expected = format!("a number up to {most}, or with a mask, such as \"80/0xfff0\"");
    place.meaning(&expected, |text| {
        let number = |text: &str| {
            let number = match text.strip_prefix("0x") {
                Some(digits) => u16::from_str_radix(digits, 16).ok()?,
                None => text.parse().ok()?,
            };
            (number <= most).then_some(number)
        };
        let (value, mask) = match text.split_once('/') {
            Some((value, mask)) => (number(value)?, number(mask)?),
            None => (number(text)?, most),
        };
        (value & !mask == 0).then_some((value, mask))
    })
}

/// Returns a station's address, and the bits of it that matter.
fn station(place: &Place<'_>, with_mask: bool) -> Result<(u64, u64), RulesError> {
    let expected = match with_mask {
        true => "a MAC address such as \"00:16:3e:00:00:01\", perhaps with a mask behind a slash",
        false => "a MAC address such as \"00:16:3e:00:00:01\"",
    };
    place.meaning(expected, |text| {
        let address = |text| {
            let bytes = grantway_ports::parse_address(text)?;
            Some(bytes.into_iter().fold(0, |sum, byte| sum << 8 | u64::from(byte)))
        };
        let full = (1 << 48) - 1;
        let (mac, mask) = match text.split_once('/') {
            Some((mac, mask)) if with_mask => (address(mac)?, address(mask)?),
            Some(_) => return None,
            None => (address(text)?, full),
        };
        (mac & !mask == 0).then_some((mac, mask))
    })
}

fn rate(section: &Section<'_>) -> Result<Option<Rate>, RulesError> {
    let most = 1 << 50;
    let rate = section.get("rate")?.map(|place| place.number(1, most)).transpose()?;
    let burst = match section.get("burst")? {
        Some(place) if rate.is_none() => {
            return Err(place.wrong("a rate, too", "add rate = ..., in bytes a second"));
        }
        Some(place) => Some(place.number(1514, most)?),
        None => None,
    };
    // The default is a tenth of a second, but at least the largest frame.
    let usual = |bytes: u64| (bytes / 10).max(65_664);
    Ok(rate.map(|bytes| Rate { bytes, burst: burst.unwrap_or_else(|| usual(bytes)) }))
}
