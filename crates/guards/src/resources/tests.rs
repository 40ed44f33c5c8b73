//! Unit tests of the guard.
