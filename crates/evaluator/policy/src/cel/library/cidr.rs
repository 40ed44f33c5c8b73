//! Networks in CIDR notation, with the texts of Go's `netip.ParsePrefix`.

use std::net::IpAddr;

use super::{Library, ip};
use crate::cel::outcome::{EvalContext, NoValue, no_such_overload};
use crate::value::format::quote;
use crate::value::{Cidr, Opaque, Value};

/// Declares the functions of networks.
pub(super) fn declare(library: &mut Library) {
    library.add("string_to_cidr", "cidr(string): CIDR", |context, args| match args {
        [Value::String(text)] => cidr_of(context, text).map(|cidr| store(context, cidr)),
        _ => Err(no_such_overload()),
    });
    library.add("cidr_contains_ip_string", "(CIDR).containsIP(string): bool", |_, args| match args {
        // The API server loses the error of an address that it can't parse.
        [Value::Opaque(Opaque::Cidr(cidr)), Value::String(text)] => match ip::parse(text) {
            Ok(address) => Ok(Value::Bool(contains(*cidr, address))),
            Err(_) => Err(no_such_overload()),
        },
        _ => Err(no_such_overload()),
    });
    library.add("cidr_contains_ip_ip", "(CIDR).containsIP(IP): bool", |_, args| match args {
        [Value::Opaque(Opaque::Cidr(cidr)), Value::Opaque(Opaque::Ip(address))] => {
            Ok(Value::Bool(contains(*cidr, *address)))
        }
        _ => Err(no_such_overload()),
    });
    library.add(
        "cidr_contains_cidr_string",
        "(CIDR).containsCIDR(string): bool",
        |context, args| match args {
            [Value::Opaque(Opaque::Cidr(cidr)), Value::String(text)] => {
                cidr_of(context, text).map(|other| Value::Bool(contains_cidr(*cidr, other)))
            }
            _ => Err(no_such_overload()),
        },
    );
    library.add("cidr_contains_cidr", "(CIDR).containsCIDR(CIDR): bool", |_, args| match args {
        [Value::Opaque(Opaque::Cidr(cidr)), Value::Opaque(Opaque::Cidr(other))] => {
            Ok(Value::Bool(contains_cidr(*cidr, *other)))
        }
        _ => Err(no_such_overload()),
    });
    library.add("cidr_ip", "(CIDR).ip(): IP", |context, args| {
        cidr(args).map(|cidr| Value::Opaque(context.arena.store(Opaque::Ip(cidr.address))))
    });
    library.add("cidr_prefix_length", "(CIDR).prefixLength(): int", |_, args| {
        cidr(args).map(|cidr| Value::Int(i64::from(cidr.bits)))
    });
    library.add("cidr_masked", "(CIDR).masked(): CIDR", |context, args| {
        cidr(args).map(|cidr| store(context, masked(cidr)))
    });
    library.add("is_cidr", "isCIDR(string): bool", |_, args| match args {
        [Value::String(text)] => Ok(Value::Bool(parse(text).is_ok())),
        _ => Err(no_such_overload()),
    });
    library.add("cidr_to_string", "string(CIDR): string", |context, args| {
        cidr(args).map(|cidr| context.text(&format!("{}/{}", cidr.address, cidr.bits)))
    });
}

fn store<'a>(context: &EvalContext<'a>, cidr: Cidr) -> Value<'a> {
    Value::Opaque(context.arena.store(Opaque::Cidr(cidr)))
}

fn cidr<'a>(args: &[Value<'a>]) -> Result<Cidr, NoValue<'a>> {
    match args {
        [Value::Opaque(Opaque::Cidr(cidr))] => Ok(*cidr),
        _ => Err(no_such_overload()),
    }
}

fn cidr_of<'a>(context: &EvalContext<'a>, text: &str) -> Result<Cidr, NoValue<'a>> {
    match parse(text) {
        Ok(cidr) => Ok(cidr),
        Err(message) => {
            context.error(&format!("network address parse error during conversion from string: {message}"))
        }
    }
}

/// The first `bits` bits of an address, as a number of the address' width.
fn prefix(address: IpAddr, bits: u8) -> u128 {
    let (value, width) = match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()), 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    value.checked_shr(width - u32::from(bits).min(width)).unwrap_or(0)
}

fn contains(cidr: Cidr, address: IpAddr) -> bool {
    cidr.address.is_ipv4() == address.is_ipv4()
        && prefix(cidr.address, cidr.bits) == prefix(address, cidr.bits)
}

fn contains_cidr(cidr: Cidr, other: Cidr) -> bool {
    cidr.bits <= other.bits && contains(cidr, other.address)
}

fn masked(cidr: Cidr) -> Cidr {
    let kept = prefix(cidr.address, cidr.bits);
    let address = match cidr.address {
        IpAddr::V4(_) => {
            let bits = kept.checked_shl(32 - u32::from(cidr.bits)).unwrap_or(0);
            IpAddr::V4(u32::try_from(bits).unwrap_or(0).into())
        }
        IpAddr::V6(_) => IpAddr::V6(kept.checked_shl(128 - u32::from(cidr.bits)).unwrap_or(0).into()),
    };
    Cidr { address, ..cidr }
}

fn parse(text: &str) -> Result<Cidr, String> {
    let quoted = quote(text);
    let error = |message: &str| {
        Err(format!(
            "network address parse error during conversion from string: netip.ParsePrefix({quoted}): {message}"
        ))
    };
    let Some((address, bits)) = text.rsplit_once('/') else { return error("no '/'") };
    let (address, zone) = match ip::parse_address(address) {
        Ok(parsed) => parsed,
        Err(message) => return error(&message),
    };
    if zone {
        return error("IPv6 zones cannot be present in a prefix");
    }
    let bad = || format!("bad bits after slash: {}", quote(bits));
    let leading = bits.len() > 1 && !bits.starts_with(|first: char| ('1'..='9').contains(&first));
    if leading || bits.is_empty() || !bits.bytes().all(|byte| byte.is_ascii_digit()) {
        return error(&bad());
    }
    let width = if address.is_ipv4() { 32 } else { 128 };
    match bits.parse::<u8>() {
        Ok(bits) if bits <= width => {
            if let IpAddr::V6(v6) = address
                && v6.to_ipv4_mapped().is_some()
            {
                return Err(format!("IPv4-mapped IPv6 address {quoted} is not allowed"));
            }
            Ok(Cidr { address, bits })
        }
        Ok(_) | Err(_) if bits.len() < 19 => error("prefix length out of range"),
        _ => error(&bad()),
    }
}
