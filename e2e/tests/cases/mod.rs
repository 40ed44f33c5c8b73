//! The cases by area, and the modules that several areas use ([`environment`], [`attempt`], [`files`], [`load`],
//! [`in_pods`]).

mod alerts;
mod attempt;
mod check_formats;
mod container_view;
mod controlplane;
mod deletion;
mod deploy;
mod environment;
mod ephemeral_containers;
mod etcd;
mod etcd_node;
mod files;
mod fleet;
mod harness;
mod images;
mod in_pods;
mod installation;
mod kinds;
mod load;
mod node;
mod node_policy;
mod objects;
mod opt_in;
mod options;
mod other_webhooks;
mod outage;
mod pages;
mod pod_security;
mod reload;
mod replacement;
mod review_count;
mod review_versions;
mod skips;
pub(crate) mod supervisor;
mod unchanged_fields;
