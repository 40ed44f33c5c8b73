//! demo
pub(crate) fn run(_: &crate::cli::Demo) -> crate::exit::Outcome {
    Ok(crate::exit::Exit::Done)
}
