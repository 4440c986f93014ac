//! Axes: the places of values, and ticks at sensible numbers.

use super::Scale;

/// Most different values that are ticks themselves: sizes, bursts, queues.
const OWN_TICKS: usize = 12;
/// Smallest share of samples that a percentile axis shows.
const RAREST: f64 = 1e-9;

/// An axis with its place in a plot.
#[derive(Debug, Clone)]
pub struct Ruler {
    scale: Scale,
    /// The ends of the axis, as places on it.
    ends: (f64, f64),
    /// The ends of the axis, as places in the plot.
    pixels: (f64, f64),
    /// Values that are to be ticks.
    own: Vec<f64>,
}

/// A value with a name on an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Tick {
    /// Place in the plot.
    pub at: f64,
    /// The value as it is written.
    pub label: String,
}

impl Ruler {
    /// Makes an axis from left to right for these values. Returns none if no value can be shown.
    pub fn across(scale: Scale, values: &[f64], pixels: (f64, f64)) -> Option<Self> {
        let (low, high) = span(scale, values)?;
        let mut own: Vec<f64> = values.iter().copied().filter(|v| lies(scale, *v)).collect();
        own.sort_by(f64::total_cmp);
        own.dedup();
        if own.len() > OWN_TICKS || scale == Scale::Percentile {
            own.clear();
        }
        let ends = match scale {
            // The largest sample lies at the end of the next tenth.
            Scale::Percentile => (0.0, (high - 1e-6).ceil().max(1.0)),
            _ if low == high => (low - 1.0, high + 1.0),
            _ => (low, high),
        };
        Some(Self { scale, ends, pixels, own })
    }

    /// Makes an axis from bottom to top with room for these values. Returns none if no value can be
    /// shown.
    pub fn upwards(scale: Scale, values: &[f64], pixels: (f64, f64)) -> Option<Self> {
        let (low, high) = span(scale, values)?;
        let ends = match scale {
            Scale::Linear => {
                let (low, high) = (low.min(0.0), high.max(0.0));
                let step = nice((high - low).max(f64::MIN_POSITIVE) / 5.0);
                ((low / step).floor() * step, (high / step * 1.02).ceil() * step)
            }
            Scale::Log => (round_down(low), round_up(high)),
            Scale::Percentile => (0.0, (high - 1e-6).ceil().max(1.0)),
        };
        let ends = if ends.0 < ends.1 { ends } else { (ends.0, ends.0 + 1.0) };
        Some(Self { scale, ends, pixels, own: Vec::new() })
    }

    /// Returns the place of a value in the plot. Returns none if the axis cannot show it.
    pub fn at(&self, value: f64) -> Option<f64> {
        if !lies(self.scale, value) {
            return None;
        }
        let (low, high) = self.ends;
        let share = (place(self.scale, value) - low) / (high - low);
        let (start, end) = self.pixels;
        Some(start + share.clamp(0.0, 1.0) * (end - start))
    }

    /// Returns ticks from one end to the other, about `wanted` of them.
    pub fn ticks(&self, wanted: f64) -> Vec<Tick> {
        let values = match self.scale {
            _ if !self.own.is_empty() => self.own.clone(),
            Scale::Linear => self.even(wanted),
            Scale::Log => self.decades(wanted),
            Scale::Percentile => self.nines(),
        };
        let largest = values.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
        let named = values.into_iter().filter_map(|value| {
            let label = match self.scale {
                Scale::Percentile => percent(value),
                // Evenly spaced numbers have one unit.
                Scale::Linear => in_unit(value, prefix(largest)),
                Scale::Log => number(value),
            };
            Some(Tick { at: self.at(value)?, label })
        });
        named.collect()
    }

    fn even(&self, wanted: f64) -> Vec<f64> {
        let (low, high) = self.ends;
        let step = nice((high - low) / wanted.max(1.0));
        let (first, last) = ((low / step).ceil(), (high / step + 1e-9).floor());
        // A step is a fair part of the axis, so that there are few ticks.
        (0..=((last - first).clamp(0.0, 100.0) as u32))
            .map(|n| (first + f64::from(n)) * step)
            .collect()
    }

    fn decades(&self, wanted: f64) -> Vec<f64> {
        let (low, high) = self.ends;
        let all = |steps: &[f64]| -> Vec<f64> {
            let powers = low.floor() as i32..=high.ceil().min(300.0) as i32;
            let values = powers.flat_map(|p| steps.iter().map(move |s| s * 10_f64.powi(p)));
            let inside = |value: &f64| {
                let place = value.log10();
                place >= low - 1e-9 && place <= high + 1e-9
            };
            values.filter(inside).collect()
        };
        let most = (wanted * 1.5).max(3.0) as usize;
        let finest = [all(&[1.0, 2.0, 5.0]), all(&[1.0, 3.0]), all(&[1.0])];
        finest.into_iter().find(|ticks| ticks.len() <= most).unwrap_or_else(|| {
            let ticks = all(&[1.0]);
            let every = ticks.len().div_ceil(most);
            ticks.into_iter().step_by(every).collect()
        })
    }

    /// Returns 0, 0.9, 0.99 and so on, and 1 at the end.
    fn nines(&self) -> Vec<f64> {
        let last = self.ends.1.round().clamp(1.0, 12.0) as i32;
        (0..last).map(|nines| 1.0 - 10_f64.powi(-nines)).chain([1.0]).collect()
    }
}

/// Returns true if a value can be shown at all.
fn lies(scale: Scale, value: f64) -> bool {
    match scale {
        Scale::Linear => value.is_finite(),
        Scale::Log => value.is_finite() && value > 0.0,
        Scale::Percentile => (0.0..=1.0).contains(&value),
    }
}

/// Returns the place of a value on its axis.
fn place(scale: Scale, value: f64) -> f64 {
    match scale {
        Scale::Linear => value,
        Scale::Log => value.log10(),
        // The largest of all samples is at the far end of any axis.
        Scale::Percentile if value >= 1.0 => f64::MAX,
        Scale::Percentile => -(1.0 - value).max(RAREST).log10(),
    }
}

/// Returns the lowest and the highest place of the values that can be shown.
fn span(scale: Scale, values: &[f64]) -> Option<(f64, f64)> {
    let shown = values.iter().filter(|v| lies(scale, **v));
    let places = shown.map(|v| place(scale, *v)).filter(|place| *place < f64::MAX);
    places.fold(None, |span, p| match span {
        None => Some((p, p)),
        Some((low, high)) => Some((p.min(low), p.max(high))),
    })
}

/// Returns the next step that is 1, 2 or 5 times a power of ten.
fn nice(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|s| s * power);
    steps.into_iter().find(|s| step <= s * 1.0001).unwrap_or(10.0 * power)
}

/// Returns the logarithm of the next such step above.
fn round_up(place: f64) -> f64 {
    nice(10_f64.powf(place)).log10()
}

fn round_down(place: f64) -> f64 {
    -round_up(-place)
}

/// A prefix such as kilo or mega, for numbers that have too many digits.
type Prefix = (f64, &'static str);

fn prefix(size: f64) -> Prefix {
    match size {
        0.0..1e5 => (1.0, ""),
        1e5..1e6 => (1e3, "k"),
        1e6..1e9 => (1e6, "M"),
        _ => (1e9, "G"),
    }
}

/// Returns a number as people write it, in a few digits.
pub fn number(value: f64) -> String {
    in_unit(value, prefix(value.abs()))
}

fn in_unit(value: f64, (size, unit): Prefix) -> String {
    let scaled = value / size;
    let digits = match scaled.abs() {
        0.0 => 0,
        small if small < 1.0 => (1 - small.log10().floor() as i32).clamp(1, 9) as usize,
        1.0..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    let text = format!("{scaled:.digits$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    if text == "0" { text.to_owned() } else { format!("{text}{unit}") }
}

fn percent(part: f64) -> String {
    match part {
        1.0.. => "max".to_owned(),
        _ => {
            // 99.9 has no more digits: the number of digits is the number of nines.
            let nines = (-(1.0 - part).max(RAREST).log10()).round() as usize;
            format!("{:.*}%", nines.saturating_sub(2), part * 100.0)
        }
    }
}
