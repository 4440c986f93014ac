//! A vif with a stack on it, and the loop in which both are served.

use super::args::EndArgs;
use super::log::StackLog;
use grantway_backend::{Idle, WaitMode};
use grantway_command::args::{BufferPolicy, GuestArgs};
use grantway_command::control::{ReportSocket, frontend_socket};
use grantway_command::control::{nanoseconds, numbers};
use grantway_command::error::CommandError;
use grantway_command::footprint::Footprint;
use grantway_command::input;
use grantway_command::mode::wait_mode;
use grantway_command::patience;
use grantway_command::place::Place;
use grantway_command::process::pin;
use grantway_command::wait::{Signals, readable};
use grantway_frontend::{Vif, VifStatus, Wishes};
use grantway_ports::{parse_address, uptime};
use grantway_stack::{Stack, StackConfig};
use serde_json::{Value, json};
use smoltcp::time::Instant;
use std::sync::Arc;
use std::time::Duration;

/// Time between two looks at the store and at signals while frames flow.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Most time between two looks before the vif is connected.
const LOOK_UNCONNECTED: Duration = Duration::from_secs(1);
/// Least number of turns between two looks while frames flow.
const TURNS_UNLOOKED: u32 = 8;
/// Time that the backend gets to close in order.
const FAREWELL: Duration = Duration::from_secs(3);
/// Time that the backend gets to take the last frames.
const SETTLING: Duration = Duration::from_millis(200);

/// Returns the time that an end waits for the other one, or for the backend to connect, before it
/// fails.
pub fn limit() -> Duration {
    patience::answer(Duration::from_secs(10))
}

/// Result of an end's turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Something moved, and there may be more.
    Moved,
    /// Nothing moved. There is nothing to do before this time has passed, or ever if none.
    Idle(Option<Duration>),
    /// The test is done.
    Done,
}

/// The part that runs on a guest's stack.
pub trait End {
    /// Reads and writes sockets, at a time since the machine started.
    ///
    /// # Errors
    ///
    /// The test failed.
    fn turn(&mut self, stack: &mut Stack, now: Duration) -> Result<Turn, CommandError>;

    /// Begins the test: the vif is connected, for the first time.
    ///
    /// # Errors
    ///
    /// The errors of [`End::turn`].
    fn connected(&mut self, stack: &mut Stack, now: Duration) -> Result<(), CommandError>;

    /// Ends the test early, on a signal.
    ///
    /// # Errors
    ///
    /// The results cannot be printed.
    fn interrupted(&mut self, now: Duration) -> Result<(), CommandError>;
}

/// A vif with a stack on it.
pub struct Guest {
    vif: Vif<Stack>,
    place: Place,
    signals: Signals,
    reports: ReportSocket,
    mode: WaitMode,
    wished: BufferPolicy,
    mtu: u32,
    log: Option<StackLog>,
}

/// Returns a time by smoltcp's clock.
pub fn instant(now: Duration) -> Instant {
    Instant::from_micros(i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
}

impl Guest {
    /// Opens the vif.
    ///
    /// # Errors
    ///
    /// The vif cannot be used.
    pub fn open(args: &EndArgs) -> Result<Self, CommandError> {
        let signals = Signals::take()?;
        let mode = wait_mode(args.mode);
        if let Some(cpu) = args.cpu {
            pin(cpu)?;
        }
        // The reports' socket lies in the run folder of the place, so the place comes first.
        let GuestArgs { domain, .. } = args.guest;
        let need = Footprint::new(args.policy.kind(), 1, u64::MAX);
        let place = Place::of_guest(&args.guest, args.devid, need)?;
        let socket = frontend_socket(&place.run_folder, domain, args.devid);
        let reports = ReportSocket::bind(&socket)
            .map_err(|e| CommandError::Failed(format!("{}: {e}", socket.display())))?;
        let policy = args.policy.kind();
        let offloads = !args.no_offloads;
        let wishes = Wishes {
            policy,
            gso: offloads,
            checksum: offloads,
            reopen: place.reopen(args.devid),
            ..Wishes::default()
        };
        let stack = Stack::new(&config(args)?, instant(uptime())).map_err(CommandError::usage)?;
        let platform = Arc::clone(&place.platform);
        let mut vif =
            Vif::open_with(platform, args.devid, wishes, stack).map_err(CommandError::failed)?;
        let mac = vif.mac().map_err(CommandError::failed)?;
        let mtu = match args.mtu {
            Some(mtu) => mtu,
            None => vif.mtu().map_err(CommandError::failed)?,
        };
        // The stack needs the vif's address and MTU, which the store has.
        let station = parse_address(mac.trim());
        if !station.is_some_and(|station| vif.runner_mut().set_station(station, mtu as usize)) {
            return Err(CommandError::Failed(format!(
                "the vif's mac is {mac:?}, expected a unicast address, such as 00:16:3e:00:00:01; \
                 attach the vif with one"
            )));
        }
        let log = args.stack_log.as_deref();
        let log = log.map(|path| StackLog::begin(path, vif.runner_mut())).transpose()?;
        Ok(Self { vif, place, signals, reports, mode, wished: args.policy, mtu, log })
    }

    /// Returns the stack.
    pub fn stack(&mut self) -> &mut Stack {
        self.vif.runner_mut()
    }

    /// Returns the most bytes of a datagram that fits the MTU.
    pub fn datagram(&self, v6: bool) -> u32 {
        self.mtu.saturating_sub(if v6 { 48 } else { 28 })
    }

    /// Serves vif, stack and end until the end is done, or a signal ends it.
    ///
    /// # Errors
    ///
    /// An error of the end, or the vif cannot be used any more.
    pub fn run(&mut self, end: &mut dyn End) -> Result<(), CommandError> {
        let done = self.rounds(end);
        self.settle()?;
        if let Some(log) = &mut self.log {
            log.end(self.vif.runner_mut(), uptime())?;
        }
        self.close()?;
        done
    }

    fn rounds(&mut self, end: &mut dyn End) -> Result<(), CommandError> {
        let began = uptime();
        let mut connected = false;
        let (mut looked, mut unlooked) = (Duration::ZERO, TURNS_UNLOOKED);
        let mut idle = Idle::default();
        loop {
            let now = uptime();
            // A look costs system calls, so the store and signals are looked at now and then.
            unlooked += 1;
            if unlooked > TURNS_UNLOOKED && now.saturating_sub(looked) >= LOOK_EVERY {
                (looked, unlooked) = (now, 0);
                if self.look()? && !connected {
                    connected = true;
                    end.connected(self.vif.runner_mut(), now)?;
                }
                if self.signals.came().is_some() {
                    return end.interrupted(now);
                }
            }
            if !connected {
                if now.saturating_sub(began) > limit() {
                    return Err(CommandError::Failed(
                        "the backend does not connect; start it (see grantway backend --help)"
                            .into(),
                    ));
                }
                self.sleep(Some(LOOK_UNCONNECTED))?;
                (looked, unlooked) = (Duration::ZERO, TURNS_UNLOOKED);
                continue;
            }
            let (moved, next) = match self.turn(end, now)? {
                Turn::Done => return Ok(()),
                Turn::Moved => (true, None),
                Turn::Idle(next) => (false, next),
            };
            if let Some(log) = &mut self.log {
                log.write(self.vif.runner_mut(), now)?;
            }
            // An idle end spins for a while, and then sleeps until something comes.
            if moved {
                idle = Idle::default();
                continue;
            }
            if idle.looks_again(self.mode, std::time::Instant::now) {
                // The other end may need this processor.
                std::thread::yield_now();
                continue;
            }
            if self.nap(next)? {
                (looked, unlooked) = (Duration::ZERO, TURNS_UNLOOKED);
            }
        }
    }

    /// Takes frames in, gives the end its turn, and sends frames.
    fn turn(&mut self, end: &mut dyn End, now: Duration) -> Result<Turn, CommandError> {
        let stack = self.vif.runner_mut();
        let came = stack.receive(instant(now));
        let turn = end.turn(stack, now)?;
        let went = stack.send(instant(now));
        match came.and_then(|came| Ok(came | went?)) {
            Ok(true) if turn != Turn::Done => Ok(Turn::Moved),
            Ok(_) => Ok(turn),
            Err(fault) => {
                self.vif.fail(fault).map_err(CommandError::failed)?;
                Ok(Turn::Moved)
            }
        }
    }

    /// Looks at the store, and answers clients that ask for a report. Returns true if the vif is
    /// connected.
    fn look(&mut self) -> Result<bool, CommandError> {
        self.place.check()?;
        self.vif.take_answers().map_err(CommandError::failed)?;
        let status = self.vif.store_changed().map_err(CommandError::failed)?;
        self.reports.serve(|| report(&mut self.vif, &self.place, self.mode, self.wished));
        match status {
            VifStatus::Connected => Ok(true),
            VifStatus::Waiting => Ok(false),
            VifStatus::Held => Err(match self.vif.take_failure() {
                Some(failure) => CommandError::failed(failure),
                None => CommandError::Failed("the backend closed the vif; start it again".into()),
            }),
            VifStatus::Gone | VifStatus::Replaced => Err(CommandError::Failed(
                "the vif was detached; attach it again to continue".into(),
            )),
            VifStatus::Restored => Err(CommandError::Failed(
                "the domain was restored, which ends all connections; run the command again".into(),
            )),
        }
    }

    /// Sleeps until something comes, or has to be done. Returns false if something is there
    /// already, without sleeping.
    fn nap(&mut self, next: Option<Duration>) -> Result<bool, CommandError> {
        let stack = self.vif.runner_mut();
        stack.take_events().map_err(CommandError::failed)?;
        match stack.arm() {
            Ok(false) => {}
            Ok(true) => return Ok(false),
            Err(fault) => {
                self.vif.fail(fault).map_err(CommandError::failed)?;
                return Ok(true);
            }
        }
        // Arming may change the pages that are worth staging, and the backend is asked for that now.
        self.vif.take_answers().map_err(CommandError::failed)?;
        // The store's descriptor may be quiet about a fault of this turn.
        if self.vif.has_changes() || self.vif.status() != VifStatus::Connected {
            return Ok(true);
        }
        let stack = self.vif.runner_mut();
        let delay = stack.poll_delay().map(Duration::from);
        let timeout = match (delay, next) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        self.sleep(timeout)?;
        self.vif.runner_mut().take_events().map_err(CommandError::failed)?;
        Ok(true)
    }

    fn sleep(&mut self, timeout: Option<Duration>) -> Result<(), CommandError> {
        if self.vif.has_changes() {
            return Ok(());
        }
        let mut own = vec![self.signals.descriptor(), self.reports.descriptor()];
        own.extend(self.vif.store().descriptor());
        own.extend(self.vif.control().and_then(|control| control.descriptor()));
        own.extend(self.vif.runner().descriptor());
        readable(&own, self.place.lifeline(), timeout)
    }

    /// Lets the backend take the last frames. Frames that it has not taken are lost with the vif.
    fn settle(&mut self) -> Result<(), CommandError> {
        let since = uptime();
        while uptime().saturating_sub(since) < patience::answer(SETTLING) {
            let stack = self.vif.runner_mut();
            // An error does not matter any more, since the vif is closed next.
            if stack.send(instant(uptime())).is_err() || stack.is_settled().unwrap_or(true) {
                break;
            }
            self.sleep(Some(SETTLING / 100))?;
        }
        Ok(())
    }

    /// Closes the vif in order, as far as the backend takes part.
    fn close(&mut self) -> Result<(), CommandError> {
        self.vif.shutdown().map_err(CommandError::failed)?;
        let since = uptime();
        while uptime().saturating_sub(since) < patience::farewell(FAREWELL) {
            let status = self.vif.store_changed().map_err(CommandError::failed)?;
            if matches!(
                status,
                VifStatus::Gone | VifStatus::Replaced | VifStatus::Held | VifStatus::Restored
            ) {
                break;
            }
            if !self.vif.has_changes() {
                let store = self.vif.store().descriptor();
                readable(store.as_slice(), self.place.lifeline(), Some(FAREWELL / 60))?;
                self.place.check()?;
            }
        }
        Ok(())
    }
}

/// Returns the configuration of the stack.
fn config(args: &EndArgs) -> Result<StackConfig, CommandError> {
    let seed = input::random().map_err(|e| CommandError::Failed(format!("getrandom: {e}")))?;
    Ok(StackConfig {
        addresses: args.address.clone(),
        gateways: args.gateway.clone(),
        ..StackConfig::new(u64::from_ne_bytes(seed))
    })
}

/// Returns a report of the vif and its stack, as a frontend makes it.
fn report(vif: &mut Vif<Stack>, place: &Place, mode: WaitMode, wished: BufferPolicy) -> Value {
    let mut stats = vif.past_stats();
    let connected = vif.runner_mut().queue().map(|queue| stats.add(queue.stats())).is_some();
    json!({
        "host": place.platform.host(),
        "mode": mode.as_str(),
        "at_ns": nanoseconds(uptime()),
        "connected": connected,
        "wished": wished.as_str(),
        "agreed": vif.features().policy.as_str(),
        "policy": vif.policy_in_force().as_str(),
        "staged": vif.staging().iter().map(|state| state.staged).sum::<usize>(),
        "trusted": vif.trusts_backend(),
        "stats": numbers(stats.fields()),
        "stack": numbers(vif.runner().stats().fields()),
        "platform": numbers(place.platform.counters().fields()),
    })
}
