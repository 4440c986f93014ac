//! Runs the engine; `make fuzz` builds it with counters and calls it.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod coverage;

use coverage::Counters;
use grantway_fuzz::corpus::{self, MAX_KEPT};
use grantway_fuzz::engine::{Engine, Failure};
use grantway_fuzz::targets::{self, Target};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Once;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const USAGE: &str = "\
grantway-fuzz list                 the targets
grantway-fuzz run TARGET DIR       begins with what is kept and what DIR has; what is
                                   found goes to DIR
grantway-fuzz keep TARGET DIR      keeps, in the repository, what reaches the most
grantway-fuzz try TARGET INPUT     one input, in hexadecimal
grantway-fuzz compare TARGET       from nothing, with coverage as the guide and without
GRANTWAY_FUZZ_SECONDS (30) says how long, GRANTWAY_FUZZ_SEED repeats a run. Of a target
that counts frames, GRANTWAY_FUZZ_FRAMES says how many in place of how long.";

/// What goes wrong, in a line.
type Trouble = String;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let done = match arguments[..] {
        ["list"] => {
            targets::ALL.iter().for_each(|target| println!("{}", target.name));
            Ok(())
        }
        ["run", name, folder] => target(name).and_then(|target| run(target, Path::new(folder))),
        ["keep", name, folder] => target(name).and_then(|target| keep(target, Path::new(folder))),
        ["try", name, input] => target(name).and_then(|target| attempt(target, input)),
        ["compare", name] => target(name).and_then(compare),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            eprintln!("fuzz: {trouble}");
            ExitCode::FAILURE
        }
    }
}

fn target(name: &str) -> Result<Target, Trouble> {
    let names = || targets::ALL.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    targets::find(name).ok_or_else(|| format!("{name:?} is no target; there are {}", names()))
}

fn setting(name: &str) -> Result<Option<u64>, Trouble> {
    let Ok(text) = std::env::var(name) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| format!("{name}={text}: expected a number"))
}

fn seconds() -> Result<Duration, Trouble> {
    Ok(Duration::from_secs(setting("GRANTWAY_FUZZ_SECONDS")?.unwrap_or(30)))
}

/// The seed of this run, which is said.
fn seed() -> Result<u64, Trouble> {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos() as u64);
    let seed = setting("GRANTWAY_FUZZ_SEED")?.unwrap_or(clock);
    println!("GRANTWAY_FUZZ_SEED={seed}");
    Ok(seed)
}

fn engine(target: Target, seed: u64, guided: bool) -> Result<Engine<Counters>, Trouble> {
    let counters =
        Counters::new().ok_or("built without counters; `make fuzz` builds it with them")?;
    println!("{}: {} places in all", target.name, counters.len());
    silence();
    Ok(Engine::new(target, counters, seed, guided))
}

/// The first panic says where it was; the same one again says nothing new.
fn silence() {
    static ONCE: Once = Once::new();
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| ONCE.call_once(|| usual(panic))));
}

/// The file of what was found and is not kept yet.
fn found(target: Target, folder: &Path) -> PathBuf {
    folder.join(format!("{}.hex", target.name))
}

/// Inputs of a file that need not be there.
fn inputs(file: &Path) -> Result<Vec<Vec<u8>>, Trouble> {
    match file.exists() {
        true => corpus::read(file).map_err(|e| format!("{}: {e}", file.display())),
        false => Ok(Vec::new()),
    }
}

fn write(file: &Path, title: &str, inputs: &[Vec<u8>]) -> Result<(), Trouble> {
    corpus::write(file, title, inputs).map_err(|e| format!("{}: {e}", file.display()))
}

fn describe(target: Target, failure: &Failure) -> Trouble {
    let (name, input) = (target.name, corpus::encode(&failure.input));
    format!(
        "{name}: {}\nfor the input {input}\nwhich `cargo test` tries again as a line of {}",
        failure.message,
        corpus::kept(name).display()
    )
}

/// Says what was reached, at 1, 2, 4, 8 ... seconds.
struct Progress {
    start: Instant,
    next: Duration,
}

impl Progress {
    fn new() -> Self {
        Self { start: Instant::now(), next: Duration::from_secs(1) }
    }

    fn look(&mut self, engine: &Engine<Counters>, ends: bool) {
        let now = self.start.elapsed();
        if now < self.next && !ends {
            return;
        }
        while self.next <= now {
            self.next *= 2;
        }
        println!(
            "{:8.1} s {:12} runs {:6} inputs {:6} places {:6} features",
            now.as_secs_f64(),
            engine.runs(),
            engine.corpus().len(),
            engine.places(),
            engine.features()
        );
    }
}

/// When a run ends.
enum End {
    After(Duration),
    Frames(u64),
}

impl End {
    /// As the environment has it.
    fn of(target: Target) -> Result<Self, Trouble> {
        match (setting("GRANTWAY_FUZZ_FRAMES")?, target.tally) {
            (None, _) => Ok(Self::After(seconds()?)),
            (Some(frames), Some(_)) => Ok(Self::Frames(frames)),
            (Some(_), None) => Err(format!(
                "GRANTWAY_FUZZ_FRAMES is set, and {} counts no frames; set GRANTWAY_FUZZ_SECONDS",
                target.name
            )),
        }
    }

    fn is_reached(&self, target: Target, since: Instant) -> bool {
        match *self {
            Self::After(time) => since.elapsed() >= time,
            Self::Frames(most) => target.tally.is_none_or(|tally| tally().frames >= most),
        }
    }
}

/// Says what became of frames, where the target counts them. A reason that never
/// occurred is told, too.
fn account(target: Target) {
    let Some(tally) = target.tally.map(|tally| tally()) else { return };
    let dropped: u64 = tally.drops.iter().map(|(_, times)| times).sum();
    println!("{}: {} frames, {dropped} of them dropped:", target.name, tally.frames);
    tally.drops.iter().for_each(|(reason, times)| println!("{times:12} {reason}"));
}

/// Tries inputs until the end.
fn fuzz(target: Target, engine: &mut Engine<Counters>, end: &End) -> Result<(), Trouble> {
    let mut progress = Progress::new();
    loop {
        for _ in 0..256 {
            let input = engine.next_input();
            if let Err(failure) = engine.add(&input) {
                return Err(describe(target, &engine.shorten(failure)));
            }
        }
        let ends = end.is_reached(target, progress.start);
        progress.look(engine, ends);
        if ends {
            return Ok(());
        }
    }
}

fn run(target: Target, folder: &Path) -> Result<(), Trouble> {
    let (end, seed) = (End::of(target)?, seed()?);
    let mut engine = engine(target, seed, true)?;
    let file = found(target, folder);
    let known = [inputs(&corpus::kept(target.name))?, inputs(&file)?].concat();
    for input in &known {
        engine.add(input).map_err(|failure| describe(target, &failure))?;
    }
    let begin = (engine.features(), engine.places(), engine.corpus().len());
    let ended = fuzz(target, &mut engine, &end);
    println!(
        "{}: {} features, {} at the beginning; {} places, {}; {} inputs, {}",
        target.name,
        engine.features(),
        begin.0,
        engine.places(),
        begin.1,
        engine.corpus().len(),
        begin.2
    );
    account(target);
    std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    write(&file, &format!("Found for {} and not kept yet.", target.name), engine.corpus())?;
    ended
}

fn keep(target: Target, folder: &Path) -> Result<(), Trouble> {
    let mut engine = engine(target, 0, true)?;
    let kept = corpus::kept(target.name);
    let all = [inputs(&kept)?, inputs(&found(target, folder))?].concat();
    let reduced = engine.reduce(&all).map_err(|failure| describe(target, &failure))?;
    println!("{}: {} inputs of {}", target.name, reduced.len(), all.len());
    if reduced.len() > MAX_KEPT {
        return Err(format!("{}: more than {MAX_KEPT} inputs are not kept", target.name));
    }
    let title = format!("Inputs of the fuzz target {}, from `make fuzz-keep`.", target.name);
    write(&kept, &title, &reduced)
}

fn attempt(target: Target, input: &str) -> Result<(), Trouble> {
    let input = corpus::decode(input).ok_or("the input is not in hexadecimal, or too long")?;
    (target.run)(&input);
    println!("{}: as promised", target.name);
    Ok(())
}

fn compare(target: Target) -> Result<(), Trouble> {
    let (end, seed) = (End::of(target)?, seed()?);
    for guided in [true, false] {
        println!("{}", if guided { "with coverage as the guide" } else { "without" });
        fuzz(target, &mut engine(target, seed, guided)?, &end)?;
    }
    Ok(())
}
