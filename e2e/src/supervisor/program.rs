//! The supervisor's own side: read orders until the pipe closes, then end everything.
//!
//! It makes no decision of its own. Orders that take long (a wait, an end) are answered from a thread each;
//! all others in turn.

use std::collections::HashMap;
use std::io::{BufRead as _, Write as _};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};

use super::child::Process;
use super::journal::{Entry, Head, Journal, lock_in};
use super::protocol::{Answer, GREETING, Lease, Order, Question, Reply, Resource};
use super::{cgroup, journal, link, loopback};
use crate::console::print;

/// The whole of the `e2e-supervisor` binary.
pub fn main() -> ExitCode {
    use std::io::IsTerminal as _;
    if std::io::stdin().is_terminal() {
        print(
            "this program is started by the end-to-end tests and takes its orders from them; run `make e2e`",
        );
        return ExitCode::from(2);
    }
    // A session of its own: neither Ctrl-C nor the terminal's end reaches it. It fails only for a group's
    // leader, which a child never is.
    if let Err(error) = rustix::process::setsid() {
        print(format_args!(
            "the supervisor cannot have a session of its own ({error}): Ctrl-C will end it too"
        ));
    }
    match Supervisor::open() {
        Ok(mut supervisor) => {
            supervisor.serve();
            supervisor.close();
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(GREETING, &Err(format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

struct Supervisor {
    cache: PathBuf,
    journal: Arc<Mutex<Journal>>,
    parts: HashMap<u64, Arc<Process>>,
    addresses: Vec<Ipv4Addr>,
    leases: Vec<Lease>,
    passed: bool,
}

impl Supervisor {
    fn open() -> Result<Self> {
        let cache = crate::binaries::cache()?;
        let journal = Journal::open(&cache)?;
        let ready = Reply::Ready { work: journal.head.work.clone(), logs: journal.head.logs.clone() };
        say(GREETING, &Ok(ready));
        let journal = Arc::new(Mutex::new(journal));
        Ok(Self {
            cache,
            journal,
            parts: HashMap::new(),
            addresses: Vec::new(),
            leases: Vec::new(),
            passed: false,
        })
    }

    /// Until the tests' end of the pipe closes. A line that is no order is told and passed over: its asker is
    /// none of ours.
    fn serve(&mut self) {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            match serde_json::from_str::<Question>(&line) {
                Ok(question) => self.answer(question),
                Err(error) => print(format_args!("the supervisor does not understand {line:?}: {error}")),
            }
        }
    }

    fn answer(&mut self, Question { id, order }: Question) {
        let result = match order {
            Order::Start(start) => self.start(id, &start),
            Order::Wait(part) => {
                return self.later(id, part, |part| Reply::Ended(part.wait()));
            }
            Order::End(part) => return self.later(id, part, |part| Reply::Ended(part.end())),
            Order::Look(part) => self.part(part).map(|part| part.exit().map_or(Reply::Running, Reply::Ended)),
            Order::Signal { part, signal } => {
                self.part(part).and_then(|part| part.signal(signal)).map(|()| Reply::Done)
            }
            Order::Address => self.address().map(Reply::Address),
            Order::Borrow(Resource::Cgroup) => self.cgroup().map(Reply::Leased),
            Order::Borrow(Resource::Link { into }) => self.link(into).map(Reply::Leased),
            Order::Passed => {
                self.passed = true;
                self.write(&Entry::Passed).map(|()| Reply::Done)
            }
        };
        say(id, &result.map_err(|error| format!("{error:#}")));
    }

    /// The part's name is the number of the order that started it.
    fn start(&mut self, id: u64, start: &super::protocol::Start) -> Result<Reply> {
        let part = Process::start(start, &self.journal)?;
        let pid = part.pid;
        self.parts.insert(id, part);
        Ok(Reply::Started { part: id, pid })
    }

    fn later(&self, id: u64, part: u64, what: impl FnOnce(&Process) -> Reply + Send + 'static) {
        match self.part(part) {
            Ok(part) => drop(std::thread::spawn(move || say(id, &Ok(what(&part))))),
            Err(error) => say(id, &Err(format!("{error:#}"))),
        }
    }

    fn part(&self, part: u64) -> Result<Arc<Process>> {
        self.parts.get(&part).cloned().with_context(|| format!("no part has the number {part}"))
    }

    /// Takes the first address of its range that this host does not have yet. Under the lock of all runs, and
    /// written down before it is added: a killed supervisor's address is always found, and never mistaken for
    /// another run's.
    fn address(&mut self) -> Result<Ipv4Addr> {
        let _lock = lock_in(&self.cache)?;
        for attempt in 0..254 {
            let address = loopback::candidate(attempt);
            if loopback::is_present(address) {
                continue;
            }
            self.write(&Entry::Address(address))?;
            if let Err(error) = loopback::add(address) {
                self.write(&Entry::AddressReturned(address))?;
                // A run with another cache, and so another lock, may have been quicker.
                if loopback::is_present(address) {
                    continue;
                }
                return Err(error);
            }
            self.addresses.push(address);
            return Ok(address);
        }
        bail!("every address from 10.99.1.1 to 10.99.254.1 is on this host already")
    }

    /// Makes a cgroup whose name is the run's and a number.
    fn cgroup(&mut self) -> Result<Lease> {
        let run = self.head().run;
        let name = cgroup::name(&run, self.leases.len());
        self.borrow(Lease::Cgroup(name.clone()), || cgroup::create(&name))
    }

    /// Takes the first link of its range that this host does not have yet. Two runs with two caches, and so two locks,
    /// may try the same: the kernel gives the name to one of them.
    fn link(&mut self, into: i32) -> Result<Lease> {
        let _lock = lock_in(&self.cache)?;
        let run = self.head().run;
        for attempt in 0..254 {
            let subnet = link::candidate(attempt);
            if link::is_present(subnet) {
                continue;
            }
            match self.borrow(Lease::Link(subnet), || link::add(subnet, into, &run)) {
                Err(_) if link::is_present(subnet) => {}
                lent => return lent,
            }
        }
        bail!("every network from 10.98.1.0/30 to 10.98.254.0/30 is on this host already")
    }

    /// Written down before it is taken, and struck out if it could not be had.
    fn borrow(&mut self, lease: Lease, take: impl FnOnce() -> Result<()>) -> Result<Lease> {
        self.write(&Entry::Leased(lease.clone()))?;
        if let Err(error) = take() {
            self.write(&Entry::Returned(lease))?;
            return Err(error);
        }
        self.leases.push(lease.clone());
        Ok(lease)
    }

    fn head(&self) -> Head {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).head.clone()
    }

    fn write(&self, entry: &Entry) -> Result<()> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner).write(entry)
    }

    /// Ends all parts at once, each with its own grace; then what the host lent; then the folders and the
    /// journal.
    fn close(self) {
        std::thread::scope(|scope| {
            for part in self.parts.values() {
                scope.spawn(|| part.end());
            }
        });
        for address in &self.addresses {
            loopback::remove(*address);
        }
        journal::close(&self.cache, &self.head(), &self.leases, self.passed);
    }
}

/// One answer, one line. A broken pipe means that the tests are gone, which the next read finds out.
fn say(id: u64, result: &Result<Reply, String>) {
    let answer = Answer { id, result: result.clone() };
    if let Ok(mut line) = serde_json::to_vec(&answer) {
        line.push(b'\n');
        let mut stdout = std::io::stdout().lock();
        let _ = stdout.write_all(&line).and_then(|()| stdout.flush());
    }
}
