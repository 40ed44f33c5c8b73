//! The process that outlives the tests: see `e2e::keeper`.

fn main() -> std::process::ExitCode {
    e2e::keeper::house::main()
}
