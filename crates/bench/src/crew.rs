//! `grantway bench crew`: eight guests of one bridge, whose frames go from each to each other, by one
//! worker or by several, in one thread and in turns, under a counter of instructions
//! (`scripts/instructions`). Only what one worker does is counted, within [`counted_round`].

use super::args::CrewArgs;
use super::turns::{address, config, guest, ip, nodes, queue, receive, send, step, udp};
use grantway_backend::{Backend, BackendConfig};
use grantway_command::error::CommandError;
use grantway_command::output;
use grantway_embedded::{Domain, Host, HostGuard, Role};
use grantway_frontend::Vif;
use grantway_hypervisor::{DomId, Platform};
use grantway_ports::{BURST, PortSpec, RECV_BUFFER};
use std::sync::Arc;

/// Guests of the bridge.
const GUESTS: usize = 8;
/// Rounds of each worker after which a burst of all guests has arrived: a worker may have to take
/// what another one hands it.
const ROUNDS: usize = 3;
/// Laps before the first counted one. In a lap each guest sends a burst to each other one.
const WARM_UP: usize = 12;

/// Runs the laps, and prints the number of packets of all guests in those that were counted.
///
/// # Errors
///
/// An end did not get ready, or a packet was lost.
pub fn run(args: &CrewArgs) -> Result<(), CommandError> {
    let mut crew = Crew::start(args)?;
    for _ in 0..WARM_UP {
        crew.lap(args, None)?;
    }
    let a_lap = GUESTS * (GUESTS - 1) * usize::from(args.burst);
    let laps = args.packets.div_ceil(a_lap);
    for _ in 0..laps {
        crew.lap(args, Some(args.counted.into()))?;
    }
    output::line((laps * a_lap).to_string())
}

/// A round of the worker that is counted.
#[inline(never)]
fn counted_round(backend: &mut Backend, worker: usize) -> Result<bool, CommandError> {
    Ok(backend.serve_worker(worker)?)
}

/// Host, backend and guests of the thread, in the order in which they are to end.
struct Crew {
    guests: Vec<Vif>,
    backend: Backend,
    arena: Vec<u8>,
    _host: HostGuard,
    _folder: tempfile::TempDir,
}

impl Crew {
    fn start(args: &CrewArgs) -> Result<Self, CommandError> {
        let failed = |e: std::io::Error| {
            CommandError::Failed(format!(
                "cannot create the directory of the \
                                                              host: {e}"
            ))
        };
        let _folder = tempfile::tempdir().map_err(failed)?;
        let _host = Host::spawn(_folder.path()).map_err(CommandError::failed)?;
        let dom0 = Domain::connect(_folder.path(), DomId::ZERO, Role::Service)
            .map_err(CommandError::failed)?;
        let workers = args.workers.into();
        let config = BackendConfig { workers, ..config(args.policy, _folder.path(), nodes(false)) };
        let platform: Arc<dyn Platform> = Arc::clone(&dom0) as _;
        let open = Box::new(move |_: &_| PortSpec::Bridge.open());
        let mut backend = Backend::start(platform, config, open).map_err(CommandError::failed)?;
        let mut guests = Vec::new();
        for number in 0..GUESTS {
            let mut step = || step(&mut backend);
            guests.push(guest(_folder.path(), &dom0, number, (args.policy, 1), &mut step)?);
        }
        let arena = vec![0; BURST * 4096 + RECV_BUFFER];
        Ok(Self { guests, backend, arena, _host, _folder })
    }

    /// Has each guest send a burst to each other one, and checks that all arrive. Counts what one
    /// worker does.
    fn lap(&mut self, args: &CrewArgs, counted: Option<usize>) -> Result<(), CommandError> {
        for step in 1..GUESTS {
            for from in 0..GUESTS {
                let to = (from + step) % GUESTS;
                let mut frame = vec![0; args.size.into()];
                frame[..6].copy_from_slice(&address(to));
                frame[6..12].copy_from_slice(&address(from));
                udp(&mut frame, ip(from), ip(to));
                let frames = vec![&frame[..]; args.burst.into()];
                send(queue(&mut self.guests, from)?, &frames).map_err(CommandError::failed)?;
            }
            for worker in (0..ROUNDS).flat_map(|_| 0..usize::from(args.workers)) {
                match counted {
                    Some(counted) if counted == worker => counted_round(&mut self.backend, worker)?,
                    _ => self.backend.serve_worker(worker)?,
                };
            }
            for to in 0..GUESTS {
                let queue = queue(&mut self.guests, to)?;
                let came = receive(queue, &mut self.arena).map_err(CommandError::failed)?;
                // Until the bridge knows where a guest is, what is for it goes to all.
                if counted.is_some() && came != usize::from(args.burst) {
                    let burst = args.burst;
                    return Err(CommandError::Failed(format!("{came} of {burst} packets arrived")));
                }
            }
        }
        Ok(())
    }
}
