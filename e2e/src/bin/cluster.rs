//! `make cluster` and `make cluster-down`: see `e2e::standing`.

fn main() -> std::process::ExitCode {
    e2e::local_cluster::main()
}
