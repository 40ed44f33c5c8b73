//! Input, output and end of a command: files and standard input, text and data for the terminal, exit codes.
//!
//! All commands use this crate. Arguments that several commands share are in `durward`.

pub mod exit;
pub mod input;
pub mod output;
pub mod sarif;
pub mod yaml;
