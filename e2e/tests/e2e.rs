//! The end-to-end tests: one binary, so that one keeper ends what all of them started.
//!
//! `cargo test -p durward-e2e --test e2e` runs all, with a word behind it those whose name contains the word;
//! `-- --list` names them. A case is a function in `cases/`, takes the [`Stage`] and returns what it found
//! wrong, if anything. [`cases!`] lists every one; a case that is not listed does not compile.

#![deny(dead_code)]

mod cases;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use e2e::stage::Stage;
use e2e::words::tell;
use libtest_mimic::{Arguments, Failed, Trial};

use cases::{controlplane, durward, keeper, sentences};

type Case = fn(&Stage) -> Result<()>;

/// Names and functions, the name being the path.
macro_rules! cases {
    ($($room:ident::{$($case:ident),+ $(,)?}),+ $(,)?) => {
        &[$($((concat!(stringify!($room), "::", stringify!($case)), $room::$case as Case)),+),+]
    };
}

const CASES: &[(&str, Case)] = cases![
    keeper::{
        leaves_nothing_behind_when_the_test_process_ends_well,
        leaves_nothing_behind_when_the_test_process_panics,
        leaves_nothing_behind_when_the_test_process_is_killed,
        leaves_nothing_behind_on_ctrl_c,
        the_next_run_cleans_up_behind_a_killed_keeper,
        the_next_run_ends_nobody_who_only_has_the_same_process_id,
        tells_why_a_part_cannot_be_started,
        ends_a_part_that_does_not_listen,
    },
    controlplane::{
        api_server_answers_its_version,
        kubectl_creates_and_lists_a_pod,
        controllers_turn_a_deployment_into_a_pod,
        restricted_default_refuses_a_privileged_pod,
        a_user_may_do_only_what_a_binding_says,
        two_api_servers_share_an_etcd_and_no_object,
        an_api_server_that_cannot_start_says_why,
    },
    sentences::{
        every_way_of_creating_a_pod_gives_that_pod,
        a_dry_run_stores_nothing,
        a_foreign_webhook_is_called_at_its_address,
        a_foreign_webhook_is_called_behind_a_service_and_follows_its_endpoints,
        a_webhook_that_is_gone_shows_in_the_api_servers_counters,
    },
    durward::{
        a_registered_server_is_asked_about_pods_that_want_it_and_no_others,
        a_server_with_a_bad_configuration_says_so_and_ends,
        a_server_behind_a_service_is_replaced_by_another,
        a_server_ends_well_when_it_is_asked_to,
        an_installation_is_taken_back,
        a_swapped_certificate_is_served,
    },
];

fn main() -> ExitCode {
    if let Some(part) = keeper::victim() {
        return part;
    }
    let arguments = Arguments::from_args();
    let stage = match Stage::new(env!("CARGO_BIN_EXE_e2e-keeper")) {
        Ok(stage) => Arc::new(stage),
        Err(error) => {
            tell(format_args!("{error:#}"));
            return ExitCode::FAILURE;
        }
    };
    let conclusion =
        libtest_mimic::run(&arguments, CASES.iter().map(|&(name, case)| trial(&stage, name, case)).collect());
    let passed = !conclusion.has_failed();
    match stage.finish(passed) {
        Ok(()) => conclusion.exit_code(),
        Err(error) => {
            tell(format_args!("the run did not end well: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// A case as the test runner wants it: whatever way it fails, the report says where the logs of its parts
/// are.
fn trial(stage: &Arc<Stage>, name: &str, case: Case) -> Trial {
    let stage = Arc::clone(stage);
    Trial::test(name, move || {
        let what = match catch_unwind(AssertUnwindSafe(|| case(&stage))) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => format!("{error:#}"),
            Err(panic) => format!("panicked: {}", words_of(panic.as_ref())),
        };
        let logs = stage
            .logs()
            .map_or_else(|| "none, nothing was started".to_owned(), |logs| logs.display().to_string());
        Err(Failed::from(format!("{what}\n\nlogs of every part: {logs}")))
    })
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("with something that is no text")
}
