//! The vif, what is done with it, and the loop in which that is done.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use core::time::Duration;
use grantway_bare::{Bare, Clock, FrontendPlatform, FrontendStore, Shutdown, println};
use grantway_frontend::{Vif, VifError, VifStatus, Wishes};
use grantway_guest::work::Work;
use grantway_ports::parse_address;

/// Node by which the toolstack asks for an end.
const SHUTDOWN: &str = "control/shutdown";
/// Turns with frames between two looks at the store.
const TURNS_UNLOOKED: u32 = 64;
/// Turns without frames between two looks at the store, of a guest that polls.
const TURNS_IDLE: u32 = 4096;
/// Time after which a vif that failed is tried again.
const REST: Duration = Duration::from_millis(500);

/// The guest.
pub struct Guest<W: Work> {
    platform: Arc<Bare>,
    clock: Clock,
    vif: Vif<W>,
    /// True if the guest never sleeps while its vif is connected.
    polls: bool,
    /// The way by which the toolstack asks the guest to end, or to be saved.
    control: Box<dyn FrontendStore>,
    /// State that was printed last.
    told: Option<VifStatus>,
}

impl<W: Work> Guest<W> {
    /// Opens vif 0.
    pub fn open(platform: Arc<Bare>, work: W, wishes: Wishes, polls: bool) -> Result<Self, String> {
        let clock = platform.clock();
        let vif = Vif::open_with(platform.clone(), 0, wishes, work).map_err(text)?;
        let mut control = platform.frontend_store().map_err(text)?;
        control.watch(SHUTDOWN, "shutdown").map_err(text)?;
        let mut guest = Self { platform, clock, vif, polls, control, told: None };
        guest.settle()?;
        Ok(guest)
    }

    /// Gives the work the address and the MTU that the toolstack gave the vif.
    fn settle(&mut self) -> Result<(), String> {
        let vif = &mut self.vif;
        let (mac, mtu) = (vif.mac().map_err(text)?, vif.mtu().map_err(text)?);
        match parse_address(mac.trim())
            .is_some_and(|mac| vif.runner_mut().set_station(mac, mtu as usize))
        {
            true => Ok(()),
            false => {
                Err(format!("the vif's mac is {mac:?}, expected one such as 00:16:3e:00:00:01"))
            }
        }
    }

    /// Works until the toolstack has the guest end. Returns the kind of end.
    pub fn run(&mut self) -> Result<Shutdown, String> {
        let (mut unlooked, mut idle) = (TURNS_UNLOOKED, 0);
        loop {
            let now = self.clock.now();
            if unlooked >= TURNS_UNLOOKED {
                unlooked = 0;
                if let Some(end) = self.obey()? {
                    self.say(now, true);
                    return Ok(end);
                }
                self.look(now)?;
            }
            match self.vif.runner_mut().turn(now) {
                Ok(true) => {
                    unlooked += 1;
                    idle = 0;
                }
                Ok(false) if self.polls && self.told == Some(VifStatus::Connected) => {
                    core::hint::spin_loop();
                    idle += 1;
                    if idle >= TURNS_IDLE {
                        (unlooked, idle) = (TURNS_UNLOOKED, 0);
                    }
                }
                Ok(false) => {
                    unlooked = TURNS_UNLOOKED;
                    self.say(now, false);
                    self.sleep(now)?;
                }
                Err(fault) => {
                    unlooked = TURNS_UNLOOKED;
                    self.vif.fail(fault).map_err(text)?;
                }
            }
        }
    }

    /// Shows on the console what the work has to say.
    fn say(&mut self, now: Duration, last: bool) {
        for line in self.vif.runner_mut().lines(now, last) {
            println!("grantway: {line}");
        }
    }

    /// Does what the toolstack asks for. Returns the kind of end if the guest is to end.
    fn obey(&mut self) -> Result<Option<Shutdown>, String> {
        if self.control.next_event().map_err(text)?.is_none() {
            return Ok(None);
        }
        let asked = self.control.read_text(SHUTDOWN).map_err(text)?.unwrap_or_default();
        if !asked.is_empty() {
            // Xen's toolstack takes the empty node for an answer.
            self.control.write(SHUTDOWN, b"").map_err(text)?;
        }
        match asked.as_str() {
            "poweroff" | "halt" => Ok(Some(Shutdown::PowerOff)),
            "reboot" => Ok(Some(Shutdown::Reboot)),
            "suspend" => {
                if self.platform.suspend().map_err(text)? {
                    println!("grantway: restored");
                    self.told = None;
                    self.vif.resume(self.platform.clone()).map_err(text)?;
                }
                Ok(None)
            }
            _ => Ok(None),
        }
    }

    /// Takes in changes of the store, and answers of the control ring.
    fn look(&mut self, now: Duration) -> Result<(), String> {
        self.vif.take_answers().map_err(text)?;
        let staged = self.vif.staging().iter().map(|state| state.staged).sum();
        self.vif.runner_mut().staged(staged);
        let status = self.vif.store_changed().map_err(text)?;
        let changed = self.told != Some(status);
        self.say(now, changed);
        if changed {
            let policy = self.vif.features().policy;
            println!("grantway: {status:?} at {:?}, policy {policy}", self.clock.now());
            self.told = Some(status);
            if status == VifStatus::Connected
                && let Some(start) = grantway_bare::started()
            {
                println!("grantway: {start}");
            }
            if status == VifStatus::Connected
                && let Err(fault) = self.vif.runner_mut().connected(now)
            {
                self.vif.fail(fault).map_err(text)?;
            }
        }
        match status {
            VifStatus::Held => {
                if let Some(failure) = self.vif.take_failure() {
                    println!("grantway: {failure}; trying again");
                }
                // What is asked of the guest meanwhile is done after this rest.
                self.platform.pause(self.clock.now() + REST);
                self.vif.store_changed().map_err(text)?;
                self.vif.restart().map_err(text)
            }
            VifStatus::Replaced => match self.vif.renew() {
                Ok(()) => self.settle(),
                // It went again.
                Err(VifError::NoVif { .. }) => Ok(()),
                Err(e) => Err(text(e)),
            },
            VifStatus::Restored => self.vif.resume(self.platform.clone()).map_err(text),
            VifStatus::Connected | VifStatus::Waiting | VifStatus::Gone => Ok(()),
        }
    }

    /// Sleeps until something comes, or has to be done.
    fn sleep(&mut self, now: Duration) -> Result<(), String> {
        // Answers to what is armed come by an event that ends the wait.
        match self.vif.runner_mut().arm() {
            Ok(false) => {}
            Ok(true) => return Ok(()),
            Err(fault) => return self.vif.fail(fault).map_err(text),
        }
        // Arming may change the pages that are worth staging, and the backend is asked for that now.
        self.vif.take_answers().map_err(text)?;
        if self.vif.has_changes() || self.told != Some(self.vif.status()) {
            return Ok(());
        }
        let delay = self.vif.runner().delay(now);
        self.platform.wait(delay.map(|delay| now + delay));
        Ok(())
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
