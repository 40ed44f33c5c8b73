//! review
pub(crate) fn run(_: &crate::cli::Review) -> crate::exit::Outcome {
    Ok(crate::exit::Exit::Done)
}
