//! What a board has that MIG does not divide: power, clock, bandwidth.

use mig::Kind;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Board {
    pub kind: &'static str,
    /// Power when nothing runs; of the order that `nvidia-smi` shows.
    pub idle_watts: f64,
    /// The default power limit, by its datasheet.
    pub cap_watts: f64,
    /// The highest clock, by its datasheet.
    pub clock_mhz: u32,
    /// Memory bandwidth in GB/s, by its datasheet. Batches scale with it between boards.
    pub bandwidth_gbps: f64,
}

const BOARDS: [Board; 7] = [
    of("A30-24GB", 30.0, 165.0, 1_440, 933.0),
    of("A100-40GB", 50.0, 400.0, 1_410, 1_555.0),
    of("A100-80GB", 55.0, 400.0, 1_410, 2_039.0),
    of("H100-80GB", 70.0, 700.0, 1_980, 3_350.0),
    of("H100-NVL-94GB", 65.0, 400.0, 1_785, 3_938.0),
    of("H200-141GB", 75.0, 700.0, 1_980, 4_800.0),
    of("B200-180GB", 140.0, 1_000.0, 1_965, 8_000.0),
];

const fn of(kind: &'static str, idle: f64, cap: f64, clock_mhz: u32, gbps: f64) -> Board {
    Board { kind, idle_watts: idle, cap_watts: cap, clock_mhz, bandwidth_gbps: gbps }
}

pub fn board(kind: &Kind) -> &'static Board {
    let found = BOARDS.iter().find(|board| board.kind == kind.name);
    found.expect("a test of this module finds a board for every kind of the table")
}

#[cfg(test)]
mod tests {
    use mig::kinds;

    use super::*;

    #[test]
    fn every_gpu_of_the_mig_table_has_a_board() {
        for kind in kinds() {
            let board = board(kind);
            assert!(board.idle_watts < board.cap_watts, "{}", kind.name);
        }
    }
}
