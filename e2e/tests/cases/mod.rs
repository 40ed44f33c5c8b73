//! The cases, by what they are about; and what they share ([`house`], [`files`], [`load`]).

pub(crate) mod asking;
pub(crate) mod company;
pub(crate) mod controlplane;
pub(crate) mod counting;
pub(crate) mod deletion;
pub(crate) mod durward;
pub(crate) mod ephemeral;
pub(crate) mod etcd;
pub(crate) mod etcd_node;
pub(crate) mod fleet;
pub(crate) mod images;
pub(crate) mod node;
pub(crate) mod options;
pub(crate) mod outage;
pub(crate) mod pod_security;
pub(crate) mod policy;
pub(crate) mod reload;
pub(crate) mod replacement;
pub(crate) mod seen;
pub(crate) mod sentences;
pub(crate) mod shipped;
pub(crate) mod skips;
pub(crate) mod supervisor;
pub(crate) mod versions;
pub(crate) mod whole;

mod files;
mod house;
mod load;
