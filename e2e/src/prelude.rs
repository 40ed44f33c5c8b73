//! The names that most cases use: of the harness, and of the crates that appear in its interface.

pub use anyhow::{Context as _, Result, bail, ensure};
pub use serde_json::{Value, json};
pub use std::time::Duration;

pub use crate::api::Api;
pub use crate::console::print;
pub use crate::context::TestContext;
pub use crate::controlplane::{Cluster, Options};
pub use crate::durward::Durward;
pub use crate::fixture::{Lazy, Undo};
pub use crate::fleet::{Fleet, Member};
pub use crate::helm::Helm;
pub use crate::image::Image;
pub use crate::installation::Installation;
pub use crate::namespace::Namespace;
pub use crate::node::{Node, RunningPod};
pub use crate::pods::{Admitted, Pod};
pub use crate::supervisor::{Exit, Output};
pub use crate::wait::{Poll, WAIT_LIMIT, eventually, until};
