use super::*;

fn head() -> Entry {
    let supervisor = Identity { pid: 7, started: 8 };
    let folder = |name: &str| PathBuf::from("/nowhere").join(name);
    Entry::Supervisor(Head {
        run: "1-7".into(),
        supervisor,
        boot: boot(),
        work: folder("work"),
        logs: folder("logs"),
    })
}

/// A journal of these lines, as a supervisor writes them.
fn text(entries: &[Entry]) -> String {
    entries.iter().map(|entry| serde_json::to_string(entry).unwrap() + "\n").collect()
}

fn cgroup(name: &str) -> Lease {
    Lease::Cgroup(name.to_owned())
}

#[test]
fn what_was_lent_is_left_whether_or_not_its_keeper_lived_to_take_it() {
    let written = text(&[head(), Entry::Leased(cgroup("durward-1-7-0")), Entry::Leased(Lease::Link(9))]);
    let left = Leavings::parse(&written).unwrap();
    assert_eq!(
        left.leases,
        [cgroup("durward-1-7-0"), Lease::Link(9)],
        "in the order in which they were taken"
    );
}

#[test]
fn what_could_not_be_taken_is_not_left() {
    let written = text(&[
        head(),
        Entry::Leased(Lease::Link(9)),
        Entry::Returned(Lease::Link(9)),
        Entry::Leased(Lease::Link(10)),
    ]);
    assert_eq!(Leavings::parse(&written).unwrap().leases, [Lease::Link(10)]);
}

#[test]
fn a_torn_last_line_says_nothing_and_hides_nothing() {
    let written = text(&[head(), Entry::Leased(cgroup("durward-1-7-0")), Entry::Leased(Lease::Link(9))]);
    let torn = written.strip_suffix("}}\n").unwrap();
    assert_eq!(Leavings::parse(torn).unwrap().leases, [cgroup("durward-1-7-0")]);
}

#[test]
fn without_its_first_line_a_journal_says_nothing() {
    assert!(Leavings::parse(&text(&[Entry::Leased(Lease::Link(9))])).is_none());
}
