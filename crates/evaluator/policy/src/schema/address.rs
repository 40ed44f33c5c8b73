//! IP addresses and MAC addresses in formats. IPv4 addresses can have leading zeros, as before Go 1.17.

use crate::cel::library::ip;
use crate::release::Release;

/// Largest number that the old parser of Go reads.
const MAX_NUMBER: u32 = 0xff_ffff;

pub(super) fn is_ipv4(text: &str) -> bool {
    text.contains('.') && is_sloppy(text)
}

pub(super) fn is_ipv6(text: &str) -> bool {
    text.contains(':') && matches!(ip::parse_address(text), Ok((_, false)))
}

/// Whether the strict parser of Go reads an address.
pub(super) fn is_address(text: &str) -> bool {
    matches!(ip::parse_address(text), Ok((_, false)))
}

pub(super) fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let (is_v4, is_v6) = (is_sloppy_v4(address), is_sloppy_v6(address));
    let Some((bits, "")) = number(bits, 10) else { return false };
    is_v4 && bits <= 32 || !is_v4 && is_v6 && bits <= 128
}

/// The first of `.` and `:` decides.
fn is_sloppy(text: &str) -> bool {
    match text.bytes().find(|byte| matches!(byte, b'.' | b':')) {
        Some(b'.') => is_sloppy_v4(text),
        Some(_) => is_sloppy_v6(text),
        None => false,
    }
}

/// Reads a number. Returns it with the rest of the text.
fn number(text: &str, radix: u32) -> Option<(u32, &str)> {
    let mut value = 0;
    let mut len = 0;
    for digit in text.chars().map_while(|character| character.to_digit(radix)) {
        value = value * radix + digit;
        if value >= MAX_NUMBER {
            return None;
        }
        len += 1;
    }
    (len > 0).then_some((value, text.get(len..)?))
}

fn is_sloppy_v4(text: &str) -> bool {
    let mut rest = text;
    for index in 0..4 {
        if index > 0 {
            let Some(next) = rest.strip_prefix('.') else { return false };
            rest = next;
        }
        match number(rest, 10) {
            Some((value, next)) if value <= 0xff => rest = next,
            _ => return false,
        }
    }
    rest.is_empty()
}

fn is_sloppy_v6(text: &str) -> bool {
    let mut rest = text;
    let mut has_gap = false;
    if let Some(next) = rest.strip_prefix("::") {
        has_gap = true;
        rest = next;
        if rest.is_empty() {
            return true;
        }
    }
    // Groups of 16 bits.
    let mut groups = 0;
    while groups < 8 {
        let Some((_, next)) = number(rest, 16).filter(|(value, _)| *value <= 0xffff) else { return false };
        if next.starts_with('.') {
            let fits = if has_gap { groups <= 6 } else { groups == 6 };
            if !fits || !is_sloppy_v4(rest) {
                return false;
            }
            groups += 2;
            rest = "";
            break;
        }
        groups += 1;
        rest = next;
        if rest.is_empty() {
            break;
        }
        let Some(next) = rest.strip_prefix(':').filter(|next| !next.is_empty()) else { return false };
        rest = next;
        if let Some(next) = rest.strip_prefix(':') {
            if has_gap {
                return false;
            }
            has_gap = true;
            rest = next;
            if rest.is_empty() {
                break;
            }
        }
    }
    rest.is_empty() && (groups == 8) != has_gap
}

pub(super) fn is_mac(text: &str, release: Release) -> bool {
    let bytes = text.as_bytes();
    let is_length = |digits: usize| matches!(digits, 12 | 16 | 40);
    if bytes.iter().all(u8::is_ascii_hexdigit) {
        return release.accepts_mac_without_separators() && is_length(bytes.len());
    }
    let (separator, width) = match (bytes.get(2), bytes.get(4)) {
        (Some(separator @ (b':' | b'-')), _) => (*separator, 2),
        (_, Some(b'.')) => (b'.', 4),
        _ => return false,
    };
    let is_group = |group: &[u8]| group.len() == width && group.iter().all(u8::is_ascii_hexdigit);
    let groups: Vec<&[u8]> = bytes.split(|byte| *byte == separator).collect();
    is_length(groups.len() * width) && groups.into_iter().all(is_group)
}
