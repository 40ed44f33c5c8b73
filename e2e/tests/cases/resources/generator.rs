//! The generator of policies and requests that `make parity` uses, from the tests of `crates/evaluator/policy`.

#![allow(
    dead_code,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "the files of another test, which uses more of them"
)]

#[path = "../../../../crates/evaluator/policy/tests/parity/cases.rs"]
pub(super) mod cases;
#[path = "../../../../crates/evaluator/policy/tests/parity/defects.rs"]
mod defects;
#[path = "../../../../crates/evaluator/policy/tests/parity/literals.rs"]
mod literals;
#[path = "../../../../crates/evaluator/policy/tests/parity/types.rs"]
mod types;
#[path = "../../../../crates/evaluator/policy/tests/words/mod.rs"]
pub(super) mod words;
