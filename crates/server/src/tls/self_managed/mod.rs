//! Serving certificates that a CA in a Secret signs. Each replica signs its own certificate and keeps it in memory.

mod store;

pub use store::{
    Bundle, CaBundle, Registered, RegisteredBundle, Registrations, Store, StoreError, StoreFault, Stored,
    Written,
};
