//! Fields of timestamps and durations.

use super::Library;
use crate::cel::outcome::{EvalContext, EvalResult, no_such_overload};
use crate::value::format::quote;
use crate::value::{Timestamp, Value, number};

/// A field of a local time.
#[derive(Clone, Copy)]
enum TimeField {
    Year,
    Month,
    DayOfYear,
    DayOfMonth,
    Date,
    DayOfWeek,
    Hours,
    Minutes,
    Seconds,
    Milliseconds,
}

macro_rules! declare_field {
    ($library:expr, $method:literal, $id:literal, $zone_id:literal, $field:expr) => {
        $library.add($id, concat!("(timestamp).", $method, "(): int"), |context, args| {
            field(context, args, $field)
        });
        $library.add($zone_id, concat!("(timestamp).", $method, "(string): int"), |context, args| {
            field(context, args, $field)
        });
    };
}

macro_rules! declare_duration {
    ($library:expr, $method:literal, $id:literal, $nanos:literal) => {
        $library.add($id, concat!("(duration).", $method, "(): int"), |_, args| match args {
            [Value::Duration(nanos)] => Ok(Value::Int(nanos / $nanos)),
            _ => Err(no_such_overload()),
        });
    };
}

/// Declares the functions of time.
pub(super) fn declare(library: &mut Library) {
    declare_field!(library, "getFullYear", "timestamp_to_year", "timestamp_to_year_with_tz", TimeField::Year);
    declare_field!(library, "getMonth", "timestamp_to_month", "timestamp_to_month_with_tz", TimeField::Month);
    declare_field!(
        library,
        "getDayOfYear",
        "timestamp_to_day_of_year",
        "timestamp_to_day_of_year_with_tz",
        TimeField::DayOfYear
    );
    declare_field!(
        library,
        "getDayOfMonth",
        "timestamp_to_day_of_month",
        "timestamp_to_day_of_month_with_tz",
        TimeField::DayOfMonth
    );
    declare_field!(
        library,
        "getDate",
        "timestamp_to_day_of_month_1_based",
        "timestamp_to_day_of_month_1_based_with_tz",
        TimeField::Date
    );
    declare_field!(
        library,
        "getDayOfWeek",
        "timestamp_to_day_of_week",
        "timestamp_to_day_of_week_with_tz",
        TimeField::DayOfWeek
    );
    declare_field!(library, "getHours", "timestamp_to_hours", "timestamp_to_hours_with_tz", TimeField::Hours);
    declare_duration!(library, "getHours", "duration_to_hours", 3_600_000_000_000);
    declare_field!(
        library,
        "getMinutes",
        "timestamp_to_minutes",
        "timestamp_to_minutes_with_tz",
        TimeField::Minutes
    );
    declare_duration!(library, "getMinutes", "duration_to_minutes", 60_000_000_000);
    declare_field!(
        library,
        "getSeconds",
        "timestamp_to_seconds",
        "timestamp_to_seconds_tz",
        TimeField::Seconds
    );
    declare_duration!(library, "getSeconds", "duration_to_seconds", 1_000_000_000);
    declare_field!(
        library,
        "getMilliseconds",
        "timestamp_to_milliseconds",
        "timestamp_to_milliseconds_with_tz",
        TimeField::Milliseconds
    );
    declare_duration!(library, "getMilliseconds", "duration_to_milliseconds", 1_000_000);
}

fn field<'a>(context: &EvalContext<'a>, args: &[Value<'a>], field: TimeField) -> EvalResult<'a> {
    let (time, offset) = match args {
        [Value::Timestamp(time)] => (time, 0),
        [Value::Timestamp(time), Value::String(zone)] => match offset(*time, zone) {
            Ok(offset) => (time, offset),
            Err(message) => return context.error(&message),
        },
        _ => return Err(no_such_overload()),
    };
    let local = time.seconds + offset;
    let (days, second) = (local.div_euclid(86_400), local.rem_euclid(86_400));
    let (year, month, day) = number::civil(days);
    Ok(Value::Int(match field {
        TimeField::Year => year,
        TimeField::Month => month - 1,
        TimeField::DayOfYear => days - number::days(year, 1, 1),
        TimeField::DayOfMonth => day - 1,
        TimeField::Date => day,
        TimeField::DayOfWeek => (days + 4).rem_euclid(7),
        TimeField::Hours => second / 3_600,
        TimeField::Minutes => second / 60 % 60,
        TimeField::Seconds => second % 60,
        TimeField::Milliseconds => i64::from(time.nanos / 1_000_000),
    }))
}

/// Seconds east of UTC in a zone such as `Europe/Berlin` or `+02:00` at a time.
fn offset(time: Timestamp, zone: &str) -> Result<i64, String> {
    if let Some((hours, minutes)) = zone.split_once(':') {
        let parse = |text: &str| {
            text.parse::<i64>().map_err(|_| format!("strconv.Atoi: parsing {}: invalid syntax", quote(text)))
        };
        let (hours, minutes) = (parse(hours)?, parse(minutes)?);
        let total = if zone.starts_with('-') { hours * 60 - minutes } else { hours * 60 + minutes };
        return Ok(total * 60);
    }
    // API servers run in UTC.
    if matches!(zone, "" | "UTC" | "Local") {
        return Ok(0);
    }
    if zone.contains("..") || zone.starts_with(['/', '\\']) {
        return Err("time: invalid location name".to_owned());
    }
    let unknown = || format!("unknown time zone {zone}");
    let found = jiff::tz::TimeZone::get(zone).map_err(|_| unknown())?;
    // jiff ignores case, Go does not.
    if found.iana_name() != Some(zone) {
        return Err(unknown());
    }
    // The last hours of the year 9999 are out of jiff's range; they have the offset of the hours before.
    let instant = jiff::Timestamp::from_second(time.seconds).unwrap_or(jiff::Timestamp::MAX);
    Ok(i64::from(found.to_offset(instant).seconds()))
}
