//! The value that guards are built with.

use std::sync::Arc;
use std::time::SystemTime;

use crate::live::{Live, LiveWriter};
use crate::world::World;
use crate::writer::Writer;
use crate::{EtcdClient, Offline, Reader};

/// The clients of one control plane. Cloning is cheap.
#[derive(Clone)]
pub struct Clients {
    /// Reads objects.
    pub reader: Arc<dyn Reader>,
    /// Sends requests to etcd members.
    pub etcd: Arc<dyn EtcdClient>,
    /// Changes objects and leaders. Without a writer, a guard reports the step that it would take.
    pub writer: Option<Arc<dyn Writer>>,
    /// Facts about the control plane itself.
    pub context: Context,
}

/// Facts about what [`Clients`] read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Context {
    /// The time that verdicts use instead of the clock: when the snapshot was taken.
    pub fixed_time: Option<SystemTime>,
    /// Whether all answers come from a snapshot, so that repeating a request cannot change its answer.
    pub is_snapshot: bool,
}

impl Context {
    /// Returns the time that verdicts use.
    pub fn now(&self) -> SystemTime {
        self.fixed_time.unwrap_or_else(SystemTime::now)
    }
}

impl Clients {
    /// Clients of a live control plane.
    pub fn live(live: &Arc<Live>) -> Self {
        Self { writer: Some(Arc::new(LiveWriter::new(live))), ..Self::new(Arc::clone(live)) }
    }

    /// Clients of a snapshot, or of another world in memory.
    pub fn world(world: World) -> Self {
        let context = Context { fixed_time: world.time, is_snapshot: world.path.is_some() };
        Self { context, ..Self::new(Arc::new(world)) }
    }

    /// Clients that report everything as Unknown.
    pub fn offline() -> Self {
        Self::new(Arc::new(Offline))
    }

    /// Clients without a writer.
    pub fn new(both: Arc<impl Reader + EtcdClient + 'static>) -> Self {
        Self { etcd: Arc::clone(&both) as _, ..Self::reader_only(both) }
    }

    /// Clients that reach no etcd member.
    pub fn reader_only(reader: Arc<dyn Reader>) -> Self {
        Self { reader, etcd: Arc::new(Offline), writer: None, context: Context::default() }
    }
}
