//! The resource's side of fencing, for data that lives on a Redis server.

/// A script that lets a token pass which is at least the highest seen, and remembers it. Call it in the transaction or the
/// script that writes, or write its few lines at the beginning of yours.
///
/// `KEYS[1]` is where the highest token is kept, in the slot of the data. `ARGV[1]` is the token, and `ARGV[2]` for how many
/// milliseconds to remember it, or 0 for ever: longer than a holder may be late. It answers 1, or 0 for a token that is
/// older than one it has seen.
///
/// ```text
/// EVAL <GATE> 2 fence:{account:7} account:{account:7} 1763250000000000 0
/// ```
pub const GATE: &str = include_str!("scripts/gate.lua");
