//! Readers of what others wrote, given what nobody would write.

mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};

use loadtest::random::Random;

use self::targets::TARGETS;

const INPUTS: u64 = 10_000;
/// The longest input; what is longer is cut.
const MAX_BYTES: usize = 4_096;
/// Pieces that make a wrong number or an unexpected end out of a right one.
const PIECES: [&[u8]; 16] = [
    b"",
    b"-1",
    b"0",
    b"1e308",
    b"18446744073709551616",
    b"nan",
    b"\"",
    b"[[[[[[[[",
    b"{",
    b"\n",
    b",",
    b"=",
    b"\xff\xff\xff\xff",
    b"\0",
    b"\xc3\xa9",
    b"\r\n\r\n",
];

#[test]
fn no_reader_panics_on_seeds_that_were_cut_swapped_and_spoilt() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        for seed in &seeds {
            (target.run)(seed);
        }
        for index in 0..INPUTS {
            let input = spoilt(&seeds, &mut Random::part(9, index));
            let run = catch_unwind(AssertUnwindSafe(|| (target.run)(&input)));
            let shown = input.escape_ascii();
            assert!(run.is_ok(), "{} panicked on input {index}: {shown}", target.name);
        }
    }
}

/// One seed with up to eight changes.
fn spoilt(seeds: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut below = |most: usize| (random.bits() % most.max(1) as u64) as usize;
    let mut input = seeds[below(seeds.len())].clone();
    for _ in 0..=below(8) {
        let (from, to) = (below(input.len()), below(input.len()));
        let (from, to) = (from.min(to), from.max(to).min(from.min(to) + 64));
        match below(6) {
            0 if !input.is_empty() => input[from] ^= 1 << below(8),
            1 if !input.is_empty() => input[from] = below(256) as u8,
            2 => drop(input.drain(from..to)),
            3 => {
                let again = input[from..to].to_vec();
                input.splice(to..to, again);
            }
            4 => {
                let other = &seeds[below(seeds.len())];
                let at = below(other.len());
                let part = other[at..other.len().min(at + 64)].to_vec();
                input.splice(from..to, part);
            }
            _ => {
                input.splice(from..to, PIECES[below(PIECES.len())].iter().copied());
            }
        }
    }
    input.truncate(MAX_BYTES);
    input
}
