//! Cases: tests of policies. A document of kind `Cases` names requests and the verdicts that are expected.
//!
//! `read` turns a document into cases and finds all mistakes in it. `run` judges the requests with the policies of the command
//! line and compares. The facts of a case (namespace labels, parameters, permissions, user) come before those of the command
//! line, so that cases need no other files.

pub(crate) mod case;
mod expect;
mod fields;
mod read;
mod run;

pub(crate) use read::read;
pub(crate) use run::run;
