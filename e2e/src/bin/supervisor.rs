//! The process that outlives the tests: see `e2e::supervisor`.

fn main() -> std::process::ExitCode {
    e2e::supervisor::program::main()
}
