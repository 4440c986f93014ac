use super::html::{Looks, escape, page};
use super::plot::{self, Width};
use super::scale::{Ruler, number};
use super::*;

const POLICIES: [&str; 4] = ["copy", "map", "persistent", "staging"];
const SIZES: [f64; 10] =
    [64.0, 128.0, 256.0, 512.0, 1024.0, 1280.0, 1496.0, 1518.0, 9000.0, 65_535.0];

fn axis(label: &str, scale: Scale) -> Axis {
    Axis { label: label.into(), scale }
}

fn over(xs: &[f64], what: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
    xs.iter().map(|&x| (x, what(x))).collect()
}

fn over_size() -> Plot {
    let best = [2.4, 0.18, 14.0, 21.5];
    let series = POLICIES.iter().zip(best).map(|(name, mpps)| {
        let points = over(&SIZES, |size| 1.0 / (1.0 / mpps + size / 60_000.0));
        let intervals = points.iter().map(|(_, y)| (y * 0.94, y * 1.05)).collect();
        Series { name: (*name).into(), points, intervals }
    });
    Plot {
        title: "Packets per second over frame size".into(),
        x: axis("frame size (bytes, without FCS)", Scale::Log),
        y: axis("Mpps", Scale::Log),
        series: series.collect(),
    }
}

fn over_burst() -> Plot {
    let bursts = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];
    let line = |name: &str, most: f64| Series {
        name: name.into(),
        points: over(&bursts, |burst| most * burst / (burst + 6.0)),
        intervals: Vec::new(),
    };
    Plot {
        title: "Packets per second over burst, 64 bytes".into(),
        x: axis("burst (frames)", Scale::Log),
        y: axis("Mpps", Scale::Linear),
        series: vec![line("staging", 22.0), line("persistent", 21.4), line("copy", 2.5)],
    }
}

fn latency() -> Plot {
    let parts: Vec<f64> =
        (0..=120).map(|n| 1.0 - 10_f64.powf(-f64::from(n) / 24.0)).chain([1.0]).collect();
    let line = |name: &str, base: f64, tail: f64| Series {
        name: name.into(),
        points: over(&parts, |p| base + tail * (-(1.0 - p).max(1e-6).log10()).powi(2)),
        intervals: Vec::new(),
    };
    Plot {
        title: "Latency from the intended send time, at half the load".into(),
        x: axis("percentile", Scale::Percentile),
        y: axis("microseconds", Scale::Linear),
        series: vec![
            line("busy", 0.9, 1.0),
            line("adaptive", 1.4, 2.3),
            line("interrupt <&> \"sleeping\" for as long as it can", 31.0, 7.0),
        ],
    }
}

fn wake_ups() -> Plot {
    let load = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0];
    let line = |name: &str, most: f64| Series {
        name: name.into(),
        points: over(&load, |l| most * l * (1.0 - l) * 4.0 + 20.0),
        intervals: Vec::new(),
    };
    Plot {
        title: "Wake-ups over load".into(),
        x: axis("load (part of what is lossless)", Scale::Linear),
        y: axis("wake-ups per second", Scale::Linear),
        series: vec![line("copy", 184_000.0), line("staging", 61_000.0)],
    }
}

fn table() -> Table {
    let mut table = Table::new(&[
        "policy",
        "bytes#",
        "Mpps#",
        "Gbit/s#",
        "lost#",
        "grant ops/pkt#",
        "notifies/pkt#",
        "host",
        "state",
    ]);
    for policy in POLICIES {
        table.row([policy, "64", "2.413", "1.24", "0", "1.00", "0.0312", "embedded", "near"]);
    }
    table
}

fn sample() -> Report {
    let given = [
        ("host", "embedded"),
        ("state", "near (one cache)"),
        ("processes", "3: host, backend, frontend"),
        ("burst", "32"),
        ("event mode", "adaptive"),
        ("n", "20 pairs of slices of 0.5 s"),
    ];
    let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let section = |heading: &str, plot, table| Section {
        heading: heading.into(),
        note: "Made-up figures, to look at <the page>.".into(),
        table,
        plots: vec![plot],
        ..Section::default()
    };
    Report {
        title: "Grantway: a sample of every plot".into(),
        conditions: given.into_iter().chain(of_this_run()).collect(),
        sections: vec![
            section("Sizes", over_size(), Some(table())),
            section("Bursts", over_burst(), None),
            section("Latency", latency(), None),
            section("Wake-ups", wake_ups(), None),
        ],
        ..Report::default()
    }
}

fn svg(plot: &Plot, width: Width) -> Option<String> {
    plot::svg(plot, width, &Looks::of_plots([plot]))
}

/// Draws every plot. `GRANTWAY_SAMPLE_REPORT=FILE` keeps the page for a look.
#[test]
fn a_page_of_every_plot() {
    let folder = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("GRANTWAY_SAMPLE_REPORT").map(PathBuf::from);
    let path = kept.unwrap_or_else(|| folder.path().join("sample.html"));
    Destination::at(&path).unwrap().write(&sample()).unwrap();
    let page = std::fs::read_to_string(&path).unwrap();
    assert_eq!(page.matches("<svg class=\"plot wide\"").count(), 4);
    assert_eq!(page.matches("<svg class=\"plot narrow\"").count(), 4);
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert_eq!(page.matches("<g ").count(), page.matches("</g>").count());
    for absent in ["NaN", "inf", "<script", "src=", "http://", "https://", "url(", "@import"] {
        assert!(!page.contains(absent), "{absent}");
    }
    for present in ["viewport", "prefers-color-scheme: dark", "@media print", "near (one cache)"] {
        assert!(page.contains(present), "{present}");
    }
    // Names of measurements are text, never markup.
    assert!(page.contains("interrupt &lt;&amp;&gt; &quot;sleeping&quot;"));
    assert!(!page.contains("<the page>"));
    // No other file stays beside the page.
    let left = std::fs::read_dir(path.parent().unwrap()).unwrap().flatten();
    let left = left.filter(|f| f.file_name().to_string_lossy().contains("grantway-report-"));
    assert_eq!(left.count(), 0);
}

/// Returns the numbers behind ` x="` or ` y="` of texts.
fn texts(svg: &str, key: &str) -> Vec<f64> {
    let words = svg.split("<text").skip(1);
    let find = |text: &str| text.split_once(key)?.1.split('"').next()?.parse().ok();
    words.map(|text| find(text).unwrap_or_else(|| panic!("{text}"))).collect()
}

#[test]
fn all_that_is_written_is_inside() {
    for plot in [over_size(), over_burst(), latency(), wake_ups()] {
        for (width, w, h) in [(Width::Wide, 760.0, 400.0), (Width::Narrow, 360.0, 300.0)] {
            let drawn = svg(&plot, width).unwrap();
            assert!(texts(&drawn, " x=\"").iter().all(|x| (0.0..w).contains(x)), "{drawn}");
            assert!(texts(&drawn, " y=\"").iter().all(|y| (10.0..h).contains(y)), "{drawn}");
        }
    }
}

#[test]
fn names_beside_lines_do_not_touch() {
    let mut plot = over_burst();
    plot.series.extend((0..5).map(|n| Series {
        name: format!("another {n}"),
        points: vec![(1.0, 0.1), (128.0, 0.1)],
        intervals: Vec::new(),
    }));
    let drawn = svg(&plot, Width::Wide).unwrap();
    let names: Vec<_> = drawn.split("class=\"name\"").skip(1).collect();
    let mut heights: Vec<f64> = names
        .iter()
        .map(|n| n.split("y=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(heights.len(), 8);
    heights.sort_by(f64::total_cmp);
    assert!(heights.windows(2).all(|pair| pair[1] - pair[0] >= 14.9), "{heights:?}");
    assert!(heights.iter().all(|y| (34.0..360.0).contains(y)), "{heights:?}");
}

#[test]
fn a_name_looks_alike_in_every_plot() {
    let page = page(&sample());
    // The first plot has this line first, the second has it last.
    let look = "<g class=\"s0\"><path class=\"lead\"";
    let names = page.split(look).skip(1).map(|part| part.split("</text>").next().unwrap());
    let names: Vec<_> = names.filter_map(|part| part.rsplit('>').next()).collect();
    assert_eq!(names, ["copy"; 3]);
}

#[test]
fn nothing_to_draw_and_odd_values() {
    let empty = Plot { series: Vec::new(), ..over_size() };
    assert!(svg(&empty, Width::Wide).is_none());
    let section = Section { plots: vec![empty], ..Section::default() };
    let report = Report { sections: vec![section], ..Report::default() };
    assert!(page(&report).contains("No data to draw"));
    let odd = Series {
        name: String::new(),
        points: vec![
            (0.0, 1.0),
            (-1.0, 1.0),
            (f64::NAN, 1.0),
            (64.0, f64::INFINITY),
            (64.0, 0.0),
            (64.0, 2.0),
        ],
        intervals: vec![(0.0, f64::NAN)],
    };
    let plot = Plot { series: vec![odd], ..over_size() };
    for width in [Width::Wide, Width::Narrow] {
        let drawn = svg(&plot, width).unwrap();
        assert!(!drawn.contains("NaN") && !drawn.contains("inf"), "{drawn}");
        assert_eq!(drawn.matches("class=\"mark\"").count(), 1, "{drawn}");
    }
    let flat = Series { points: vec![(1.0, 0.0), (2.0, 0.0)], ..Series::default() };
    assert!(svg(&Plot { series: vec![flat], ..wake_ups() }, Width::Wide).is_some());
}

fn labels(ruler: &Ruler, wanted: f64) -> Vec<String> {
    ruler.ticks(wanted).into_iter().map(|tick| tick.label).collect()
}

#[test]
fn ticks_are_sensible_numbers() {
    let up = |scale, values: &[f64]| Ruler::upwards(scale, values, (300.0, 0.0)).unwrap();
    let ticks = labels(&up(Scale::Linear, &[0.3, 21.5]), 6.0);
    assert_eq!(ticks, ["0", "5", "10", "15", "20", "25"]);
    assert_eq!(labels(&up(Scale::Linear, &[0.012, 0.029]), 6.0)[..2], ["0", "0.005"]);
    assert_eq!(
        labels(&up(Scale::Log, &[0.03, 21.0]), 6.0),
        ["0.03", "0.1", "0.3", "1", "3", "10", "30"]
    );
    assert_eq!(labels(&up(Scale::Log, &[3.0, 7.0]), 6.0), ["2", "5", "10"]);
    assert_eq!(labels(&up(Scale::Log, &[1.0, 9e8]), 6.0).last().unwrap(), "100M");
    let across = |scale, values: &[f64]| Ruler::across(scale, values, (0.0, 500.0)).unwrap();
    assert_eq!(
        labels(&across(Scale::Log, &[64.0, 1500.0, 64.0, 65_535.0]), 6.0),
        ["64", "1500", "65535"]
    );
    let parts = [0.0, 0.5, 0.9, 0.999, 0.9999, 1.0];
    assert_eq!(
        labels(&across(Scale::Percentile, &parts), 6.0),
        ["0%", "90%", "99%", "99.9%", "max"]
    );
    assert!(Ruler::across(Scale::Log, &[0.0], (0.0, 1.0)).is_none());
}

#[test]
fn values_lie_where_they_should() {
    let ruler = Ruler::across(Scale::Log, &[1.0, 100.0], (0.0, 200.0)).unwrap();
    assert_eq!([1.0, 10.0, 100.0].map(|v| ruler.at(v)), [Some(0.0), Some(100.0), Some(200.0)]);
    let ruler = Ruler::across(Scale::Percentile, &[0.5, 0.9, 0.999], (0.0, 300.0)).unwrap();
    let at = |part| ruler.at(part).unwrap();
    assert!((at(0.9) - 100.0).abs() < 1e-6 && (at(0.99) - 200.0).abs() < 1e-6);
    assert_eq!(at(1.0), 300.0);
    assert_eq!(ruler.at(1.1), None);
}

#[test]
fn numbers_are_short() {
    let values = [0.0, 0.0312, 1.0, 2.413, 17.25, 1500.0, 65_535.0, 184_000.0, 2.5e6, 3e9];
    let texts = ["0", "0.031", "1", "2.41", "17.2", "1500", "65535", "184k", "2.5M", "3G"];
    assert_eq!(values.map(number), texts);
}

#[test]
fn text_is_escaped() {
    assert_eq!(
        escape("<a href='x'>&\"\u{7}\u{e9}"),
        "&lt;a href=&#39;x&#39;&gt;&amp;&quot; \u{e9}"
    );
}

#[test]
fn a_place_that_cannot_be_written_is_known_at_once() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().join("none/x.html"), folder.path().to_owned(), PathBuf::from("/")] {
        let error = Destination::at(&path).err().unwrap().to_string();
        assert!(error.starts_with("--report ") && error.contains("expected a file"), "{error}");
    }
    // Nothing stays if a bench fails.
    drop(Destination::at(&folder.path().join("x.html")).unwrap());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
