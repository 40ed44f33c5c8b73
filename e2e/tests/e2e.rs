//! The end-to-end tests: one binary, so that one supervisor ends what all of them started.
//!
//! `cargo test -p durward-e2e --test e2e` runs all, with a word behind it those whose name contains the word;
//! `-- --list` names them. A case is a function in `cases/`, takes the [`TestContext`] and returns what it found
//! wrong, if anything. [`cases!`] lists every one; a case that is not listed does not compile.

#![deny(dead_code)]

mod cases;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::console::print;
use e2e::context::TestContext;
use libtest_mimic::{Arguments, Failed, Trial};

use cases::deletion::{
    acknowledged, all, commands, configured, definitions, faults, glass, kept, members, namespaces,
    permissions, replicas, soak,
};
use cases::etcd::{
    beforehand, down, drain, ensembles, leader, quorum, reservations, stances, teardown, trust,
};
use cases::etcd_node::{document, rolling};
use cases::node::{basics, kubelet, local_cluster, lxcfs};
use cases::seen::{asked, away, containers, fields, left, workloads};
use cases::shipped::{device, doctor, in_pods, label, library, process};
use cases::{
    asking, company, controlplane, counting, durward, ephemeral, fleet, images, options, outage,
    pod_security, policy, reload, replacement, sentences, skips, supervisor, versions, whole,
};

type Case = fn(&'static TestContext) -> Result<()>;

/// Cases wait more than they work: for a controller, for a watch, for their turn. More at once than there are
/// processors, unless the command line says how many.
const AT_ONCE: usize = 6;

/// A case that takes longer is told of, and again each time it has taken as long once more. The longest wait for
/// the one node or the fleet, minutes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// One that takes this long hangs. The first ones wait for the control plane that is built, once, for all.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// Names and functions, the name being the path; for rooms of a house with the house before it.
macro_rules! cases {
    ($($room:ident::{$($case:ident),+ $(,)?}),+ $(,)?) => { cases![@ ""; $($room::{$($case),+}),+] };
    (@ $house:literal; $($room:ident::{$($case:ident),+ $(,)?}),+ $(,)?) => {
        &[$($((concat!($house, stringify!($room), "::", stringify!($case)), $room::$case as Case)),+),+]
    };
}

const CASES: &[(&str, Case)] = cases![
    supervisor::{
        leaves_nothing_behind_when_the_test_process_ends_well,
        leaves_nothing_behind_when_the_test_process_panics,
        leaves_nothing_behind_when_the_test_process_is_killed,
        leaves_nothing_behind_when_the_test_process_is_terminated,
        leaves_nothing_behind_on_ctrl_c,
        the_next_run_cleans_up_behind_a_killed_keeper,
        the_next_run_ends_nobody_who_only_has_the_same_process_id,
        tells_why_a_part_cannot_be_started,
        ends_a_part_that_does_not_listen,
        a_ground_shows_nothing_of_itself_to_this_host,
        a_ground_leaves_nothing_behind_when_the_test_process_ends_well,
        a_ground_leaves_nothing_behind_when_the_test_process_is_killed,
        the_next_run_cleans_up_the_ground_of_a_killed_keeper,
        two_grounds_do_not_meet,
        a_part_on_a_ground_is_its_own_process,
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
    policy::{whoever_has_the_token_of_a_node_changes_two_keys_of_that_node_and_nothing_else},
    images::{
        every_image_is_made_once_and_found_again,
        programs_run_in_their_image_with_nothing_of_the_host,
        pause_ends_well_when_it_is_asked_to,
    },
    sentences::{
        every_way_of_creating_a_pod_gives_that_pod,
        a_dry_run_stores_nothing,
        a_foreign_webhook_is_called_at_its_address,
        a_foreign_webhook_is_called_behind_a_service_and_follows_its_endpoints,
        a_webhook_that_is_gone_shows_in_the_api_servers_counters,
    },
    durward::{
        a_server_with_a_bad_configuration_says_so_and_ends,
        an_installation_is_taken_back,
    },
    // The longest first, and those that wait for each other's turn among those that do not.
    replacement::{
        replacing_server_and_certificate_under_load_fails_no_pod_of_a_strict_registration,
        replacing_server_and_certificate_under_load_lets_no_pod_slip_by,
    },
    asking::{
        a_pod_by_kubectl_apply_gets_its_files_and_keeps_them_when_it_is_applied_again,
        a_pod_by_server_side_apply_gets_its_files_and_keeps_them_when_it_is_applied_again,
        a_pod_with_a_generated_name_gets_its_files,
        a_pod_of_a_deployment_gets_its_files,
        a_dry_run_tells_of_the_files_and_stores_nothing,
        a_pod_asks_by_annotation_by_label_or_by_the_older_annotation,
        a_namespace_asks_for_all_of_its_pods,
        a_pod_that_opts_out_is_left_alone_in_a_namespace_that_asks,
        a_pod_gets_the_files_and_the_containers_that_it_chooses,
        a_namespace_and_a_pod_made_in_one_breath_are_judged_rightly,
    },
    reload::{a_new_configuration_binds_under_load_and_a_bad_one_changes_nothing},
    counting::{
        a_pod_that_asks_is_reviewed_once_whichever_way_it_asks,
        a_pod_that_wants_nothing_is_not_reviewed,
        a_pod_that_was_reviewed_may_change_and_go_without_another_review,
        kube_system_and_the_installation_are_left_alone,
    },
    outage::{
        pods_are_admitted_untouched_while_nobody_answers,
        a_strict_registration_refuses_pods_that_want_files_and_no_others_while_nobody_answers,
        without_permission_pods_are_admitted_and_the_warning_names_what_is_missing,
        without_the_watch_each_namespace_is_asked_for_when_a_pod_comes,
    },
    options::{
        init_containers_and_sidecars_get_files_where_it_is_configured_or_the_pod_names_them,
        in_audit_mode_a_pod_is_left_as_it_is_and_the_warning_says_what_it_would_get,
        a_registration_asks_only_where_its_selector_and_its_ways_of_opting_in_say,
    },
    skips::{
        a_pod_that_cannot_have_files_is_admitted_without_them_and_says_why,
        a_mount_of_the_pods_own_stays_and_the_pod_is_admitted,
        a_pod_that_is_copied_from_an_injected_one_gets_nothing_twice,
        a_status_in_a_template_does_not_keep_the_files_away,
        kubectl_and_the_warning_header_tell_the_same_warnings,
    },
    whole::{a_pod_is_its_uninjected_twin_and_our_additions},
    company::{a_container_that_another_webhook_adds_after_us_gets_its_files_too},
    ephemeral::{
        an_ephemeral_container_gets_the_files_that_the_pod_has,
        an_ephemeral_container_of_a_pod_without_files_is_admitted_and_says_why,
        an_ephemeral_container_of_a_pod_that_is_left_alone_gets_nothing_even_where_the_volumes_are,
    },
    versions::{reviews_of_version_v1beta1_are_answered},
    pod_security::{
        pods_that_pod_security_would_refuse_with_files_are_admitted_without_them,
        where_volumes_are_refused_pods_ask_for_a_device_and_elsewhere_for_nodes_that_are_ready,
    },
];

/// Those that stand in the fleet beside each other.
const FLEET: &[(&str, Case)] = cases![
    fleet::{
        two_members_are_pushed_to_and_one_pulls_and_all_are_ready,
        a_namespace_reaches_every_member_and_is_marked_as_karmadas,
        a_deleted_namespace_goes_from_every_member,
        a_user_without_groups_sees_into_every_member_by_two_bindings,
    },
];

const DELETION: &[(&str, Case)] = cases![@ "deletion::";
    namespaces::{
        a_running_pod_in_a_push_member_keeps_the_namespace_until_it_is_gone,
        a_running_pod_in_the_pull_member_keeps_the_namespace_until_it_is_gone,
        a_claim_alone_keeps_the_namespace,
        a_load_balancer_keeps_the_namespace_and_another_service_does_not,
        workloads_without_any_pod_keep_the_namespace,
        a_template_that_is_not_placed_keeps_the_namespace,
        finished_pods_keep_no_namespace,
        a_namespace_in_use_everywhere_is_told_of_everywhere,
        a_dry_run_shows_what_is_where_and_changes_nothing,
        a_namespace_that_terminates_may_be_deleted_again,
        the_garbage_collector_and_the_namespace_controller_are_refused_like_people,
    },
    definitions::{
        objects_in_a_member_keep_a_propagated_definition_until_they_are_gone,
        objects_on_the_control_plane_keep_a_definition,
        a_member_that_serves_another_version_is_read_at_that,
        a_definition_of_another_group_is_not_judged_and_the_line_to_add_is_told,
        of_a_collection_the_one_in_use_survives,
        a_definition_that_terminates_may_be_deleted_again,
    },
    glass::{
        an_administrator_is_refused_without_the_annotation_and_passes_with_it,
        somebody_without_the_verb_needs_a_name_a_reason_and_an_end,
    },
    all::{karmadas_own_parts_are_kept_from_everybody},
    commands::{impact_tells_what_the_guard_would},
    permissions::{durward_reads_no_secret_and_changes_nothing},
    kept::{
        preserving_what_was_propagated_saves_no_namespace,
        without_being_told_to_ignore_it_what_would_stay_is_refused,
        a_namespace_that_karmada_did_not_bring_stays_with_what_is_in_it,
        in_a_namespace_that_karmada_brought_everything_counts,
        what_a_propagated_deployment_owns_goes_even_where_the_namespace_stays,
        objects_of_a_definition_that_karmada_did_not_bring_stay,
        objects_of_a_definition_that_karmada_brought_go_whoever_made_them,
        a_preserved_definition_stays_with_what_karmada_did_not_bring,
    },
    configured::{
        in_audit_mode_everything_passes_and_is_told,
        names_are_not_told_where_callers_may_not_read_members,
        without_a_fleet_only_what_is_labelled_is_guarded,
        of_a_karmada_only_what_is_labelled_is_asked_about_and_its_own_parts,
    },
    replicas::{two_replicas_are_replaced_under_load_and_every_deletion_is_judged},
];

/// Those that want the fleet alone, one after another.
const FLEET_ALONE: &[(&str, Case)] = cases![
    fleet::{
        a_frozen_member_holds_its_callers_and_a_stopped_one_refuses_them,
        members_leave_and_come_and_are_published_elsewhere,
    },
];

const DELETION_ALONE: &[(&str, Case)] = cases![@ "deletion::";
    members::{
        a_stopped_member_is_named_and_refuses_in_time,
        a_frozen_member_costs_its_own_deadline_and_is_named,
        a_pull_member_that_is_frozen_is_not_left_out,
        a_slow_member_is_waited_for_and_a_slower_one_is_named,
        a_member_whose_packets_are_dropped_is_named,
        a_cluster_without_an_endpoint_counts_the_moment_it_is_there,
        a_cluster_that_joins_while_every_connection_is_silent_counts,
        a_cluster_that_has_just_joined_counts,
        without_the_aggregated_api_nobody_knows_whom_to_ask,
    },
    glass::{an_administrator_passes_with_the_annotation_while_durward_is_down},
    definitions::{a_conversion_webhook_that_is_down_makes_a_definition_unknown},
    all::{
        all_namespaces_at_once_are_judged_one_by_one,
        all_definitions_at_once_are_judged_one_by_one,
    },
    permissions::{
        a_permission_that_members_do_not_give_is_named,
        without_the_permission_for_the_proxy_or_the_clusters_that_is_named,
    },
    faults::{
        no_odd_answer_is_taken_for_an_empty_namespace,
        no_odd_answer_is_taken_for_an_absent_definition,
    },
    commands::{
        a_snapshot_gives_the_same_verdict_elsewhere,
        doctor_says_what_is_wrong_with_the_fleet_and_what_mends_it,
    },
    acknowledged::{
        an_acknowledged_member_does_not_hold_a_deletion_up_and_gets_it_when_it_returns,
        clusters_may_be_acknowledged_by_label_in_the_configuration_and_only_while_they_are_silent,
    },
];

/// On the one-node cluster, beside each other.
const NODE: &[(&str, Case)] = cases![@ "node::";
    local_cluster::{
        a_cluster_stands_until_it_is_ended_and_meets_no_other,
        a_whole_node_leaves_nothing_behind_when_its_holder_is_killed,
        the_next_run_cleans_up_a_whole_node_behind_a_killed_keeper,
    },
    basics::{
        a_pod_runs_and_says_what_it_was_asked,
        a_pod_that_ends_is_done_and_one_that_fails_says_why,
        pods_find_the_api_server_and_each_other_by_name,
        what_stands_on_the_node_is_out_of_sight_of_this_host,
    },
];

/// Each of these has the node to itself.
const NODE_ALONE: &[(&str, Case)] = cases![@ "node::";
    lxcfs::{
        lxcfs_ends_dies_and_serves_again,
    },
    kubelet::{
        a_node_without_its_kubelet_is_not_ready_and_its_pods_run_on,
    },
];

/// Beside each other on the node, with a Durward that is asked about its pods.
const SEEN: &[(&str, Case)] = cases![@ "seen::";
    asked::{
        whichever_way_a_pod_asks_its_memory_age_and_processors_are_its_own,
        a_pod_that_opts_out_sees_the_node,
        what_asks_the_kernel_itself_is_told_of_the_node,
        a_pod_sees_only_the_files_and_only_in_the_containers_that_it_chose,
        a_file_that_the_pod_mounts_itself_is_the_one_that_it_sees,
    },
    containers::{
        two_containers_each_see_their_own_limits,
        init_containers_and_native_sidecars_see_their_own_limits_where_the_pod_names_them,
        an_ephemeral_container_sees_the_container_that_it_looks_into_and_else_the_whole_pod,
        of_shared_processes_lxcfs_would_show_what_is_not_the_containers,
        busyboxs_cat_may_cut_a_file_to_its_length_in_another_container_and_others_do_not,
    },
    workloads::{
        pods_of_a_deployment_and_of_a_stateful_set_see_their_limits,
        pods_of_a_job_and_of_a_cron_job_see_their_limits,
    },
    left::{
        a_pod_of_a_restricted_namespace_runs_without_the_files_and_says_why,
        pods_that_share_processes_run_without_the_files_and_say_why,
    },
    // On an API server of its own.
    fields::{pods_of_every_field_are_their_uninjected_twins_and_our_additions},
    // With configurations of their own, when the others have left.
    asked::{with_online_among_the_files_programs_count_the_processors_of_the_limit},
    containers::{init_containers_and_native_sidecars_see_their_own_limits_where_it_is_configured},
    away::{where_nodes_must_be_ready_a_pod_waits_for_the_label_and_its_event_says_so},
];

/// Each of these has the node to itself.
const SEEN_ALONE: &[(&str, Case)] = cases![@ "seen::";
    away::{
        where_lxcfs_ends_running_containers_are_blind_until_they_restart_and_new_pods_wait,
        a_container_that_restarts_while_lxcfs_is_away_leaves_directories_and_starts_once_it_is_back,
        where_lxcfs_is_killed_its_dead_mount_keeps_containers_from_starting_until_it_is_back,
    },
];

/// The etcd guard, on etcd clusters of each case's own.
const ETCD: &[(&str, Case)] = cases![@ "etcd::";
    teardown::{
        teardown_and_repair_go_without_a_member_being_asked,
        a_mirror_of_a_static_pod_goes_with_a_warning,
        of_a_collection_only_as_many_go_as_may,
        controllers_under_their_own_names_roll_and_tear_down,
        controllers_under_one_name_roll_and_tear_down,
    },
    reservations::{
        of_two_who_go_at_once_through_two_replicas_exactly_one_does,
        of_two_who_are_evicted_and_deleted_at_once_exactly_one_goes,
        what_a_killed_replica_has_noted_holds_for_half_a_minute,
        an_eviction_that_a_budget_refuses_holds_others_up_until_its_pod_goes,
        who_cannot_note_lets_no_healthy_member_go,
    },
    quorum::{
        of_three_healthy_members_of_3_4_each_may_go,
        of_three_healthy_members_of_3_5_each_may_go,
        of_three_healthy_members_of_3_6_each_may_go,
        with_one_of_three_down_no_healthy_one_goes_and_that_one_does,
        of_five_two_may_be_away_and_not_three,
        where_the_quorum_is_lost_what_is_left_stays_and_what_is_down_goes,
        one_and_two_members_go_with_a_warning_that_it_is_an_outage,
        a_learner_goes_and_while_there_is_one_that_is_told,
        a_member_that_was_announced_and_never_started_counts_as_a_voter,
        a_full_database_is_told_and_a_corrupt_member_counts_for_nothing,
        where_nobody_knows_whose_data_is_corrupt_nobody_goes,
        a_member_that_hangs_costs_its_own_time_and_counts_for_nothing,
        where_pods_take_their_member_along_a_quorum_is_one_of_the_others,
        data_that_goes_with_the_pod_is_told,
        ensembles_of_one_namespace_do_not_count_for_each_other,
    },
    leader::{
        a_leader_that_is_refused_is_refused_to_people_and_hands_over_for_controllers,
        a_leader_that_may_go_goes_with_a_warning_and_keeps_leading,
        a_leader_that_is_killed_at_once_hands_over_first,
        a_dry_run_has_the_same_verdict_and_moves_and_notes_nothing,
        leadership_goes_to_nobody_who_goes_soon,
        without_its_gateway_followers_go_and_leaders_only_for_controllers,
    },
    trust::{
        members_are_verified_by_their_address_or_by_a_name,
        certificates_of_another_authority_or_for_another_name_vouch_for_nobody,
        where_members_ask_for_logins_durward_logs_in,
        members_that_ask_for_a_login_and_get_none_are_reached_all_the_same,
        a_rogue_pod_learns_nothing_and_vouches_for_nobody,
        what_is_no_etcd_is_named_and_counts_for_nothing,
    },
    stances::{
        who_asks_decides_what_becomes_of_what_nobody_can_see,
        what_is_told_by_default_may_be_denied,
        in_audit_mode_everything_passes_and_is_told,
        one_level_up_people_are_refused_and_controllers_warned,
        the_glass_is_broken_by_verb_even_while_durward_is_down_and_else_by_reason_and_end,
        who_is_exempt_is_not_held_up,
    },
    beforehand::{doctor_and_a_snapshot_tell_what_would_become_of_each_pod},
    down::{
        while_durward_is_down_kubelets_finish_and_drains_elsewhere_go_on,
    },
    drain::{
        a_drain_waits_for_the_others_and_then_completes,
        a_drain_that_is_only_tried_moves_nothing,
    },
    ensembles::{
        every_line_forms_an_ensemble_and_hands_its_leadership_on,
        without_a_quorum_nobody_leads_until_there_is_one_again,
        a_frozen_member_is_silent_and_catches_up,
        learners_alarms_and_members_that_never_start_are_told,
        an_ensemble_serves_tls_and_asks_for_logins,
    },
];

/// On a node of this room's own, one after another: with [`SOAK`], because what they measure are gaps between writes,
/// which others at work would widen.
const ETCD_NODE: &[(&str, Case)] = cases![@ "etcd_node::";
    rolling::{
        a_rolling_update_loses_no_write_and_no_leader_where_leaders_hand_over_and_else_it_does,
        a_leader_that_is_drained_hands_over_and_its_kubelet_ends_it,
    },
    document::{the_documents_own_manifest_keeps_its_leader_and_lets_a_follower_go},
];

/// Each of these has a node to itself on which what Durward ships is all there is.
const SHIPPED: &[(&str, Case)] = cases![@ "shipped::";
    library::{
        another_library_is_loaded_under_pods_that_read_256_all_the_time,
        a_library_that_would_end_lxcfs_is_not_loaded_and_is_told,
    },
    process::{
        whoever_deletes_its_pod_leaves_containers_with_dead_files_until_they_are_started_anew,
        on_a_drained_node_it_is_replaced_by_the_lines_of_its_page,
        killed_it_is_started_again_and_what_it_left_is_cleaned_away,
        one_that_is_installed_on_the_node_serves_and_the_shipped_one_keeps_off,
    },
    label::{
        label_and_annotation_follow_lxcfs_and_outlast_their_keeper,
        a_configuration_that_changes_is_followed_without_a_restart,
        where_readiness_is_required_pods_wait_until_lxcfs_serves,
        where_readiness_is_preferred_pods_come_and_wait_on_the_node,
        without_its_permission_the_node_is_not_told_and_the_log_says_what_is_missing,
        whoever_has_its_token_changes_one_label_and_one_annotation_of_one_node,
    },
    device::{
        a_pod_of_a_restricted_namespace_shows_256_and_has_no_volume_of_the_nodes,
        where_the_device_is_the_only_way_every_pod_gets_it,
        while_lxcfs_is_away_nothing_is_offered_and_pods_wait,
        a_kubelet_that_starts_again_is_told_again,
        while_the_plugin_is_away_pods_go_on_and_their_containers_start_anew,
    },
    doctor::{
        of_a_node_that_is_well_it_says_what_pods_see,
        where_nothing_was_ever_shipped_it_says_that_nothing_tells_of_lxcfs,
        without_lxcfs_it_says_how_to_start_it,
        of_an_lxcfs_that_hangs_and_of_one_that_died_it_says_so,
        what_is_shipped_is_removed_as_its_page_says_and_leaves_nothing_on_the_node,
    },
    in_pods::{
        by_the_lines_of_its_page_two_replicas_stand_in_a_restricted_namespace_and_are_asked,
        replicas_deleted_evicted_and_rolled_over_under_load_fail_no_pod_of_a_strict_registration,
    },
];

/// Those that take a minute or more each: `make soak`, or `-- --ignored`.
const SOAK: &[(&str, Case)] = cases![@ "deletion::";
    soak::{
        a_token_that_was_revoked_is_told_with_its_secret,
    },
];

fn main() -> ExitCode {
    if let Some(part) = supervisor::victim() {
        return part;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert(AT_ONCE);
    let context: &'static TestContext = match TestContext::new(env!("CARGO_BIN_EXE_e2e-supervisor")) {
        // The run is as long as the process.
        Ok(context) => Box::leak(Box::new(context)),
        Err(error) => {
            print(format_args!("{error:#}"));
            return ExitCode::FAILURE;
        }
    };
    let trials = in_order().map(|&(name, case)| trial(context, name, case));
    let soak =
        SOAK.iter().chain(ETCD_NODE).map(|&(name, case)| trial(context, name, case).with_ignored_flag(true));
    let conclusion = libtest_mimic::run(&arguments, trials.chain(soak).collect());
    let passed = !conclusion.has_failed();
    match context.finish(passed) {
        Ok(()) => conclusion.exit_code(),
        Err(error) => {
            print(format_args!("the run did not end well: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// In turns one for the fleet, one for the node, one of what is shipped, one of the others: those who wait for
/// their turn in the fleet or on a node stand beside those who work meanwhile, and the fleet, whose cases take
/// longest altogether, is at work from the beginning.
fn in_order() -> impl Iterator<Item = &'static (&'static str, Case)> {
    let rooms: [&[&[_]]; 4] = [
        &[FLEET, DELETION, FLEET_ALONE, DELETION_ALONE],
        &[NODE, SEEN, NODE_ALONE, SEEN_ALONE],
        &[SHIPPED],
        &[CASES, ETCD],
    ];
    let mut queues = rooms.map(|rooms| rooms.iter().copied().flatten());
    let longest = rooms.iter().map(|rooms| rooms.iter().map(|cases| cases.len()).sum()).max().unwrap_or(0);
    (0..longest).flat_map(move |_| queues.each_mut().map(Iterator::next)).flatten()
}

/// A case as the test runner wants it: whatever way it fails, the report says where the logs of its parts
/// are.
fn trial(context: &'static TestContext, name: &'static str, case: Case) -> Trial {
    Trial::test(name, move || {
        let Err(what) = in_time(context, name, case) else { return Ok(()) };
        let logs = context
            .logs()
            .map_or_else(|| "none, nothing was started".to_owned(), |logs| logs.display().to_string());
        Err(Failed::from(format!("{what}\n\nlogs of every part: {logs}")))
    })
}

/// Runs a case on a thread of its own, so that one that hangs fails by its name and the run ends: whoever waits
/// for something that it holds, or comes later, fails with it.
fn in_time(context: &'static TestContext, name: &str, case: Case) -> Result<(), String> {
    static HANGS: OnceLock<String> = OnceLock::new();
    let (done, ended) = mpsc::channel();
    let begun = Instant::now();
    let mut told = PATIENCE;
    if HANGS.get().is_none() {
        thread::spawn(move || drop(done.send(catch_unwind(AssertUnwindSafe(|| case(context))))));
    }
    loop {
        if let Some(other) = HANGS.get() {
            return Err(format!("given up, because {other} hangs"));
        }
        match ended.recv_timeout(Duration::from_secs(1)) {
            Ok(Ok(result)) => return result.map_err(|error| format!("{error:#}")),
            Ok(Err(panic)) => return Err(format!("panicked: {}", words_of(panic.as_ref()))),
            Err(_) if begun.elapsed() >= LIMIT => {
                let first = HANGS.get_or_init(|| name.to_owned());
                return Err(format!(
                    "did not end within {} minutes (the first: {first})",
                    LIMIT.as_secs() / 60
                ));
            }
            Err(_) if begun.elapsed() >= told => {
                print(format_args!(
                    "{name} works, or waits for its turn, since {} minutes",
                    told.as_secs() / 60
                ));
                told += PATIENCE;
            }
            Err(_) => {}
        }
    }
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("with something that is no text")
}
