//! IP addresses, with the texts of Go's `netip.ParseAddr`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Library;
use crate::cel::outcome::{EvalResult, no_such_overload};
use crate::value::format::quote;
use crate::value::{Opaque, Value};

/// Declares the functions of IP addresses.
pub(super) fn declare(library: &mut Library) {
    library.add("string_to_ip", "ip(string): IP", |context, args| match args {
        [Value::String(text)] => match parse(text) {
            Ok(address) => Ok(Value::Opaque(context.arena.store(Opaque::Ip(address)))),
            Err(message) => context.error(&message),
        },
        _ => Err(no_such_overload()),
    });
    library.add("ip_family", "(IP).family(): int", |_, args| {
        address(args).map(|address| Value::Int(if address.is_ipv4() { 4 } else { 6 }))
    });
    library.add("ip_is_canonical", "ip.isCanonical(string): bool", |context, args| match args {
        [Value::String(text)] => match parse(text) {
            Ok(address) => Ok(Value::Bool(address.to_string() == *text)),
            Err(message) => context.error(&message),
        },
        _ => Err(no_such_overload()),
    });
    library.add("ip_is_unspecified", "(IP).isUnspecified(): bool", |_, args| {
        test(args, std::net::IpAddr::is_unspecified)
    });
    library.add("ip_is_loopback", "(IP).isLoopback(): bool", |_, args| {
        test(args, std::net::IpAddr::is_loopback)
    });
    library.add("ip_is_link_local_multicast", "(IP).isLinkLocalMulticast(): bool", |_, args| {
        test(args, is_link_local_multicast)
    });
    library.add("ip_is_link_local_unicast", "(IP).isLinkLocalUnicast(): bool", |_, args| {
        test(args, is_link_local_unicast)
    });
    library.add("ip_is_global_unicast", "(IP).isGlobalUnicast(): bool", |_, args| {
        test(args, |ip| {
            let broadcast = matches!(ip, IpAddr::V4(v4) if v4.is_broadcast());
            !(broadcast
                || ip.is_unspecified()
                || ip.is_loopback()
                || ip.is_multicast()
                || is_link_local_unicast(ip))
        })
    });
    library.add("is_ip", "isIP(string): bool", |_, args| match args {
        [Value::String(text)] => Ok(Value::Bool(parse(text).is_ok())),
        _ => Err(no_such_overload()),
    });
    library.add("ip_to_string", "string(IP): string", |context, args| {
        address(args).map(|address| context.text(&address.to_string()))
    });
}

fn address<'a>(args: &[Value<'a>]) -> Result<IpAddr, crate::cel::outcome::NoValue<'a>> {
    match args {
        [Value::Opaque(Opaque::Ip(address))] => Ok(*address),
        _ => Err(no_such_overload()),
    }
}

fn test<'a>(args: &[Value<'a>], test: fn(&IpAddr) -> bool) -> EvalResult<'a> {
    address(args).map(|address| Value::Bool(test(&address)))
}

fn is_link_local_multicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(v6) => v6.segments().first().is_some_and(|first| first & 0xff0f == 0xff02),
    }
}

fn is_link_local_unicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

/// Parses an address; mapped IPv4 addresses and zones are refused.
pub(crate) fn parse(text: &str) -> Result<IpAddr, String> {
    let address = parse_address(text).map_err(|message| {
        format!("IP Address {} parse error during conversion from string: {message}", quote(text))
    })?;
    match address {
        (_, true) => Err(format!("IP address {} with zone value is not allowed", quote(text))),
        (IpAddr::V6(v6), false) if v6.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)))
        }
        (address, false) => Ok(address),
    }
}

/// `netip.ParseAddr`: the address and whether it has a zone.
pub(crate) fn parse_address(text: &str) -> Result<(IpAddr, bool), String> {
    let quoted = quote(text);
    let error = |message: &str, at: &str| {
        let at = if at.is_empty() { String::new() } else { format!(" (at {})", quote(at)) };
        format!("ParseAddr({quoted}): {message}{at}")
    };
    for character in text.chars() {
        match character {
            '.' => {
                return parse_v4(text)
                    .map(|v4| (IpAddr::V4(v4), false))
                    .map_err(|(message, at)| error(message, at));
            }
            ':' => {
                return parse_v6(text)
                    .map(|(v6, zone)| (IpAddr::V6(v6), zone))
                    .map_err(|(message, at)| error(message, at));
            }
            '%' => return Err(error("missing IPv6 address", "")),
            _ => {}
        }
    }
    Err(error("unable to parse IP", ""))
}

type IpResult<'t, T> = Result<T, (&'static str, &'t str)>;

fn parse_v4(text: &str) -> IpResult<'_, Ipv4Addr> {
    let mut octets = [0u8; 4];
    let (mut position, mut value, mut digits) = (0usize, 0u32, 0usize);
    let bytes = text.as_bytes();
    for (index, byte) in bytes.iter().enumerate() {
        let from = text.get(index..).unwrap_or_default();
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return Err(("IPv4 field has octet with leading zero", ""));
                }
                value = value * 10 + u32::from(byte - b'0');
                digits += 1;
                if value > 255 {
                    return Err(("IPv4 field has value >255", ""));
                }
            }
            b'.' => {
                if index == 0 || index + 1 == bytes.len() || bytes.get(index - 1) == Some(&b'.') {
                    return Err(("IPv4 field must have at least one digit", from));
                }
                if position == 3 {
                    return Err(("IPv4 address too long", ""));
                }
                if let Some(octet) = octets.get_mut(position) {
                    *octet = u8::try_from(value).unwrap_or(0);
                }
                position += 1;
                value = 0;
                digits = 0;
            }
            _ => return Err(("unexpected character", from)),
        }
    }
    if position < 3 {
        return Err(("IPv4 address too short", ""));
    }
    octets[3] = u8::try_from(value).unwrap_or(0);
    Ok(Ipv4Addr::from(octets))
}

fn parse_v6(text: &str) -> IpResult<'_, (Ipv6Addr, bool)> {
    let (body, zone) = match text.split_once('%') {
        Some((_, "")) => return Err(("zone must be a non-empty string", "")),
        Some((body, _)) => (body, true),
        None => (text, false),
    };
    let mut rest = body;
    let mut bytes = [0u8; 16];
    let (mut filled, mut ellipsis) = (0usize, None);
    if let Some(after) = rest.strip_prefix("::") {
        ellipsis = Some(0);
        rest = after;
        if rest.is_empty() {
            return Ok((Ipv6Addr::UNSPECIFIED, zone));
        }
    }
    while filled < 16 {
        let mut value: u32 = 0;
        let mut digits = 0;
        for byte in rest.bytes() {
            let Some(digit) = char::from(byte).to_digit(16) else { break };
            if digits > 3 {
                return Err(("each group must have 4 or less digits", rest));
            }
            value = value << 4 | digit;
            digits += 1;
        }
        if digits == 0 {
            return Err(("each colon-separated field must have at least one digit", rest));
        }
        if rest.as_bytes().get(digits) == Some(&b'.') {
            if ellipsis.is_none() && filled != 12 {
                return Err(("embedded IPv4 address must replace the final 2 fields of the address", rest));
            }
            if filled + 4 > 16 {
                return Err(("too many hex fields to fit an embedded IPv4 at the end of the address", rest));
            }
            let v4 = parse_v4(rest)?;
            for (slot, octet) in bytes.iter_mut().skip(filled).zip(v4.octets()) {
                *slot = octet;
            }
            rest = "";
            filled += 4;
            break;
        }
        for (slot, octet) in bytes.iter_mut().skip(filled).zip(value.to_be_bytes().iter().skip(2)) {
            *slot = *octet;
        }
        filled += 2;
        rest = rest.get(digits..).unwrap_or_default();
        if rest.is_empty() {
            break;
        }
        let Some(after) = rest.strip_prefix(':') else {
            return Err(("unexpected character, want colon", rest));
        };
        if after.is_empty() {
            return Err(("colon must be followed by more characters", rest));
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            if ellipsis.is_some() {
                return Err(("multiple :: in address", rest));
            }
            ellipsis = Some(filled);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Err(("trailing garbage after address", rest));
    }
    match (filled < 16, ellipsis) {
        (true, None) => return Err(("address string too short", "")),
        (true, Some(at)) => {
            let moved = filled - at;
            let mut expanded = [0u8; 16];
            for (slot, byte) in expanded.iter_mut().zip(bytes.iter().take(at)) {
                *slot = *byte;
            }
            for (slot, byte) in expanded.iter_mut().skip(16 - moved).zip(bytes.iter().skip(at)) {
                *slot = *byte;
            }
            bytes = expanded;
        }
        (false, Some(_)) => return Err(("the :: must expand to at least one field of zeros", "")),
        (false, None) => {}
    }
    Ok((Ipv6Addr::from(bytes), zone))
}
