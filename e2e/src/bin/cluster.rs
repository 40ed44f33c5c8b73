//! `make cluster` and `make cluster-down`: see `e2e::local_cluster`.

fn main() -> std::process::ExitCode {
    e2e::local_cluster::main()
}
