use std::collections::BTreeSet;

use super::*;
use crate::cel::cost::Cost;
use crate::release::{NEWEST, OLDEST};

/// Overloads that cost 1, and those that the planner replaces.
const COST_ONE: &str = "
    @mapInsert_map_key_value @mapInsert_map_map add_double add_duration_duration add_duration_timestamp add_int64
    add_list add_timestamp_duration add_uint64 authorizer_group authorizer_path authorizer_serviceaccount bool_to_bool
    bool_to_string bytes_size bytes_to_bytes cidr_ip cidr_masked cidr_prefix_length cidr_to_string conditional
    decision_allowed decision_error decision_errored decision_reason divide_double divide_int64 divide_uint64
    double_to_double double_to_int64 double_to_string double_to_uint64 duration_to_duration duration_to_hours
    duration_to_int64 duration_to_milliseconds duration_to_minutes duration_to_seconds duration_to_string format-named
    format.constant greater_bool greater_double greater_double_int64 greater_double_uint64 greater_duration
    greater_equals_bool greater_equals_double greater_equals_double_int64 greater_equals_double_uint64
    greater_equals_duration greater_equals_int64 greater_equals_int64_double greater_equals_int64_uint64
    greater_equals_timestamp greater_equals_uint64 greater_equals_uint64_double greater_equals_uint64_int64
    greater_int64 greater_int64_double greater_int64_uint64 greater_timestamp greater_uint64 greater_uint64_double
    greater_uint64_int64 groupcheck_resource in_map index_list index_map int64_to_double int64_to_duration
    int64_to_int64 int64_to_string int64_to_timestamp int64_to_uint64 ip_family ip_is_global_unicast
    ip_is_link_local_multicast ip_is_link_local_unicast ip_is_loopback ip_is_unspecified ip_to_string is_url_string
    less_bool less_double less_double_int64 less_double_uint64 less_duration less_equals_bool less_equals_double
    less_equals_double_int64 less_equals_double_uint64 less_equals_duration less_equals_int64 less_equals_int64_double
    less_equals_int64_uint64 less_equals_timestamp less_equals_uint64 less_equals_uint64_double less_equals_uint64_int64
    less_int64 less_int64_double less_int64_uint64 less_timestamp less_uint64 less_uint64_double less_uint64_int64
    list_first list_last list_optindex_optional_int list_size logical_and logical_not logical_or
    map_optindex_optional_value map_size modulo_int64 modulo_uint64 multiply_double multiply_int64 multiply_uint64
    negate_double negate_int64 not_strictly_false optional_hasValue optional_list_index_int
    optional_list_optindex_optional_int optional_map_index_value optional_map_optindex_optional_value optional_none
    optional_of optional_ofNonZeroValue optional_orValue_value optional_or_optional optional_unwrap optional_unwrapOpt
    optional_value quantity_add quantity_add_int quantity_compare_to quantity_get_float quantity_get_int
    quantity_is_greater_than quantity_is_integer quantity_is_less_than quantity_sign quantity_sub quantity_sub_int
    resourcecheck_name resourcecheck_namespace resourcecheck_subresource select_optional_field semver_compare_to
    semver_is_greater_than semver_is_less_than semver_major semver_minor semver_patch size_bytes size_list size_map
    size_string string_char_at_int string_size string_to_bool string_to_double string_to_duration string_to_int64
    string_to_string string_to_timestamp string_to_uint64 subtract_double subtract_duration_duration subtract_int64
    subtract_timestamp_duration subtract_timestamp_timestamp subtract_uint64 timestamp_to_day_of_month
    timestamp_to_day_of_month_1_based timestamp_to_day_of_month_1_based_with_tz timestamp_to_day_of_month_with_tz
    timestamp_to_day_of_week timestamp_to_day_of_week_with_tz timestamp_to_day_of_year timestamp_to_day_of_year_with_tz
    timestamp_to_hours timestamp_to_hours_with_tz timestamp_to_int64 timestamp_to_milliseconds
    timestamp_to_milliseconds_with_tz timestamp_to_minutes timestamp_to_minutes_with_tz timestamp_to_month
    timestamp_to_month_with_tz timestamp_to_seconds timestamp_to_seconds_tz timestamp_to_string timestamp_to_timestamp
    timestamp_to_year timestamp_to_year_with_tz to_dyn type uint64_to_double uint64_to_int64 uint64_to_string
    uint64_to_uint64 url_get_escaped_path url_get_host url_get_hostname url_get_port url_get_query url_get_scheme
";

/// Each function and overload of each release, by name.
fn all() -> Vec<(Release, &'static str, &'static str)> {
    let mut all = Vec::new();
    for release in (OLDEST..=NEWEST).map(Release::for_stored) {
        for function in Library::new(release).functions.values() {
            all.extend(function.overloads.iter().map(|overload| (release, function.name, overload.id)));
        }
    }
    all
}

#[test]
fn each_overload_has_a_cost_or_costs_one_on_purpose() {
    let known: BTreeSet<&str> = COST_ONE.split_whitespace().collect();
    let mut wrong = BTreeSet::new();
    for (release, function, id) in all() {
        let expected = known.contains(id) || (id == "matches" && !release.global_matches_costs_by_pattern());
        if (Cost::new(function, id, release) == Cost::Fixed(1)) != expected {
            wrong.insert(id);
        }
    }
    assert!(wrong.is_empty(), "costs 1 and is not named above, or is named and costs more: {wrong:?}");
}

#[test]
fn each_name_in_the_costs_is_a_function_or_an_overload() {
    let names: BTreeSet<&str> = all().into_iter().flat_map(|(_, function, id)| [function, id]).collect();
    let quoted = include_str!("../cost.rs").split('"').skip(1).step_by(2).chain(COST_ONE.split_whitespace());
    // `list_` and `_sort` are parts of names.
    let whole = quoted.filter(|name| !name.starts_with('_') && !name.ends_with('_'));
    let unknown: Vec<&str> = whole.filter(|name| !names.contains(name)).collect();
    assert!(unknown.is_empty(), "no function or overload of any release: {unknown:?}");
}
